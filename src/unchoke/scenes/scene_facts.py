"""What is known of a scene once its files were opened: its bands, its label, and the grid of pixels it is worked on.

Plain values, picklable, and arithmetic on them; no file is opened, no rasterio. A grid pixel belongs to the scene when its centre
lies inside the footprint of every band, so footprints that differ by half a pixel or less leave a band's own grid as it is. Bands
are never reprojected: they must share one CRS.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from unchoke.core.boxes import Box
from unchoke.core.errors import DataError, UsageError, list_some
from unchoke.core.image_names import suffix_of
from unchoke.core.listing import special_kind
from unchoke.core.stores import recent_stat, stat_url
from unchoke.core.urls import is_url

IGNORE = 255
"""The label of pixels that have none: outside, unlabelled, not valid."""

Affine6 = tuple[float, float, float, float, float, float]
_FINEST = 100
"""How many times finer than the finest band a grid may be."""
_SLACK_PX = 1e-6
"""Coordinates are sums of decimals; a millionth of a pixel apart is the same place."""
_SAME_PX = 1e-3
"""Files of one grid may be written with rounded coordinates; this much is not worth resampling for."""


class SceneError(DataError):
    """A scene that cannot be used; `path` is the file to blame."""

    def __init__(self, what: str, *, code: str, why: str, try_: str, path: str = "") -> None:
        super().__init__(what, code=code, why=why, try_=try_)
        self.path = path


@dataclass(frozen=True)
class BandFile:
    """One band: its name as the file spells it, the file, and which of the file's bands it is (from 1)."""

    name: str
    path: str
    number: int = 1


@dataclass(frozen=True)
class Scene:
    """One scene: either `bands`, one file each, or one `file` that holds them all (its bands are known once it is opened).

    `scene_id` is unique in one scan and safe as part of a file name. `label` is the path of this scene's label raster; if it was
    `decoded`, it was made from another file, and its numbers are classes that no option changes.
    """

    scene_id: str
    bands: tuple[BandFile, ...] = ()
    label: str | None = None
    group: str = ""
    split: str = ""
    file: str | None = None
    decoded: bool = False

    @property
    def band_names(self) -> list[str]:
        return [band.name for band in self.bands]

    @property
    def paths(self) -> tuple[str, ...]:
        """Every file of the scene once, its label last."""
        files = [self.file] if self.file is not None else [band.path for band in self.bands]
        return tuple(dict.fromkeys([*files, *([self.label] if self.label is not None else [])]))


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
    def of(cls, path: str, *, recent: bool = False) -> FileStamp:
        """The file's stamp now; raises OSError for a file that is gone, and for a pipe or device, which is none.

        A `recent` one will do where a request to a store for every opening would be too many.
        """
        if is_url(path):
            return cls(path, *(recent_stat if recent else stat_url)(path))
        status = os.stat(path)
        if what := special_kind(status.st_mode):
            raise OSError(errno.EINVAL, f"{what}, not a file", path)
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

    @property
    def is_photo(self) -> bool:
        """Whether it has no place on a map, neither a CRS nor coordinates of its own, and no file of it is a TIFF."""
        is_tiff = any(suffix_of(path) in (".tif", ".tiff") for path in self.scene.paths if path != self.scene.label)
        return not self.grid.crs and self.grid.transform == (1.0, 0.0, 0.0, 0.0, 1.0, 0.0) and not is_tiff


