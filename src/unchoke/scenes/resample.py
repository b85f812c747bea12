"""Bands from one upright grid onto another of the same CRS: nearest, bilinear, cubic or average, one axis after the other.

A pixel's value is a fixed sum over fixed source pixels, so it does not depend on the window that is read, to the last bit. Source
pixels that are not valid take no part; a pixel is valid when the source pixel at its centre is. GDAL's warper is not used
here: its sums follow the chunk that it works on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_EDGE_PX = 1e-9


@dataclass(frozen=True)
class Taps:
    """For each target pixel along one axis the source pixels that it is made of, `index` (n, k), and their `weight` (n, k).

    `nearest` (n) is the source pixel at its centre, or the closest to it; `inside` (n) is False where the centre lies beyond the
    source. Positions count from `start`, the first of `length` source pixels needed.
    """

    index: NDArray[np.intp]
    weight: NDArray[np.float32]
    nearest: NDArray[np.intp]
    inside: NDArray[np.bool_]
    start: int
    length: int


def plan_taps(first: int, count: int, *, place: tuple[float, float], source: tuple[float, float, int], how: str) -> Taps:
    """Taps of the target pixels `first` … `first + count`.

    `place` is (origin, step) of the target axis, `source` (origin, step, number of pixels) of the source's. Where the source is
    finer, bilinear and cubic widen over as many source pixels as one target pixel covers, so that nothing is skipped.
    """
    origin, step = place
    source_origin, source_step, source_count = source
    centres = ((origin - source_origin) + step * (np.arange(first, first + count, dtype=np.float64) + 0.5)) / source_step
    unbounded = np.floor(centres + _EDGE_PX).astype(np.intp)
    nearest = np.clip(unbounded, 0, source_count - 1)
    if how == "nearest":
        index, weight = nearest[:, None], np.ones((count, 1))
    else:
        index, weight = _weigh(centres, abs(step / source_step), how)
    index = np.clip(index, 0, source_count - 1)
    start, stop = min(int(index.min()), int(nearest.min())), max(int(index.max()), int(nearest.max())) + 1
    return Taps(index - start, weight.astype(np.float32), nearest - start, unbounded == nearest, start, stop - start)


def _weigh(centres: NDArray[np.float64], ratio: float, how: str) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Source positions and weights that sum to 1; `ratio` is how many source pixels a target pixel covers."""
    widen = max(1.0, ratio)
    reach = {"bilinear": 1.0, "cubic": 2.0, "average": 0.5}[how] * (ratio if how == "average" else widen)
    taps = math.ceil(2 * reach - _EDGE_PX) + (1 if how == "average" or widen > 1 else 0)
    begin = np.floor(centres - reach + (0.0 if how == "average" else 0.5) + _EDGE_PX)
    index = begin[:, None] + np.arange(taps)
    if how == "average":
        low, high = (centres - reach)[:, None], (centres + reach)[:, None]
        weight = np.clip(np.minimum(index + 1, high) - np.maximum(index, low), 0.0, None)
    else:
        distance = np.abs(index + 0.5 - centres[:, None]) / widen
        weight = np.clip(1.0 - distance, 0.0, None) if how == "bilinear" else _cubic(distance)
    return index.astype(np.intp), weight / weight.sum(axis=1, keepdims=True)


def _cubic(distance: NDArray[np.float64]) -> NDArray[np.float64]:
    """The Catmull-Rom kernel, as GDAL's cubic."""
    near = (1.5 * distance - 2.5) * distance * distance + 1.0
    far = ((-0.5 * distance + 2.5) * distance - 4.0) * distance + 2.0
    return np.where(distance <= 1.0, near, np.where(distance < 2.0, far, 0.0))


def resample(
    pixels: NDArray[np.float32], valid: NDArray[np.bool_] | None, *, rows: Taps, columns: Taps
) -> tuple[NDArray[np.float32], NDArray[np.bool_] | None]:
    """The target window from its source window, which begins at the taps' starts; validity likewise (None: all valid).

    Pixels that are not valid hold 0.
    """
    if valid is None or valid.all():
        sums = _sum_axis(_sum_axis(pixels, rows, axis=0), columns, axis=1)
        return sums, None if valid is None else np.ones(sums.shape, dtype=np.bool_)
    present = valid.astype(np.float32)
    sums = _sum_axis(_sum_axis(np.where(valid, pixels, np.float32(0)), rows, axis=0), columns, axis=1)
    weight = _sum_axis(_sum_axis(present, rows, axis=0), columns, axis=1)
    target_valid = valid[rows.nearest][:, columns.nearest]
    whole = _and_axis(_and_axis(valid, rows, axis=0), columns, axis=1)  # every source pixel that counts is valid
    partial = target_valid & ~whole & (np.abs(weight) > 1e-3)
    sums[partial] /= weight[partial]
    unsure = target_valid & ~whole & ~partial  # cubic weights may cancel out; the pixel itself is there
    sums[unsure] = pixels[rows.nearest][:, columns.nearest][unsure]
    sums[~target_valid] = 0
    return sums, target_valid


def _sum_axis(pixels: NDArray[np.float32], taps: Taps, *, axis: int) -> NDArray[np.float32]:
    """Σ weight · source along one axis, in the order of the taps."""
    shape = (-1, 1) if axis == 0 else (1, -1)
    total = np.take(pixels, taps.index[:, 0], axis=axis)
    if taps.index.shape[1] == 1:
        return total
    total *= taps.weight[:, 0].reshape(shape)
    for tap in range(1, taps.index.shape[1]):
        part = np.take(pixels, taps.index[:, tap], axis=axis)
        part *= taps.weight[:, tap].reshape(shape)
        total += part
    return total


def _and_axis(valid: NDArray[np.bool_], taps: Taps, *, axis: int) -> NDArray[np.bool_]:
    shape = (-1, 1) if axis == 0 else (1, -1)
    total: NDArray[np.bool_] = np.take(valid, taps.index[:, 0], axis=axis) | (taps.weight[:, 0] == 0).reshape(shape)
    for tap in range(1, taps.index.shape[1]):
        total &= np.take(valid, taps.index[:, tap], axis=axis) | (taps.weight[:, tap] == 0).reshape(shape)
    return total
