"""A scene's files opened once: which bands there are, on which grid the scene lies, and whether its label fits.

In: a `Scene` from a scan. Out: `SceneFacts`, from which any worker can read pixels. Only headers are read. A scene that cannot be
used raises a `SceneError` that names the file to blame; other scenes are not looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unchoke.core.errors import list_some
from unchoke.core.fingerprint import digest
from unchoke.core.input_file import open_plain
from unchoke.pixels.image import DecodeError, open_pillow
from unchoke.scenes.handles import HandlePool, unreadable
from unchoke.scenes.scan_scenes import find_band
from unchoke.scenes.scene_facts import (
    Affine6,
    BandFacts,
    BandFile,
    Bounds,
    FileStamp,
    Grid,
    LabelFacts,
    Scene,
    SceneError,
    SceneFacts,
    bounds_of,
    choose_grid,
    is_upright,
    no_overlap,
    origin_in,
    same_place,
    scale_to_pixels,
)

RESAMPLINGS = ("nearest", "bilinear", "cubic", "average")
_PHOTO_DRIVERS = frozenset({"JPEG", "PNG", "GIF", "BMP", "WEBP"})
_ORIENTATION_TAG = 0x0112


@dataclass(frozen=True)
class _BandHeader:
    """One band's header; `placed` says whether the file has a place on the map (`transform` is the identity otherwise)."""

    band: BandFile
    dtype: str
    nodata: float | None
    scale: float
    offset: float
    block: tuple[int, int]
    size: tuple[int, int]
    transform: Affine6
    crs: Any
    placed: bool
    masked: bool
    upright: bool


def inspect_scene(
    scene: Scene, *, pool: HandlePool, bands: Sequence[str] = (), grid: str = "finest", resampling: str = "bilinear"
) -> SceneFacts:
    """Open every file of `scene` once and say how its pixels are read, for `bands` in that order (none: all there are).

    `grid` is finest, coarsest, a band's name or a pixel size; `resampling` is how bands of another grid come onto it.
    """
    stamps = _stamp(scene)
    opened = _open_bands(scene, bands, pool)
    _require_one_crs(opened)
    paths = {one.band.name: one.band.path for one in opened}
    if opened[0].placed:
        crs = _as_wkt(opened[0].crs)
        own = {one.band.name: Grid(one.size[1], one.size[0], one.transform, crs) for one in opened}
    else:
        own = scale_to_pixels({one.band.name: one.size for one in opened}, paths=paths)
    position = find_band(grid, list(own))  # a band's name as the files spell it; anything else as it is
    chosen = choose_grid(own, grid if position is None else list(own)[position], paths=paths)
    facts = tuple(_band_facts(one, own[one.band.name], chosen) for one in opened)
    label = _inspect_label(scene.label, opened[0], chosen, pool) if scene.label is not None else None
    content = digest([[os.path.basename(stamp.path), stamp.size_bytes, stamp.mtime_ns] for stamp in stamps])  # noqa: PTH119
    return SceneFacts(scene, chosen, facts, content, stamps, label, resampling)


def _stamp(scene: Scene) -> tuple[FileStamp, ...]:
    stamps = []
    for path in scene.paths:
        try:
            stamps.append(FileStamp.of(path))
        except FileNotFoundError as error:
            raise unreadable(path, "the file is gone") from error
        except OSError as error:
            raise unreadable(path, error.strerror or str(error)) from error
    return tuple(stamps)


def _open_bands(scene: Scene, wanted: Sequence[str], pool: HandlePool) -> list[_BandHeader]:
    if scene.file is not None:
        with pool.open(scene.file) as dataset:
            named = _name_bands(dataset, scene.file)
            chosen = _choose(named, _by_number(wanted, named), scene.file)
            return _read_headers(dataset, chosen)
    opened = []
    for band in _choose(scene.bands, wanted, scene.scene_id):
        with pool.open(band.path) as dataset:
            _require_number(dataset, band)
            opened += _read_headers(dataset, [band])
    return opened


def _name_bands(dataset: Any, path: str) -> list[BandFile]:
    """The bands of a file by their descriptions, or b1, b2, … where those do not tell them apart; alpha is a mask, not a band."""
    numbers = _image_bands(dataset)
    if len(numbers) > dataset.count:
        return [BandFile(f"b{number}", path, number) for number in numbers]
    described = [(dataset.descriptions[number - 1] or "").strip() for number in numbers]
    useful = all(described) and len(set(described)) == len(described)
    names = described if useful else [f"b{number}" for number in numbers]
    return [BandFile(name, path, number) for name, number in zip(names, numbers, strict=True)]


