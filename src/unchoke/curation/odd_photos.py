"""Photos that stand out by what they show: blank, dark, bright, blurred, tiny, of another shape, or unlike all others.

In: measures, sizes and the nearest rows of every photo. Out: findings. Blank and dark are what they are; blurred, small and
unlike are judged against the other photos of the same data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.curation.data_finding import DataFinding
from unchoke.curation.measure_photos import MeasureTable
from unchoke.data.corrections import DROP, USE, Correction
from unchoke.features.nearest import NearestRows

_BLANK_SHARE, _BLANK_ENTROPY = 0.97, 1.0
_DARK_HIGH, _BRIGHT_LOW = 45.0, 235.0
_BLURRED, _BLURRED_DEVIATIONS = 0.22, 3.5
_TINY_PX, _TINY_SHARE = 32, 0.25
_LONG_RATIO, _LONGER_THAN_USUAL = 3.0, 2.0
_UNLIKE_DEVIATIONS, _UNLIKE_MOST_SHARE, _UNLIKE_NEAREST = 4.0, 0.01, 5
_MAD = 1.4826
Floats = NDArray[Any]


def find_odd_photos(ids: Sequence[str], table: MeasureTable, sizes: NDArray[np.int64], nearest: NearestRows) -> list[DataFinding]:
    """Findings about single photos; a blank one is reported as nothing else."""
    share, entropy = table.column("commonest_share"), table.column("entropy")
    low, high, sharp = table.column("light_low"), table.column("light_high"), table.column("sharpness")
    blank = table.known & ((share >= _BLANK_SHARE) | (entropy <= _BLANK_ENTROPY))
    rest = table.known & ~blank
    textured = rest & (entropy > 2 * _BLANK_ENTROPY)
    middle, spread = robust(sharp[textured])
    blurred = textured & (sharp <= min(_BLURRED, middle - _BLURRED_DEVIATIONS * spread))
    found = [
        _finding("blank", ids[row], f"{100 * share[row]:.0f} % of it is one shade", 0.9, {"commonest_share": share[row]})
        for row in np.flatnonzero(blank).tolist()
    ]
    for row in np.flatnonzero(rest & (high <= _DARK_HIGH)).tolist():
        words = f"99 % of it is darker than {high[row]:.0f} of 255"
        found.append(_finding("dark", ids[row], words, 0.7 - high[row] / 300, {"light_high": high[row]}))
    for row in np.flatnonzero(rest & (low >= _BRIGHT_LOW)).tolist():
        words = f"95 % of it is lighter than {low[row]:.0f} of 255"
        found.append(_finding("bright", ids[row], words, low[row] / 500, {"light_low": low[row]}))
    for row in np.flatnonzero(blurred).tolist():
        words = f"sharpness {sharp[row]:.2f}, where others have about {middle:.2f}"
        figures = {"sharpness": sharp[row], "usual": middle}
        found.append(_finding("blurred", ids[row], words, float(np.clip(0.75 - sharp[row], 0.2, 0.75)), figures))
    return [*found, *_by_size(ids, sizes), *_unlike(ids, nearest, rest)]


def _finding(kind: str, id_: str, words: str, score: float, figures: dict[str, Any], *, drop: bool = True) -> DataFinding:
    evidence = {name: round(float(value), 4) for name, value in figures.items()}
    suggested = (Correction(id_, USE, DROP),) if drop else ()
    return DataFinding(kind, f"{id_!r}: {words}", (id_,), round(float(score), 4), evidence, suggested)


def _by_size(ids: Sequence[str], sizes: NDArray[np.int64]) -> list[DataFinding]:
    short, long = sizes.min(axis=1).astype(np.float64), sizes.max(axis=1).astype(np.float64)
    known = short > 0
    if not known.any():
        return []
    usual, ratio = float(np.median(short[known])), long / np.maximum(short, 1)
    usual_ratio = float(np.median(ratio[known]))
    tiny = known & (short < max(_TINY_PX, _TINY_SHARE * usual)) & (short < usual)
    odd = known & ~tiny & (ratio >= max(_LONG_RATIO, _LONGER_THAN_USUAL * usual_ratio))
    found = []
    for row in np.flatnonzero(tiny).tolist():
        words = f"{sizes[row, 0]}×{sizes[row, 1]} pixels, where the short side is usually {usual:.0f}"
        found.append(_finding("tiny", ids[row], words, 0.5, {"short_px": short[row], "usual_px": usual}, drop=False))
    for row in np.flatnonzero(odd).tolist():
        words = f"{sizes[row, 0]}×{sizes[row, 1]} pixels, {ratio[row]:.1f} to 1"
        found.append(_finding("shape", ids[row], words, 0.35, {"ratio": ratio[row], "usual": usual_ratio}, drop=False))
    return found


def _unlike(ids: Sequence[str], nearest: NearestRows, known: NDArray[np.bool_]) -> list[DataFinding]:
    """Photos whose nearest ones are far: beyond what chance gives, and at most one in a hundred."""
    if nearest.cosines.shape[1] < _UNLIKE_NEAREST or known.sum() < 20:
        return []
    alike = nearest.cosines[:, :_UNLIKE_NEAREST].mean(axis=1)
    middle, spread = robust(alike[known])
    far = (middle - alike) / max(spread, 1e-6)
    least = max(_UNLIKE_DEVIATIONS, float(np.quantile(far[known], 1 - _UNLIKE_MOST_SHARE)))

    found = []
    for row in np.flatnonzero(known & (far >= least)).tolist():
        words = f"unlike all others: cosine {alike[row]:.2f} with the five most like it, usually {middle:.2f}"
        figures = {"cosine": alike[row], "usual": middle, "deviations": far[row]}
        found.append(_finding("outlier", ids[row], words, float(np.clip(0.2 + far[row] / 40, 0, 0.6)), figures, drop=False))
    return found


def robust(values: Floats) -> tuple[float, float]:
    """The median, and the deviation from it as it is for most."""
    if not len(values):
        return 0.0, 0.0
    middle = float(np.median(values))
    return middle, float(_MAD * np.median(np.abs(values - middle)))
