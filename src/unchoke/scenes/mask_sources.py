"""Where the classes of pixels come from: a label raster, a formula over the bands, polygons, or nowhere.

A mask source is a small picklable value; windows come in, classes go out as uint8 with 255 for every pixel that has none. Label
rasters are read by `raster`, formulas by `expression`. Vector files (GeoJSON, GeoPackage, shapefile and whatever else GDAL
reads) are read here: polygons are brought into the scene's pixel coordinates once per file and grid and kept; a window is burnt
from those that meet it, by pixel centres, so windows agree with the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from unchoke.core import listing
from unchoke.core.boxes import Box
from unchoke.core.errors import DataError, UsageError, list_some, missing_extra
from unchoke.core.fingerprint import digest, digest_file
from unchoke.core.input_file import refuse_special
from unchoke.core.remote import locate
from unchoke.core.settings import Settings
from unchoke.core.urls import is_url
from unchoke.jobs.cluster.file_transfer import FileSet
from unchoke.scenes.expression import parse_expression
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.raster import read_label
from unchoke.scenes.scene_facts import IGNORE, Grid, SceneError, SceneFacts

Classes = NDArray[np.uint8]
Physical = NDArray[np.float32]
Valid = NDArray[np.bool_]
_SHAPEFILE = ".shp"
_BESIDE = frozenset(
    {
        *(".aux", ".aux.xml", ".hdr", ".msk", ".ovr", ".prj", ".rrd", ".wld", ".xml"),
        *(".j2w", ".jgw", ".jpgw", ".pgw", ".pngw", ".tfw", ".tifw"),
        *(".cpg", ".dbf", ".qix", ".sbn", ".sbx", ".shx"),
    }
)
"""What GDAL looks for under the stem of a raster or a shapefile, besides names that begin with the file's own."""
_AREAS = (3, 6)
"""Shapely's numbers for Polygon and MultiPolygon."""


class MaskSource(Protocol):
    """A picklable value that tells the class of every pixel."""

    def mask(self, facts: SceneFacts, box: Box, bands_physical: Physical, valid: Valid, pool: HandlePool, /) -> Classes:
        """Classes (h, w) of a window; 255 where it is unlabelled, invalid, or outside the scene."""
        ...

    def describe(self) -> dict[str, Any]:
        """What the mask depends on besides the scene, as plain values for digests and records."""
        ...


@dataclass(frozen=True)
class LabelMask:
    """The scene's own label raster; pixels of the value `ignore` count as unlabelled."""

    ignore: int | None = None

    def mask(self, facts: SceneFacts, box: Box, _bands: Physical, valid: Valid, pool: HandlePool, /) -> Classes:
        """See `MaskSource`. The bands play no part. A scene without a label raster is unlabelled."""
        if facts.label is None:
            return np.full(valid.shape, IGNORE, np.uint8)
        return _hide_invalid(read_label(facts, box, pool=pool, ignore=None if facts.scene.decoded else self.ignore), valid)

    def describe(self) -> dict[str, Any]:
        return {"kind": "label", "ignore": self.ignore}


@dataclass(frozen=True)
class ExpressionMask:
    """Class 1 where a formula over the bands holds, 0 elsewhere."""

    text: str
    band_names: tuple[str, ...]

    def mask(self, _facts: SceneFacts, _box: Box, bands_physical: Physical, valid: Valid, _pool: HandlePool, /) -> Classes:
        """See `MaskSource`. No file is read."""
        planes = dict(zip(self.band_names, bands_physical, strict=True))
        return _hide_invalid(parse_expression(self.text, self.band_names).evaluate(planes).astype(np.uint8), valid)

    def describe(self) -> dict[str, Any]:
        return {"kind": "expression", "text": self.text, "bands": list(self.band_names)}


@dataclass(frozen=True)
class PolygonMask:
    """The class of the polygon that covers a pixel's centre, 0 where none does; of several, the last in the file.

    `content` is the digest of the file when it was chosen: a file that changed since is refused.
    """

    path: str
    class_field: str | None
    content: str

    def mask(self, facts: SceneFacts, box: Box, _bands: Physical, valid: Valid, _pool: HandlePool, /) -> Classes:
        """See `MaskSource`. The bands play no part; the file is read once per process and coordinate system."""
        shapes = load_polygons(self.path, class_field=self.class_field, content=self.content, grid=facts.grid)
        return _hide_invalid(burn(shapes, box), valid)

    def describe(self) -> dict[str, Any]:
        return {"kind": "polygons", "class_field": self.class_field, "content": self.content}


