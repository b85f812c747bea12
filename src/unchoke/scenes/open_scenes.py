"""Scenes found, opened once and checked against each other, for tiles, for training and for prediction.

In: a session whose settings describe scenes. Out: the facts and scales of every scene that can be used, and a finding for every
one that cannot, naming the file. Only headers are read: which bands there are, on which grid the scene lies, whether its label
fits. A scene that cannot be used raises a `SceneError` that names the file to blame; other scenes are not looked at.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from unchoke.core.ahead import map_ahead
from unchoke.core.choices import Choice
from unchoke.core.errors import DataError, list_some
from unchoke.core.findings import Finding
from unchoke.core.fingerprint import digest
from unchoke.core.input_file import open_plain
from unchoke.core.remote import locate
from unchoke.core.units import format_count
from unchoke.jobs.records import QuarantineRow
from unchoke.pixels.image import DecodeError, open_pillow
from unchoke.runs.session import Session
from unchoke.scenes.handles import HandlePool, stamp_file, unreadable
from unchoke.scenes.label_files import outline_files, read_labels
from unchoke.scenes.scale import SceneScale, measure_scale
from unchoke.scenes.scan_scenes import ScannedScenes, find_band, scan_scenes
from unchoke.scenes.scene_facts import (
    BandFacts,
    BandFile,
    Bounds,
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

_LOST_SHARE = 0.05
"""A scene may cover this much less than its largest band without a warning: bands of different pixels end a little apart."""
RGB = ("b1", "b2", "b3")
"""What the bands of a colour photo are called."""
_PHOTO_DRIVERS = frozenset({"JPEG", "PNG", "GIF", "BMP", "WEBP"})
_ORIENTATION_TAG = 0x0112
Item = TypeVar("Item")
SceneResult = TypeVar("SceneResult")


def find_scenes(session: Session) -> ScannedScenes:
    """Scan DATA by names alone, and read what label files mean; every guess is reported as a choice."""
    settings = session.settings
    outlines = settings.label is not None and bool(outline_files(settings.label))
    scanned = scan_scenes(
        locate(settings.data or ""),
        bands=settings.bands,
        label=None if outlines else settings.label,
        path=settings.path,
        id=settings.id,
        images=[locate(folder) for folder in settings.images],
        group=settings.group_column,
        split=settings.split,
    )
    for choice in scanned.choices:
        session.chose(choice)
    scanned = read_labels(session, scanned)
    return replace(scanned, findings=[replace(finding, stage="scan") for finding in scanned.findings])


def open_scenes(
    session: Session, scanned: ScannedScenes, *, pool: HandlePool, threads: int, same_bands: bool
) -> tuple[list[SceneFacts], list[Finding]]:
    """Open every scene once, in the order of the scan: those that can be used, and all findings so far. None is a `DataError`.

    With `same_bands` only the scenes whose bands are those of most are kept: a network takes one set of bands. Tiles of other
    bands may lie beside each other, and are only reported.
    """
    settings = session.settings

    def inspect(scene: Scene, bands: Sequence[str] = settings.bands) -> SceneFacts:
        return inspect_scene(scene, pool=pool, bands=bands, grid=settings.grid, resampling=settings.resampling)

    opened, broken = _each(inspect, scanned.scenes, scanned.scenes, threads=threads, stage="inspect")
    if same_bands and {one.band_names for one in opened.values()} == {("b1",), RGB}:  # grey photos among coloured ones
        grey = [one.scene for one in opened.values() if one.num_bands == 1 and one.is_photo]
        coloured, more = _each(partial(inspect, bands=RGB), grey, grey, threads=threads, stage="inspect")
        opened, broken = opened | coloured, broken + more
        session.chose(Choice("bands", ",".join(RGB), f"{format_count(len(grey), 'grey photo')} among coloured ones"))
    facts, differing = _compare_bands(list(opened.values()), same_bands=same_bands)
    cut = [finding for one in facts if (finding := _cut_scene(one)) is not None]
    findings = [*scanned.findings, *broken, *differing, *cut]
    require_scenes(facts, findings, settings.data or "")
    return facts, findings


def measure_scales(
    facts: Sequence[SceneFacts], how: str, *, pool: HandlePool, threads: int, known: Mapping[str, SceneScale] | None = None
) -> tuple[dict[str, SceneScale], list[Finding]]:
    """What each scene's bands are divided by, by its id, and a finding for each scene that breaks on the way.

    Scenes in `known` are not read again.
    """

    inner = max(1, threads // max(1, len(facts)))

    def measure(scene: SceneFacts) -> SceneScale:
        return (known or {}).get(scene.scene_id) or measure_scale(scene, how, pool=pool, threads=inner)

    return _each(measure, facts, [one.scene for one in facts], threads=threads, stage="scale")


def _each(
    run: Callable[[Item], SceneResult], items: Sequence[Item], scenes: Sequence[Scene], *, threads: int, stage: str
) -> tuple[dict[str, SceneResult], list[Finding]]:
    """What `run` gives for each item, by the id of its scene, in their order; a scene that breaks becomes a finding."""

    def attempt(item: Item) -> SceneResult | SceneError:
        try:
            return run(item)
        except SceneError as error:
            return error

    results: dict[str, SceneResult] = {}
    findings = []
    for scene, result in zip(scenes, map_ahead(attempt, items, threads=threads, ahead=4 * max(1, threads)), strict=True):
        if isinstance(result, SceneError):
            findings.append(broken_scene(scene, result, stage=stage))
        else:
            results[scene.scene_id] = result
    return results, findings


def broken_scene(scene: Scene, error: SceneError | str, *, stage: str, path: str = "", fix: str = "") -> Finding:
    """The finding for a scene that cannot be used, with the file to blame."""
    if isinstance(error, SceneError):
        path, fix = error.path, error.try_
    reason = f"{error.what}: {error.why}" if isinstance(error, SceneError) else error
    return Finding(
        "broken-scene",
        f"scene {scene.scene_id} is set aside: {reason}",
        severity="error",
        path=path or scene.paths[0],
        stage=stage,
        evidence={"scene": scene.scene_id, "reason": reason},
        fix=fix or "mend the file and run the same command again",
    )


def set_aside(findings: Sequence[Finding]) -> list[QuarantineRow]:
    """The entries of `quarantine.csv` for scenes that findings keep out, each with the first reason."""
    entries: dict[str, QuarantineRow] = {}
    for finding in findings:
        if finding.severity == "error":
            scene, path = str(finding.evidence.get("scene") or finding.path or ""), finding.path or ""
            reason = str(finding.evidence.get("reason", finding.message))
            entries.setdefault(scene, QuarantineRow(scene, path, finding.stage, reason))
    return list(entries.values())


def warn_of(session: Session, findings: Sequence[Finding]) -> None:
    """Report findings at once, for commands whose result does not list them."""
    for finding in findings:
        if finding.severity != "info":
            session.warn(finding.message)


def require_scenes(facts: Sequence[SceneFacts], findings: Sequence[Finding], data: str) -> None:
    """Without a single scene there is nothing to do; the error gives every known reason."""
    if not facts:
        reasons = [f"{entry.sample_id} ({entry.reason})" for entry in set_aside(findings)]
        found = f"{format_count(len(reasons), 'scene')} found, and none could be read: {list_some(reasons, limit=3)}"
        raise DataError(
            f"no scene in {data} can be used",
            code="no-usable-scene",
            why=found if reasons else "no scene was found there",
            try_="give a folder or table of band files, a multi-band file or a large image; --bands names unusual bands",
        )


def _cut_scene(facts: SceneFacts) -> Finding | None:
    """A finding if a good part of a scene is lost because its bands do not cover the same ground."""
    covered = {band.name: bounds_of(band.own) for band in facts.bands}
    largest = max(bounds.area for bounds in covered.values())
    kept = bounds_of(facts.grid).area / largest if largest > 0 else 1.0
    if kept >= 1 - _LOST_SHARE:
        return None
    usual = Counter(covered.values()).most_common(1)[0][0]
    odd = [name for name, bounds in covered.items() if bounds != usual] or list(covered)
    path = next(band.path for band in facts.bands if band.name == odd[0])
    return Finding(
        "bands-cover-less",
        f"scene {facts.scene_id} is cut to {kept:.0%} of what its largest band covers: {list_some(odd)} "
        f"{'lies' if len(odd) == 1 else 'lie'} elsewhere than the others ({Path(path).name})",
        path=path,
        evidence={
            "scene": facts.scene_id,
            "kept_share": round(kept, 4),
            "bounds": {name: list(b) for name, b in covered.items()},
        },
        fix="only the ground that all bands cover is used: mend the place of that file, or leave the band out with --bands",
    )


def _compare_bands(facts: list[SceneFacts], *, same_bands: bool) -> tuple[list[SceneFacts], list[Finding]]:
    counts = Counter(one.band_names for one in facts)
    if len(counts) < 2:
        return facts, []
    if not same_bands:
        ids = {bands: [one.scene_id for one in facts if one.band_names == bands] for bands in counts}
        kinds = [f"{','.join(bands)} in {list_some(scenes, limit=2)}" for bands, scenes in ids.items()]
        message = f"the scenes do not have the same bands: {list_some(kinds, limit=4)}"
        return facts, [Finding("bands-differ", message, "warning", fix="name the bands to use: --bands B2,B3,B4")]
    usual = counts.most_common(1)[0][0]
    findings = [
        Finding(
            "bands-differ",
            f"scene {one.scene_id} is set aside: its bands are {', '.join(one.band_names)}, not {', '.join(usual)}",
            severity="error",
            path=one.scene.paths[0],
            evidence={"scene": one.scene_id},
            fix="name bands that every scene has with --bands",
        )
        for one in facts
        if one.band_names != usual
    ]
    return [one for one in facts if one.band_names == usual], findings


class _Header(NamedTuple):
    """A band as its file has it: its block in the file's pixels, its CRS, and whether the file has a place on the map."""

    band: BandFacts
    crs: Any
    placed: bool


