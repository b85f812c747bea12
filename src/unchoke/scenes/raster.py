"""Pixels of scenes: a box in, physical values and validity out, whatever files the bands lie in.

A box equals the same part of the whole, for resampled bands too. Each band is read with one call per box, straight into the
result, so a box that follows the files' blocks (`block_rows`) decodes each block once. A file that breaks while it is read, or
is not the one that was inspected, raises a `SceneError` that names it. Normalising is done by `scale`, masks by `mask_sources`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from rasterio.windows import Window

from unchoke.core.boxes import Box
from unchoke.scenes.handles import HandlePool, stamp_file, unreadable
from unchoke.scenes.resample import Taps, plan_taps, resample
from unchoke.scenes.scene_facts import IGNORE, BandFacts, Grid, LabelFacts, SceneError, SceneFacts

_EXACT_IN_FLOAT32 = frozenset({"uint8", "int8", "uint16", "int16", "float32"})
_TALLEST_STRIP = 4096


def read_box(
    facts: SceneFacts,
    box: Box,
    *,
    pool: HandlePool,
    dtype: Literal["float32", "raw"] = "float32",
    out: NDArray[Any] | None = None,
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """(B, h, w) values of `box` and (h, w) whether each pixel is valid in every band.

    float32 gives physical values (scale and offset applied); "raw" the files' own numbers in the dtype they have in common,
    resampled bands rounded. Pixels that are not valid (nodata, masked, not finite, beyond the scene) hold 0 in every band. `out`
    is an array of that shape and dtype to fill.
    """
    kind = np.dtype(np.float32) if dtype == "float32" else raw_dtype(facts)
    shape = (facts.num_bands, box.height, box.width)
    if out is None:
        out = np.empty(shape, dtype=kind)
    elif out.shape != shape or out.dtype != kind:
        raise ValueError(f"out is {out.shape} of {out.dtype}, where {shape} of {kind} is read")
    valid = np.zeros((box.height, box.width), dtype=np.bool_)
    inside = box.common(Box(0, 0, facts.grid.height, facts.grid.width))
    if inside is None:
        out[...] = 0
        return out, valid
    rows, columns = inside.slices_in(box)
    if inside != box:
        out[...] = 0
    valid[rows, columns] = True
    target, target_valid = out[:, rows, columns], valid[rows, columns]
    _read_bands(facts, inside, pool, target, target_valid)
    if dtype == "float32":
        apply_scales(facts.bands, target)
    if not target_valid.all():
        target[:, ~target_valid] = 0
    return out, valid


def read_label(facts: SceneFacts, box: Box, *, pool: HandlePool, ignore: int | None = None) -> NDArray[np.uint8]:
    """(h, w) labels of `box` on the scene's grid, by nearest neighbour where the label lies on another one.

    255 (`IGNORE`) stands beyond the scene, where the raster has no value, and for the value `ignore`. Any other value above
    255, below 0 or with a fraction is refused.
    """
    if facts.label is None:
        raise ValueError(f"{facts.scene_id} has no label raster")
    labels = np.full((box.height, box.width), IGNORE, dtype=np.uint8)
    inside = box.common(Box(0, 0, facts.grid.height, facts.grid.width))
    if inside is not None:
        labels[inside.slices_in(box)] = _read_label(facts, facts.label, inside, pool, ignore)
    return labels


def block_rows(facts: SceneFacts) -> int:
    """Rows of the grid that whole blocks of every band fill: strips of a multiple of this decode no block twice.

    Where the bands' blocks have no reasonable multiple in common it is the tallest block; never more than the scene has.
    """
    heights = {band.block[0] for band in facts.bands}
    rows = math.lcm(*heights)
    return min(rows if rows <= _TALLEST_STRIP else max(heights), facts.grid.height)


def raw_dtype(facts: SceneFacts) -> np.dtype[Any]:
    """The smallest dtype that holds the stored numbers of every band."""
    return np.result_type(*(np.dtype(band.dtype) for band in facts.bands))


@contextmanager
def _unchanged(facts: SceneFacts, path: str) -> Iterator[None]:
    """Reading `path` inside must meet the file that was inspected; a change is told before what it led to."""
    try:
        yield
    except (SceneError, ValueError, IndexError):
        _refuse_changed(facts, path)
        raise
    _refuse_changed(facts, path)


def _refuse_changed(facts: SceneFacts, path: str) -> None:
    before, now = next(stamp for stamp in facts.stamps if stamp.path == path), stamp_file(path)
    if now != before:
        raise SceneError(
            f"{path} was changed while it was in use",
            code="scene-changed",
            why=f"it had {before.size_bytes:,} bytes when it was inspected and has {now.size_bytes:,} now, or another time",
            try_="run the command again once the file is complete",
            path=path,
        )


def _read_bands(facts: SceneFacts, box: Box, pool: HandlePool, out: NDArray[Any], valid: NDArray[np.bool_]) -> None:
    """Stored values of every band into `out`, and False into `valid` wherever one of them has none."""
    first = 0
    for (path, _), run in groupby(facts.bands, key=lambda band: (band.path, band.warped)):
        bands = list(run)  # neighbouring bands of one file: pixels stored band by band in one block are decoded once
        part = out[first : first + len(bands)]
        first += len(bands)
        with _unchanged(facts, path):
            if bands[0].upright:
                pixels, grid = pool.photo(path), facts.grid
                if pixels.shape[:2] != (grid.height, grid.width):
                    size = f"{pixels.shape[1]}×{pixels.shape[0]}"
                    raise unreadable(path, f"{size} pixels came out, not {grid.width}×{grid.height}")
                for target, band in zip(part, bands, strict=True):
                    target[...] = pixels[box.top : box.bottom, box.left : box.right, band.number - 1]
            elif bands[0].warped:
                _read_warped(bands, facts, box, pool, part, valid)
            else:
                _read_plain(bands, box, pool, part, valid)


def _read_plain(bands: Sequence[BandFacts], box: Box, pool: HandlePool, out: NDArray[Any], valid: NDArray[np.bool_]) -> None:
    """Bands whose pixels are the scene's, read into place."""
    top, left = bands[0].origin
    window = Window(box.left + left, box.top + top, box.width, box.height)
    with pool.open(bands[0].path) as dataset:
        numbers = [band.number for band in bands]
        if out.dtype == np.float32 and any(band.dtype not in _EXACT_IN_FLOAT32 for band in bands):
            stored = dataset.read(numbers, window=window)  # nodata is compared before float32 rounds
            _compare_nodata(bands, stored, valid)
            out[...] = stored
        else:
            dataset.read(numbers, window=window, out=out)
            _compare_nodata(bands, out, valid)
        _read_masks(bands, dataset, window, valid)