def choose_mask(settings: Settings, *, band_names: Sequence[str], labelled: bool) -> MaskSource | None:
    """The one source the settings ask for; None if there is none. `labelled`: the scan found label rasters.

    A formula is checked against `band_names`, a vector file is opened once to see that its class field is there.
    """
    asked = {"--label": settings.label, "--mask": settings.mask, "--polygons": settings.polygons}
    given = [f"{option} {value}" for option, value in asked.items() if value]
    if len(given) > 1:
        raise UsageError(
            f"the mask was asked for in {len(given)} ways: {', '.join(given)}",
            code="options-conflict",
            why="a pixel has one class, so it comes from one place",
            try_=f"keep only {given[0]}",
        )
    if settings.mask:
        parse_expression(settings.mask, tuple(band_names))
        return ExpressionMask(settings.mask, tuple(band_names))
    if settings.polygons:
        path = locate(settings.polygons)
        if not isinstance(path, Path):  # read as a whole by GDAL, with the files beside it
            raise UsageError(
                f"--polygons {path} is not on this machine",
                code="polygons-not-local",
                why="polygons are read from a file, and for some formats from files beside it",
                try_=f"copy it here, then --polygons {path.name}",
            )
        check_polygons(path, class_field=settings.polygon_class)
        return PolygonMask(str(path), settings.polygon_class, digest_polygons(path))
    return LabelMask(settings.ignore) if labelled else None


def _hide_invalid(classes: Classes, valid: Valid) -> Classes:
    if not valid.all():
        classes[~valid] = IGNORE
    return classes


@dataclass(frozen=True, eq=False)
class Shapes:
    """Polygons in pixel coordinates of one grid (x = column, y = row), in the order of the file, with their classes."""

    areas: NDArray[Any]
    classes: NDArray[np.uint8]
    tree: Any


def check_polygons(path: Path, *, class_field: str | None) -> None:
    """Refuse a file that is missing or cannot be read, or whose class field is lacking or holds no classes."""
    if not path.exists():
        raise UsageError(f"there is no vector file {path}", code="no-such-file", why="--polygons names it", try_="check the path")
    refuse_special(path)
    _, _, _, fields = _read(str(path), class_field=None, max_features=1)
    if class_field is not None and class_field not in fields:
        known = f"its fields are {list_some(fields, limit=20)}" if fields else "its polygons have no fields"
        raise UsageError(
            f"{path.name} has no field {class_field!r}",
            code="no-such-field",
            why=known,
            try_=f"--polygon-class {fields[0]}" if fields else "leave out --polygon-class: every polygon is class 1",
        )
    if class_field is not None:
        _, _, values, _ = _read(str(path), class_field=class_field)
        _classes(str(path), class_field, np.empty(0) if values is None else values)


def digest_polygons(path: Path) -> str:
    """A digest of everything the mask depends on: the file, and for a shapefile the files beside it."""
    names = listing.names(path.parent, prefix=f"{path.stem}.") if path.suffix.lower() == _SHAPEFILE else [path.name]
    return digest([[name, digest_file(path.parent / name)] for name in names])


@lru_cache(maxsize=16)
def load_polygons(path: str, *, class_field: str | None, content: str, grid: Grid) -> Shapes:
    """The polygons of a file on the grid of a scene. `content` is what `digest_polygons` gave; another file by now is refused."""
    import shapely
    from rasterio.transform import Affine
    from rasterio.warp import transform

    if not Path(path).exists() or digest_polygons(Path(path)) != content:
        raise DataError(
            f"{path} changed while the command ran",
            code="polygons-changed",
            why="its content is another one now",
            try_="run the command again",
        )
    crs, wkb, values, _ = _read(path, class_field=class_field)
    areas = shapely.from_wkb(wkb, on_invalid="fix")
    keep = ~(shapely.is_missing(areas) | shapely.is_empty(areas))
    areas, values = areas[keep], values[keep] if values is not None else None
    kinds = shapely.get_type_id(areas)
    other = np.flatnonzero(~np.isin(kinds, _AREAS))
    if len(other):
        raise DataError(
            f"{path} holds {len(other)} shapes that are no polygons, the first a {areas[other[0]].geom_type}",
            code="not-polygons",
            why="only an area says which pixels are inside",
            try_="keep the polygons only, or buffer lines and points",
        )
    if bool(crs) != bool(grid.crs):
        one, other_one = ("scene", "file") if grid.crs else ("file", "scene")
        raise SceneError(
            f"the polygons of {path} cannot be placed on the scene",
            code="polygons-not-placed",
            why=f"the {one} has a coordinate system and the {other_one} has none",
            try_="give both a coordinate system, for instance with ogr2ogr -a_srs or gdal_edit -a_srs",
            path=path,
        )
    back = ~Affine(*grid.transform)

    def to_pixels(points: NDArray[np.float64]) -> NDArray[np.float64]:
        x, y = points[:, 0], points[:, 1]
        if crs and crs != grid.crs:
            x, y = (np.asarray(values) for values in transform(crs, grid.crs, x, y))
        return np.stack([back.a * x + back.b * y + back.c, back.d * x + back.e * y + back.f], axis=1)

    classes = np.ones(len(areas), np.uint8) if values is None else _classes(path, class_field, values)
    placed = shapely.transform(areas, to_pixels)
    there = np.isfinite(shapely.bounds(placed)).all(axis=1)  # elsewhere on earth the scene's projection may have no answer
    placed, classes = placed[there], classes[there]
    tree = shapely.STRtree(placed)
    tree.query(shapely.Point(0, 0))  # the tree may be built by the first question, which should not be two threads' at once
    return Shapes(placed, classes, tree)