def inspect_scene(
    scene: Scene, *, pool: HandlePool, bands: Sequence[str] = (), grid: str = "finest", resampling: str = "bilinear"
) -> SceneFacts:
    """Open every file of `scene` once and say how its pixels are read, for `bands` in that order (none: all there are).

    `grid` is finest, coarsest, a band's name or a pixel size; `resampling` is how bands of another grid come onto it.
    """
    stamps = tuple(stamp_file(path) for path in scene.paths)
    headers = _open_bands(scene, bands, pool)
    first = headers[0]
    for other in headers[1:]:
        if not _same_crs(first.crs, other.crs) or first.placed != other.placed:
            raise SceneError(
                f"{other.band.path} lies in another coordinate system than {first.band.path}",
                code="crs-differs",
                why=f"the first is in {_spell_crs(other)}, the second in {_spell_crs(first)}",
                try_="warp one of them with gdalwarp -t_srs, or take the scene out; bands are not reprojected in silence",
                path=other.band.path,
            )
    paths = {band.name: band.path for band, _, _ in headers}
    if first.placed:  # of equal systems that are spelled differently, the first stands for all
        own = {band.name: replace(band.own, crs=first.band.own.crs) for band, _, _ in headers}
    else:
        own = scale_to_pixels({band.name: (band.own.height, band.own.width) for band, _, _ in headers}, paths=paths)
    position = find_band(grid, list(own))  # a band's name as the files spell it; anything else as it is
    chosen = choose_grid(own, grid if position is None else list(own)[position], paths=paths)
    placed = tuple(_on_grid(band, own[band.name], chosen) for band, _, _ in headers)
    label = _inspect_label(scene.label, first, chosen, pool) if scene.label is not None else None
    content = digest([[os.path.basename(stamp.path), stamp.size_bytes, stamp.mtime_ns] for stamp in stamps])  # noqa: PTH119
    return SceneFacts(scene, chosen, placed, content, stamps, label, resampling)