def _compare_nodata(bands: Sequence[BandFacts], stored: NDArray[Any], valid: NDArray[np.bool_]) -> None:
    for band, pixels in zip(bands, stored, strict=True):
        if np.dtype(band.dtype).kind in "fc":  # integers are finite, also where they were read as floats
            valid &= np.isfinite(pixels)
        if band.nodata is not None and not math.isnan(band.nodata):
            valid &= pixels != _as_stored(band.nodata, pixels.dtype)


def _as_stored(nodata: float, dtype: np.dtype[Any]) -> Any:
    """The nodata value as the pixels spell it: a whole number compares fast with integers, and float32 has its own rounding."""
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return dtype.type(nodata)
    return int(nodata) if nodata.is_integer() else nodata


def _read_masks(bands: Sequence[BandFacts], dataset: Any, window: Window, valid: NDArray[np.bool_]) -> None:
    """Mask and alpha bands belong to the whole file: one read answers for all its bands."""
    masked = [band.number for band in bands if band.masked]
    if masked:
        valid &= dataset.read_masks(masked[0], window=window) != 0


def _read_warped(
    bands: Sequence[BandFacts], facts: SceneFacts, box: Box, pool: HandlePool, out: NDArray[Any], valid: NDArray[np.bool_]
) -> None:
    """Bands of another grid: the source window that the box needs, resampled. All bands of one file share their grid."""
    rows, columns = _taps(bands[0].own, facts.grid, box, facts.resampling)
    window = Window(columns.start, rows.start, columns.length, rows.length)
    with pool.open(bands[0].path) as dataset:
        for target, band in zip(out, bands, strict=True):
            stored = dataset.read(band.number, window=window)
            there = np.ones(stored.shape, dtype=np.bool_)
            _compare_nodata([band], stored[None], there)
            _read_masks([band], dataset, window, there)
            pixels, kept = resample(stored.astype(np.float32, copy=False), there, rows=rows, columns=columns)
            _store(pixels, target)
            if kept is not None:
                valid &= kept