def _image_bands(dataset: Any) -> list[int]:
    """Numbers of the bands that hold a picture. A palette is spelled out in red, green and blue."""
    from rasterio.enums import ColorInterp

    if _by_palette(dataset):
        return [1, 2, 3]
    return [number for number, kind in enumerate(dataset.colorinterp, start=1) if kind != ColorInterp.alpha]


def _by_palette(dataset: Any) -> bool:
    from rasterio.enums import ColorInterp

    return dataset.driver in _PHOTO_DRIVERS and dataset.count == 1 and dataset.colorinterp[0] == ColorInterp.palette


def _by_number(wanted: Sequence[str], there: Sequence[BandFile]) -> list[str]:
    """`3` and `b3` mean the third band of a file where no band is called so."""
    names = [band.name for band in there]
    by_number = {str(band.number): band.name for band in there}
    return [name if find_band(name, names) is not None else by_number.get(name.lower().lstrip("b"), name) for name in wanted]


def _choose(there: Iterable[BandFile], wanted: Sequence[str], where: str) -> list[BandFile]:
    """The `wanted` of the bands that are there, in the order wanted, by their own names."""
    there = list(there)
    if not wanted:
        return there
    names = [band.name for band in there]
    found = [find_band(name, names) for name in wanted]
    missing = [name for name, position in zip(wanted, found, strict=True) if position is None]
    if missing:
        raise SceneError(
            f"{where} has no band {list_some(missing)}",
            code="no-such-band",
            why=f"its bands are {list_some(names, limit=20)}",
            try_=f"--bands {','.join(names[:4])}",
            path=there[0].path if there else where,
        )
    return [there[position] for position in found if position is not None]


def _require_number(dataset: Any, band: BandFile) -> None:
    if not 1 <= band.number <= dataset.count:
        raise SceneError(
            f"{band.path} has no band number {band.number}",
            code="no-such-band",
            why=f"it holds {dataset.count}",
            try_="correct the number, or give the file as a scene of its own",
            path=band.path,
        )


def _read_headers(dataset: Any, bands: Sequence[BandFile]) -> list[_BandHeader]:
    path = bands[0].path
    turned = _orientation(dataset, path) if dataset.driver in _PHOTO_DRIVERS else 1
    if turned != 1 or _by_palette(dataset):
        return [_photo_header(dataset, band, swapped=turned >= 5) for band in bands]
    _require_real_numbers(dataset, bands)
    transform = tuple(dataset.transform)[:6]
    placed = dataset.crs is not None or not dataset.transform.is_identity
    return [
        _BandHeader(
            band,
            dataset.dtypes[band.number - 1],
            _nodata(dataset, band.number),
            float(dataset.scales[band.number - 1]),
            float(dataset.offsets[band.number - 1]),
            dataset.block_shapes[band.number - 1],
            (dataset.height, dataset.width),
            transform,
            dataset.crs,
            placed,
            _is_masked(dataset, band.number),
            False,
        )
        for band in bands
    ]


def _require_real_numbers(dataset: Any, bands: Sequence[BandFile]) -> None:
    for band in bands:
        dtype = dataset.dtypes[band.number - 1]
        if "complex" in dtype:
            why = f"band {band.number} holds numbers of the kind {dtype}"
            raise SceneError(
                f"{band.path} is complex",
                code="complex-raster",
                why=why,
                try_="store magnitude or phase as a real band",
                path=band.path,
            )


def _photo_header(dataset: Any, band: BandFile, *, swapped: bool) -> _BandHeader:
    """A photo that is decoded whole and turned upright: its height is the stored width if it lies on its side."""
    height, width = (dataset.width, dataset.height) if swapped else (dataset.height, dataset.width)
    plain: Affine6 = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
    return _BandHeader(band, "uint8", None, 1.0, 0.0, (height, width), (height, width), plain, None, False, False, True)


def _orientation(dataset: Any, path: str) -> int:
    """The EXIF orientation of a photo, 1 where it has none. GDAL reads it from JPEG alone."""
    if dataset.driver == "JPEG":
        return int(dataset.tags().get("EXIF_Orientation", 1))
    try:
        with open_plain(path) as file, open_pillow(file) as image:
            return int(image.getexif().get(_ORIENTATION_TAG, 1))
    except (DecodeError, OSError, SyntaxError, ValueError):
        return 1  # too large or too odd for Pillow, which would have to decode it; GDAL has opened it as it is stored


def _nodata(dataset: Any, number: int) -> float | None:
    value = dataset.nodatavals[number - 1]
    return None if value is None else float(value)


def _is_masked(dataset: Any, number: int) -> bool:
    """Whether validity lies in a mask or an alpha band (nodata values are compared when reading)."""
    from rasterio.enums import MaskFlags

    return MaskFlags.per_dataset in dataset.mask_flag_enums[number - 1]