class Bounds(NamedTuple):
    """A footprint in map coordinates."""

    left: float
    low: float
    right: float
    high: float

    @property
    def area(self) -> float:
        return (self.right - self.left) * (self.high - self.low)

    def common(self, other: Bounds) -> Bounds:
        """What both cover; turned inside out where they do not meet."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Bounds(max(self.left, other.left), low, min(self.right, other.right), high)

    def meets(self, other: Bounds) -> bool:
        """Whether both cover some area."""
        both = self.common(other)
        return both.left < both.right and both.low < both.high


def is_upright(transform: Affine6) -> bool:
    """Whether rows and columns run along the axes of the map."""
    return transform[1] == 0.0 and transform[3] == 0.0


def bounds_of(grid: Grid) -> Bounds:
    """The footprint of a grid; of one that is turned, the upright rectangle around it."""
    corners = _corners(grid)
    across, down = corners[0::2], corners[1::2]
    return Bounds(min(across), min(down), max(across), max(down))


def same_place(one: Grid, other: Grid) -> bool:
    """Whether two grids (of one CRS) have the same pixels: their corners lie within a thousandth of a pixel."""
    if (one.width, one.height) != (other.width, other.height):
        return False
    apart = [abs(x - y) for x, y in zip(_corners(one), _corners(other), strict=True)]
    return max(apart) <= _SAME_PX * math.sqrt(_pixel_area(one.transform))


def _corners(grid: Grid) -> list[float]:
    a, b, c, d, e, f = grid.transform
    corners = [(0, 0), (grid.width, 0), (0, grid.height), (grid.width, grid.height)]
    return [number for x, y in corners for number in (a * x + b * y + c, d * x + e * y + f)]


def origin_in(own: Grid, grid: Grid) -> tuple[int, int] | None:
    """(row, column) of `own` at which `grid` begins, where its pixels are pixels of `own`; None where they are others."""
    if same_place(own, grid):
        return (0, 0)
    if not (is_upright(own.transform) and is_upright(grid.transform)):
        return None
    a, _, c, _, e, f = own.transform
    top, left = round((grid.transform[5] - f) / e), round((grid.transform[2] - c) / a)
    fits = min(top, left) >= 0 and top + grid.height <= own.height and left + grid.width <= own.width
    cut = part_of(own, Box(top, left, grid.height, grid.width))
    return (top, left) if fits and same_place(cut, grid) else None


def part_of(grid: Grid, box: Box) -> Grid:
    """The same pixels, those of a box."""
    a, b, c, d, e, f = grid.transform
    return Grid(box.width, box.height, (a, b, c + a * box.left + b * box.top, d, e, f + d * box.left + e * box.top), grid.crs)


def choose_grid(own: Mapping[str, Grid], how: str, *, paths: Mapping[str, str]) -> Grid:
    """The grid of a scene whose bands lie on `own` (by band name, all in one CRS).

    `how` is finest, coarsest, a band's name, or a pixel size in units of the CRS. Raises `SceneError` for bands that do not
    overlap, naming the file.
    """
    size = _as_size(how)
    base = _base_band(own, "finest" if size is not None else how)
    others = [name for name, grid in own.items() if not same_place(grid, own[base])]
    if not others and size is None:
        return own[base]
    for name in (base, *others):
        if not is_upright(own[name].transform):
            raise SceneError(
                f"{paths[name]} cannot be resampled",
                code="grid-rotated",
                why=f"its rows are turned against the map, and the grids of {base} and {(others or [base])[0]} differ",
                try_="warp the bands onto one grid with gdalwarp first, or name bands of one grid with --bands",
                path=paths[name],
            )
    common = bounds_of(own[base])
    for name in others:
        if not common.meets(bounds_of(own[name])):
            raise no_overlap(paths[name], bounds_of(own[name]), paths[base], common)
        common = common.common(bounds_of(own[name]))
    grid = own[base] if size is None else _resized(own[base], size, paths[base])
    return _inside(grid, common, paths[base])


def no_overlap(path: str, bounds: Bounds, other: str, other_bounds: Bounds) -> SceneError:
    """The error for two files of one scene that show different places."""
    return SceneError(
        f"{path} does not overlap {other}",
        code="bands-do-not-overlap",
        why=f"the first covers {_spell(bounds)}, the second {_spell(other_bounds)}",
        try_="put files of one place together, or take this one out",
        path=path,
    )


def scale_to_pixels(sizes: Mapping[str, tuple[int, int]], *, paths: Mapping[str, str]) -> dict[str, Grid]:
    """Grids of bands that have no place on the map, from their (height, width): the finest has pixels of 1, others a multiple."""
    finest = max(sizes, key=lambda name: sizes[name])
    height, width = sizes[finest]
    grids = {}
    for name, (own_height, own_width) in sizes.items():
        factor = width // own_width
        if (own_height * factor, own_width * factor) != (height, width):
            raise SceneError(
                f"{paths[name]} does not fit {paths[finest]}",
                code="band-sizes-do-not-divide",
                why=f"{own_width}×{own_height} pixels do not divide {width}×{height} evenly, and neither file says where it lies",
                try_="give the files a place on the map with gdal_translate -a_srs and -a_ullr, or name the bands with --bands",
                path=paths[name],
            )
        grids[name] = Grid(own_width, own_height, (float(factor), 0.0, 0.0, 0.0, float(factor), 0.0), "")
    return grids


def _as_size(how: str) -> float | None:
    try:
        size = float(how)
    except ValueError:
        return None
    if not (math.isfinite(size) and size > 0):
        raise UsageError(f"--grid {how} is no pixel size", code="bad-grid", why="a size is above 0", try_="--grid finest")
    return size


def _base_band(own: Mapping[str, Grid], how: str) -> str:
    """The band whose grid is taken; the first of equals."""
    if how in ("finest", "coarsest"):
        choose = min if how == "finest" else max
        # nine digits: areas of equal pixels may differ in the last bit, and the first band is to win then
        return choose(own, key=lambda name: float(f"{_pixel_area(own[name].transform):.9g}"))
    if how in own:
        return how
    raise UsageError(
        f"--grid {how} names no band of the scene",
        code="bad-grid",
        why=f"its bands are {list_some(list(own), limit=20)}",
        try_=f"--grid finest, --grid coarsest, --grid {next(iter(own))}, or a pixel size such as --grid 10",
    )


def _pixel_area(transform: Affine6) -> float:
    a, b, _, d, e, _ = transform
    return abs(a * e - b * d)


def _resized(grid: Grid, size: float, path: str) -> Grid:
    """Square pixels of `size` over the same footprint, counted from the same corner; the last may reach beyond it."""
    a, _, c, _, e, f = grid.transform
    if size * _FINEST < min(abs(a), abs(e)):
        raise SceneError(
            f"--grid {size:g} makes more pixels of {Path(path).name} than it has any use for",
            code="grid-too-fine",
            why=f"its own pixels are {abs(a):g} wide, more than {_FINEST} times as much: nearly all would be made up",
            try_=f"--grid {abs(a):g}, or --grid finest",
            path=path,
        )
    width = max(1, math.ceil(grid.width * abs(a) / size - _SLACK_PX))
    height = max(1, math.ceil(grid.height * abs(e) / size - _SLACK_PX))
    return Grid(width, height, (math.copysign(size, a), 0.0, c, 0.0, math.copysign(size, e), f), grid.crs)


def _inside(grid: Grid, common: Bounds, path: str) -> Grid:
    """The pixels of `grid` whose centres lie in `common`."""
    a, _, c, _, e, f = grid.transform
    left, right = _centres_between(c, a, grid.width, common.left, common.right)
    top, bottom = _centres_between(f, e, grid.height, common.low, common.high)
    if left >= right or top >= bottom:
        raise SceneError(
            f"{path} has no pixel inside all bands of its scene",
            code="bands-do-not-overlap",
            why=f"the bands share only {_spell(common)}, less than one pixel of the grid",
            try_="choose a finer --grid, or take the scene out",
            path=path,
        )
    whole = (top, left, bottom, right) == (0, 0, grid.height, grid.width)
    return grid if whole else part_of(grid, Box(top, left, bottom - top, right - left))


def _centres_between(origin: float, step: float, count: int, low: float, high: float) -> tuple[int, int]:
    """First and one past the last of `count` pixels whose centre lies between `low` and `high`."""
    first, last = sorted(((low - origin) / step, (high - origin) / step))
    begin = max(0, math.ceil(first - 0.5 - _SLACK_PX))
    end = min(count, math.floor(last - 0.5 + _SLACK_PX) + 1)
    return begin, end


def _spell(bounds: Bounds) -> str:
    return f"x {bounds.left:.10g} to {bounds.right:.10g}, y {bounds.low:.10g} to {bounds.high:.10g}"
