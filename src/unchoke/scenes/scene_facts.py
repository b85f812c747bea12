"""What is known of a scene once its files were opened: its grid, its bands, its label. Plain values, picklable; no rasterio."""

from __future__ import annotations

import os
from dataclasses import dataclass

from unchoke.core.errors import DataError
from unchoke.scenes.scene_list import Scene

IGNORE = 255
"""The label of pixels that have none: outside, unlabelled, not valid."""

Affine6 = tuple[float, float, float, float, float, float]


class SceneError(DataError):
    """A scene that cannot be used; `path` is the file to blame."""

    def __init__(self, what: str, *, why: str, try_: str, path: str = "") -> None:
        super().__init__(what, why=why, try_=try_)
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (self.what, self.why, self.try_, self.path))


def _rebuild(what: str, why: str, try_: str, path: str) -> SceneError:
    return SceneError(what, why=why, try_=try_, path=path)


@dataclass(frozen=True)
class Grid:
    """Pixels and their place: the affine a, b, c, d, e, f (x = a·column + b·row + c, y = d·column + e·row + f), the CRS as WKT.

    Without a CRS (`crs` is "") the coordinates are those of the files, often plain pixels.
    """

    width: int
    height: int
    transform: Affine6
    crs: str


@dataclass(frozen=True)
class FileStamp:
    """A file as it was when it was inspected; another size or time means that it was changed since."""

    path: str
    size_bytes: int
    mtime_ns: int

    @classmethod
    def of(cls, path: str) -> FileStamp:
        """The file's stamp now; raises OSError for a file that is gone."""
        status = os.stat(path)
        return cls(path, status.st_size, status.st_mtime_ns)


@dataclass(frozen=True)
class BandFacts:
    """One band of a scene. Physical value = stored value · `scale` + `offset`.

    `block` is (rows, columns) of the file's own layout, in pixels of the scene's grid. `own` is the grid of the file. `warped`
    bands have other pixels than the scene and are resampled; of others the scene begins at pixel `origin` (row, column).
    `masked` bands have their validity in a mask or alpha band of the file. `upright` bands belong to a photo that must be
    decoded whole, for it is stored turned, or by palette.
    """

    name: str
    path: str
    number: int
    dtype: str
    nodata: float | None
    scale: float
    offset: float
    block: tuple[int, int]
    warped: bool
    own: Grid
    origin: tuple[int, int] = (0, 0)
    masked: bool = False
    upright: bool = False


@dataclass(frozen=True)
class LabelFacts:
    """The label raster of a scene; one that is not `aligned` is brought onto the grid by nearest neighbour.

    `own` is its grid where that is upright and in the scene's CRS; others go through GDAL's warper.
    """

    path: str
    dtype: str
    nodata: float | None
    masked: bool
    aligned: bool
    own: Grid | None = None


@dataclass(frozen=True)
class SceneFacts:
    """A scene that was opened once: where its pixels are and how to read them.

    `content` changes when any of its files does (name, size or time); `resampling` is how `warped` bands come onto the grid.
    """

    scene: Scene
    grid: Grid
    bands: tuple[BandFacts, ...]
    content: str
    stamps: tuple[FileStamp, ...] = ()
    label: LabelFacts | None = None
    resampling: str = "bilinear"

    @property
    def scene_id(self) -> str:
        return self.scene.scene_id

    @property
    def num_bands(self) -> int:
        return len(self.bands)

    @property
    def band_names(self) -> tuple[str, ...]:
        return tuple(band.name for band in self.bands)

    @property
    def num_pixels(self) -> int:
        return self.grid.width * self.grid.height