def burn(shapes: Shapes, box: Box) -> NDArray[np.uint8]:
    """Classes (h, w) of a window; 0 where there is no polygon."""
    import shapely
    from rasterio.features import rasterize
    from rasterio.transform import Affine

    meeting = np.sort(shapes.tree.query(shapely.box(box.left, box.top, box.right, box.bottom)))
    mask = np.zeros((box.height, box.width), np.uint8)
    if len(meeting):
        pairs = [(shapes.areas[number], int(shapes.classes[number])) for number in meeting]
        rasterize(pairs, out=mask, transform=Affine.translation(box.left, box.top), all_touched=False)
    return mask


def _read(
    path: str, *, class_field: str | None, max_features: int | None = None
) -> tuple[str | None, NDArray[Any], NDArray[Any] | None, list[str]]:
    """Coordinate system, geometries as WKB, the class field's values, and the names of all fields."""
    try:
        from pyogrio import raw, read_info
    except ImportError as error:
        raise missing_extra("pyogrio", extra="geo", purpose="reading polygons") from error
    try:
        fields = [str(name) for name in read_info(path)["fields"]]
        columns = [] if class_field is None else [class_field]
        meta, _, wkb, values = raw.read(path, columns=columns, max_features=max_features)
    except (RuntimeError, ValueError) as error:
        raise _unreadable(path, error) from error
    if wkb is None:
        raise _unreadable(path, ValueError("it holds a table without geometries"))
    return meta["crs"], wkb, values[0] if values else None, fields


def _unreadable(path: str, error: Exception) -> DataError:
    return DataError(
        f"the vector file {path} cannot be read",
        code="unreadable-polygons",
        why=next(iter(str(error).splitlines()), type(error).__name__),
        try_="open it in QGIS or ogrinfo, and save it again as GeoPackage or GeoJSON",
    )


def _classes(path: str, field: str | None, values: NDArray[Any]) -> NDArray[np.uint8]:
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError):
        numbers = np.full(len(values), np.nan)
    wrong = np.flatnonzero(~((numbers >= 0) & (numbers < IGNORE) & (numbers == np.floor(numbers))))
    if len(wrong):
        raise DataError(
            f"the field {field!r} of {path} holds {values[wrong[0]]!r}, which is no class",
            code="bad-polygon-class",
            why=f"classes are whole numbers from 0 to {IGNORE - 1}; {len(wrong)} of {len(values)} polygons have another value",
            try_="add a field with class numbers, or leave out --polygon-class: every polygon is class 1",
        )
    return numbers.astype(np.uint8)


def files_to_send(facts: SceneFacts, mask: MaskSource | None = None) -> FileSet:
    """Every file that another machine needs to read this scene and its mask: rasters, polygons, and what lies beside each."""
    names = [band.path for band in facts.bands] + ([facts.label.path] if facts.label is not None else [])
    if isinstance(mask, PolygonMask):
        names.append(mask.path)
    names = [name for name in dict.fromkeys(names) if not is_url(name)]
    return FileSet.of(facts.scene_id, [*names, *(file for name in names for file in beside(name))])


def beside(name: str) -> list[str]:
    """The files that belong to the raster or shapefile `name`, without itself."""
    file = Path(name)
    return [str(file.with_name(other)) for other in listing.names(file.parent, prefix=f"{file.stem}.") if _belongs(other, file)]


def _belongs(other: str, file: Path) -> bool:
    rest = other[len(file.stem) :].lower()
    return other != file.name and (other.startswith(f"{file.name}.") or rest in _BESIDE)