def _open_bands(scene: Scene, wanted: Sequence[str], pool: HandlePool) -> list[_Header]:
    if scene.file is not None:
        with pool.open(scene.file) as dataset:
            in_colour = dataset.count <= 2 and bool({*RGB[1:]} & {*wanted}) and dataset.driver in _PHOTO_DRIVERS
            as_rgb = _by_palette(dataset) or (in_colour and dataset.dtypes[0] == "uint8")
            there = _name_bands(dataset, scene.file, as_rgb=as_rgb)
            names, by_number = [band.name for band in there], {str(band.number): band.name for band in there}
            # `3` and `b3` mean the third band of a file where no band is called so
            wanted = [
                name if find_band(name, names) is not None else by_number.get(name.lower().lstrip("b"), name) for name in wanted
            ]
            return _read_headers(dataset, _choose(there, wanted, scene.file), as_rgb=as_rgb)
    headers = []
    for band in _choose(scene.bands, wanted, scene.scene_id):
        with pool.open(band.path) as dataset:
            headers += _read_headers(dataset, [band], as_rgb=_by_palette(dataset))
    return headers


def _name_bands(dataset: Any, path: str, *, as_rgb: bool) -> list[BandFile]:
    """The bands of a file by their descriptions, or b1, b2, … where those do not tell them apart; alpha is a mask, not a band."""
    numbers = [1, 2, 3] if as_rgb else _image_bands(dataset)
    names = [f"b{number}" for number in numbers]
    if len(numbers) <= dataset.count:
        described = [(dataset.descriptions[number - 1] or "").strip() for number in numbers]
        names = described if all(described) and len(set(described)) == len(described) else names
    return [BandFile(name, path, number) for name, number in zip(names, numbers, strict=True)]