def _require_one_crs(opened: Sequence[_BandHeader]) -> None:
    first = opened[0]
    for other in opened[1:]:
        if not _same_crs(first.crs, other.crs) or first.placed != other.placed:
            raise SceneError(
                f"{other.band.path} lies in another coordinate system than {first.band.path}",
                code="crs-differs",
                why=f"the first is in {_spell_crs(other)}, the second in {_spell_crs(first)}",
                try_="warp one of them with gdalwarp -t_srs, or take the scene out; bands are not reprojected in silence",
                path=other.band.path,
            )


def _same_crs(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return bool(one == other) or (one.to_epsg() is not None and one.to_epsg() == other.to_epsg())


def _spell_crs(opened: _BandHeader) -> str:
    if opened.crs is None:
        return "none, only with a transform" if opened.placed else "none at all"
    return str(opened.crs.to_string())[:80]


def _as_wkt(crs: Any) -> str:
    return str(crs.to_wkt()) if crs is not None else ""


def _band_facts(opened: _BandHeader, own: Grid, grid: Grid) -> BandFacts:
    """`block` is counted in pixels of the scene's grid."""
    down = abs(own.transform[4] / grid.transform[4]) if is_upright(own.transform) else 1.0
    across = abs(own.transform[0] / grid.transform[0]) if is_upright(own.transform) else 1.0
    block = (max(1, round(opened.block[0] * down)), max(1, round(opened.block[1] * across)))
    band, origin = opened.band, origin_in(own, grid)
    if opened.upright and origin != (0, 0):
        raise unreadable(
            band.path, "a photo that is stored turned, or by palette, cannot be brought onto the grid of other files"
        )
    return BandFacts(
        name=band.name,
        path=band.path,
        number=band.number,
        dtype=opened.dtype,
        nodata=opened.nodata,
        scale=opened.scale,
        offset=opened.offset,
        block=block,
        warped=origin is None,
        own=own,
        origin=origin or (0, 0),
        masked=opened.masked,
        upright=opened.upright,
    )


def _inspect_label(path: str, first: _BandHeader, grid: Grid, pool: HandlePool) -> LabelFacts:
    """Whether the label has one band of numbers and fits the grid: the same pixels, another place on the map, or neither."""
    with pool.open(path) as dataset:
        numbers = [1] if dataset.count == 1 else _image_bands(dataset)
        if len(numbers) != 1 or np.dtype(dataset.dtypes[numbers[0] - 1]).kind not in "iufb":
            raise SceneError(
                f"the label {path} has {len(numbers)} bands of {dataset.dtypes[0]}",
                code="label-not-one-band",
                why="a label raster is one band whose numbers are the classes",
                try_="gdal_translate -b 1 keeps one band; colours must be turned into class numbers first",
                path=path,
            )
        placed = dataset.crs is not None or not dataset.transform.is_identity
        own = Grid(dataset.width, dataset.height, tuple(dataset.transform)[:6], _as_wkt(dataset.crs))
        same = _same_crs(dataset.crs, first.crs)
        aligned = _is_aligned(own, grid, path=path, placed=placed and first.placed, same=same)
        simple = same and not aligned and is_upright(own.transform) and is_upright(grid.transform)
        facts = (dataset.dtypes[0], _nodata(dataset, 1), _is_masked(dataset, 1))
        return LabelFacts(path, *facts, aligned, own if simple else None)


def _is_aligned(own: Grid, grid: Grid, *, path: str, placed: bool, same: bool) -> bool:
    """True: same pixels. False: to be warped. Raises where it cannot be warped or shows another place."""
    if not placed:
        if (own.width, own.height) == (grid.width, grid.height):
            return True
        raise SceneError(
            f"the label {path} does not fit its scene",
            code="label-does-not-fit",
            why=f"it has {own.width}×{own.height} pixels, the scene {grid.width}×{grid.height}, and one of them has no place "
            "on the map by which to align them",
            try_="give a label of the scene's size, or one with a coordinate system and transform",
            path=path,
        )
    if same and same_place(own, grid):
        return True
    if not same and not (own.crs and grid.crs):
        raise SceneError(
            f"the label {path} cannot be placed on its scene",
            code="label-not-placed",
            why="one of them has a coordinate system and the other has none",
            try_=f"gdal_edit.py -a_srs EPSG:… {path}, with the system it is in",
            path=path,
        )
    _require_overlap(own, grid, path=path)
    return False


def _require_overlap(own: Grid, grid: Grid, *, path: str) -> None:
    """Refuse a label that shows another place than its scene."""
    from rasterio.warp import transform_bounds

    label, scene = bounds_of(own), bounds_of(grid)
    if own.crs and own.crs != grid.crs:
        label = Bounds(*transform_bounds(own.crs, grid.crs, label.left, label.low, label.right, label.high))
    if not label.meets(scene):
        raise no_overlap(path, label, "its scene", scene)