def _taps(own: Grid, grid: Grid, box: Box, how: str) -> tuple[Taps, Taps]:
    a, _, c, _, e, f = grid.transform
    own_a, _, own_c, _, own_e, own_f = own.transform
    rows = plan_taps(box.top, box.height, place=(f, e), source=(own_f, own_e, own.height), how=how)
    columns = plan_taps(box.left, box.width, place=(c, a), source=(own_c, own_a, own.width), how=how)
    return rows, columns


def _store(pixels: NDArray[np.float32], target: NDArray[Any]) -> None:
    """Into an array of floats as they are; into integers rounded, and kept within their range."""
    if target.dtype.kind == "f":
        target[...] = pixels
        return
    limits = np.iinfo(target.dtype)
    target[...] = np.clip(np.rint(pixels.astype(np.float64)), limits.min, limits.max).astype(target.dtype)


def apply_scales(bands: Sequence[BandFacts], values: NDArray[np.float32]) -> None:
    """Stored values (B, h, w) to physical ones, in place."""
    for band, pixels in zip(bands, values, strict=True):
        if band.scale != 1.0:
            pixels *= np.float32(band.scale)
        if band.offset != 0.0:
            pixels += np.float32(band.offset)


def _read_label(facts: SceneFacts, label: LabelFacts, box: Box, pool: HandlePool, ignore: int | None) -> NDArray[np.uint8]:
    window, taps, onto = Window(box.left, box.top, box.width, box.height), None, None
    if label.own is not None:
        taps = _taps(label.own, facts.grid, box, "nearest")
        window = Window(taps[1].start, taps[0].start, taps[1].length, taps[0].length)
    elif not label.aligned:
        onto = facts.grid
    with _unchanged(facts, label.path), pool.open(label.path, onto=onto) as dataset:
        stored = dataset.read(1, window=window)
        hidden = label.masked or onto is not None
        unlabelled = dataset.read_masks(1, window=window) == 0 if hidden else np.zeros(stored.shape, dtype=np.bool_)
    if taps is not None:  # beyond its own pixels there is no label
        (rows, columns), beyond = taps, ~(taps[0].inside[:, None] & taps[1].inside[None, :])
        stored = stored[rows.nearest][:, columns.nearest]
        unlabelled = unlabelled[rows.nearest][:, columns.nearest] | beyond
    if stored.dtype.kind == "f":
        unlabelled |= ~np.isfinite(stored)
    for value in (label.nodata, None if ignore is None else float(ignore)):
        if value is not None and not math.isnan(value):
            unlabelled |= stored == _as_stored(value, stored.dtype)
    stored = np.where(unlabelled, stored.dtype.type(0), stored)
    classes = stored.astype(np.uint8) if stored.dtype != np.uint8 else stored
    wrong = classes != stored
    if wrong.any():
        value = stored[wrong][0]
        raise SceneError(
            f"the label {label.path} holds the value {value}",
            code="label-out-of-range",
            why="classes are the whole numbers 0 to 254, and 255 stands for none",
            try_=f"--ignore {int(value)} if it means unlabelled, or number the classes anew",
            path=label.path,
        )
    return np.where(unlabelled, np.uint8(IGNORE), classes)