def _image_bands(dataset: Any) -> list[int]:
    """Numbers of the bands that hold a picture, without alpha."""
    from rasterio.enums import ColorInterp

    return [number for number, kind in enumerate(dataset.colorinterp, start=1) if kind != ColorInterp.alpha]


def _by_palette(dataset: Any) -> bool:
    """Whether it is a photo whose palette is spelled out in red, green and blue."""
    from rasterio.enums import ColorInterp

    return dataset.driver in _PHOTO_DRIVERS and dataset.count == 1 and dataset.colorinterp[0] == ColorInterp.palette


def _choose(there: Sequence[BandFile], wanted: Sequence[str], where: str) -> list[BandFile]:
    """The `wanted` of the bands that are there, in the order wanted, by their own names."""
    if not wanted:
        return list(there)
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


def _read_headers(dataset: Any, bands: Sequence[BandFile], *, as_rgb: bool) -> list[_Header]:
    path, height, width = bands[0].path, dataset.height, dataset.width
    turned = _orientation(dataset, path) if dataset.driver in _PHOTO_DRIVERS else 1
    if turned != 1 or as_rgb:  # decoded whole and turned upright; from 5 on it lies on its side
        height, width = (width, height) if turned >= 5 else (height, width)
        own = Grid(width, height, (1.0, 0.0, 0.0, 0.0, 1.0, 0.0), "")
        size = (height, width)
        return [
            _Header(BandFacts(one.name, path, one.number, "uint8", None, 1.0, 0.0, size, False, own, upright=True), None, False)
            for one in bands
        ]
    placed = dataset.crs is not None or not dataset.transform.is_identity
    own = Grid(width, height, tuple(dataset.transform)[:6], _as_wkt(dataset.crs))
    headers = []
    for band in bands:
        place, dtype = band.number - 1, dataset.dtypes[band.number - 1]
        if "complex" in dtype:
            raise SceneError(
                f"{path} is complex",
                code="complex-raster",
                why=f"band {band.number} holds numbers of the kind {dtype}",
                try_="store magnitude or phase as a real band",
                path=path,
            )
        facts = BandFacts(
            name=band.name,
            path=path,
            number=band.number,
            dtype=dtype,
            nodata=_nodata(dataset, band.number),
            scale=float(dataset.scales[place]),
            offset=float(dataset.offsets[place]),
            block=dataset.block_shapes[place],
            warped=False,
            own=own,
            masked=_is_masked(dataset, band.number),
        )
        headers.append(_Header(facts, dataset.crs, placed))
    return headers


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


def _same_crs(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return bool(one == other) or (one.to_epsg() is not None and one.to_epsg() == other.to_epsg())


def _spell_crs(header: _Header) -> str:
    if header.crs is None:
        return "none, only with a transform" if header.placed else "none at all"
    return str(header.crs.to_string())[:80]


def _as_wkt(crs: Any) -> str:
    return str(crs.to_wkt()) if crs is not None else ""


def _on_grid(band: BandFacts, own: Grid, grid: Grid) -> BandFacts:
    """The band as the scene uses it; `block` is then counted in pixels of the scene's grid."""
    down = abs(own.transform[4] / grid.transform[4]) if is_upright(own.transform) else 1.0
    across = abs(own.transform[0] / grid.transform[0]) if is_upright(own.transform) else 1.0
    block = (max(1, round(band.block[0] * down)), max(1, round(band.block[1] * across)))
    origin = origin_in(own, grid)
    if band.upright and origin != (0, 0):
        raise unreadable(
            band.path, "a photo that is stored turned, or by palette, cannot be brought onto the grid of other files"
        )
    return replace(band, block=block, warped=origin is None, own=own, origin=origin or (0, 0))


def _inspect_label(path: str, first: _Header, grid: Grid, pool: HandlePool) -> LabelFacts:
    """The label has one band of numbers and either the scene's pixels, or another place on the map from which to resample."""
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
    from rasterio.warp import transform_bounds

    label, scene = bounds_of(own), bounds_of(grid)
    if own.crs and own.crs != grid.crs:
        label = Bounds(*transform_bounds(own.crs, grid.crs, *label))
    if not label.meets(scene):
        raise no_overlap(path, label, "its scene", scene)
    return False
