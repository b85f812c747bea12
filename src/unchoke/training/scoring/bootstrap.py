"""Intervals over resampled samples, without a loop over resamples.

In: a matrix with one row per sample, whose weighted column sums are all a set of figures needs; and which samples are alike (of
one group). Out: values of each figure per resample, and an `Interval` per figure. A resample is a vector of counts, so a block of
resamples is one matrix product. Memory is bounded by the block, whatever the number of samples. Where samples are grouped, whole
groups are drawn: photos of one group are alike, and count as less than so many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.fingerprint import hash_int
from unchoke.core.metrics import VALUES, find_metric
from unchoke.core.record import Interval
from unchoke.training.scoring.figures import bin_numbers, confidences, log_losses
from unchoke.training.scoring.proportions import student_quantile

Sums = NDArray[np.float64]
Figures = dict[str, Sums]
_BLOCK_DRAWS = 1 << 21
_FEWEST = 5
"""With fewer samples than this, resampling shows a false certainty: no interval is given."""


def sum_units(columns: NDArray[np.float32], groups: NDArray[np.int64] | None) -> NDArray[np.float32]:
    """Rows of one group added up; every sample by itself where there are no groups."""
    if groups is None:
        return columns
    numbers = np.unique(groups, return_inverse=True)[1]
    sums = np.zeros((int(numbers.max()) + 1, columns.shape[1]))
    np.add.at(sums, numbers, columns)
    return sums.astype(np.float32)


def draw(
    figures: Callable[[Sums, Any], Figures], units: NDArray[np.float32], layout: Any, *, seed: int, num_resamples: int
) -> Figures:
    """Each figure per resample of `units`; nothing where there are too few. The same seed and count give the same resamples."""
    if num_resamples == 0 or len(units) < _FEWEST:
        return {}
    return figures(_resampled_sums(units, seed=seed, num_resamples=num_resamples), layout)


def intervals(points: dict[str, float | None], drawn: Figures, *, num_units: int) -> dict[str, Interval]:
    """Intervals around `points`, from what was drawn of each."""
    return {name: interval(name, value, drawn.get(name), num_units=num_units) for name, value in points.items()}


def interval(name: str, value: float | None, drawn: Sums | None, *, num_units: int) -> Interval:
    """Percentiles set wider as Student's t is (Hesterberg); and for values not less than a t interval of the logarithm of the
    figure's distance from its end (1 for R², 0 for errors), which small samples need.
    """
    point = _finite(value)
    known = np.empty(0) if drawn is None else drawn[np.isfinite(drawn)]
    if point is None or len(known) == 0:
        return Interval(point, None, None)
    wider = math.sqrt(num_units / (num_units - 1)) * student_quantile(num_units - 1)
    tail = 100 * NormalDist().cdf(-wider)
    low, high = (float(limit) for limit in np.percentile(known, [tail, 100 - tail]))
    more = _log_limits(name, point, known, wider)
    return Interval(point, min(low, point, *more), max(high, point, *more))


def _log_limits(name: str, point: float, drawn: Sums, wider: float) -> tuple[float, ...]:
    metric = find_metric(name)
    if VALUES not in metric.tasks or (metric.low is None) == (metric.high is None):
        return ()
    end, side = (metric.low, 1.0) if metric.low is not None else (metric.high, -1.0)
    assert end is not None
    away, away_drawn = side * (point - end), side * (drawn - end)
    if away <= 0 or (away_drawn <= 0).any():
        return ()
    factor = math.exp(min(50.0, wider * float(np.log(away_drawn).std())))
    return end + side * away / factor, end + side * away * factor


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _resampled_sums(columns: NDArray[np.float32], *, seed: int, num_resamples: int) -> Sums:
    """Column sums (resamples, columns) over samples drawn with replacement."""
    count = len(columns)
    generator = np.random.Generator(np.random.PCG64(hash_int(seed, "bootstrap")))
    per_block = max(1, _BLOCK_DRAWS // count)
    sums = np.empty((num_resamples, columns.shape[1]))
    for start in range(0, num_resamples, per_block):
        rows = min(per_block, num_resamples - start)
        drawn = generator.integers(0, count, size=(rows, count), dtype=np.int32)
        drawn += (np.arange(rows, dtype=np.int32) * count)[:, None]
        weights = np.bincount(drawn.ravel(), minlength=rows * count).reshape(rows, count).astype(np.float32)
        sums[start : start + rows] = weights @ columns
    return sums


@dataclass(frozen=True)
class ClassTally:
    """Columns for classes: hits, truths and predictions per class, the log loss, and confidence minus hit per bin."""

    columns: NDArray[np.float32]
    layout: tuple[int, int]

    @classmethod
    def of(cls, logits: NDArray[np.float32], targets: NDArray[np.int64], *, num_bins: int) -> ClassTally:
        classes = np.eye(logits.shape[1], dtype=np.float32)
        predicted = logits.argmax(axis=1)
        hits = predicted == targets
        confidence = confidences(logits)
        bins = np.eye(num_bins, dtype=np.float32)[bin_numbers(confidence, num_bins=num_bins)]
        losses = log_losses(logits, targets)[:, None]
        gaps = bins * (confidence - hits)[:, None]
        parts = [classes[targets] * hits[:, None], classes[targets], classes[predicted], losses, gaps]
        return cls(np.concatenate(parts, axis=1, dtype=np.float32), (logits.shape[1], num_bins))


def class_figures(sums: Sums, layout: tuple[int, int]) -> Figures:
    """Accuracy, balanced accuracy, macro F1, log loss and ECE from the sums of a `ClassTally`."""
    num_classes, _ = layout
    hits, truths, guesses = (sums[:, num_classes * part : num_classes * (part + 1)] for part in range(3))
    total = truths.sum(axis=1)
    either = truths + guesses
    return {
        "accuracy": hits.sum(axis=1) / total,
        "balanced_accuracy": (hits / np.maximum(truths, 1)).sum(axis=1) / (truths > 0).sum(axis=1),
        "macro_f1": (2 * hits / np.maximum(either, 1)).sum(axis=1) / (either > 0).sum(axis=1),
        "log_loss": sums[:, 3 * num_classes] / total,
        "ece": np.abs(sums[:, 3 * num_classes + 1 :]).sum(axis=1) / total,
    }


@dataclass(frozen=True, eq=False)
class ValueLayout:
    """What the columns of a `ValueTally` are about. `offsets` is each target's mean less the weighted mean of all of them."""

    names: tuple[str, ...]
    weights: Sums | None
    offsets: Sums


@dataclass(frozen=True)
class ValueTally:
    """Columns for values: per target the squared and absolute error, the value (less its mean) and its square; and a 1."""

    columns: NDArray[np.float32]
    layout: ValueLayout

    @classmethod
    def of(
        cls,
        outputs: NDArray[np.float32],
        targets: NDArray[Any],
        *,
        names: tuple[str, ...],
        weights: Sequence[float] | None = None,
    ) -> ValueTally:
        truth = targets.astype(np.float64)
        means = truth.mean(axis=0)
        errors, centred = outputs - truth, truth - means
        parts = [errors**2, np.abs(errors), centred, centred**2, np.ones((len(truth), 1))]
        shares = None if weights is None else np.array(weights, dtype=np.float64)
        offsets = means - np.average(means, weights=shares)
        return cls(np.concatenate(parts, axis=1).astype(np.float32), ValueLayout(names, shares, offsets))


def value_figures(sums: Sums, layout: ValueLayout) -> Figures:
    """R², MAE and RMSE per target and averaged, and both kinds of weighted R² where there are weights, from the sums of a
    `ValueTally`; NaN where a resample is constant.
    """
    num = len(layout.names)
    squares, absolutes, values, value_squares = (sums[:, num * part : num * (part + 1)] for part in range(4))
    total = sums[:, -1:]
    r2 = _r2(squares, value_squares, value_squares - values**2 / total)
    per_target = {"r2": r2, "mae": absolutes / total, "rmse": np.sqrt(squares / total)}
    figures = {f"{figure}/{name}": array[:, i] for figure, array in per_target.items() for i, name in enumerate(layout.names)}
    figures |= {figure: _row_means(array) for figure, array in per_target.items()}
    if layout.weights is not None:
        figures["weighted_r2"] = _weighted_r2(squares, values, value_squares, total, layout.weights, layout.offsets)
        figures["weighted_mean_r2"] = _row_means(r2, layout.weights)
    return figures


def _r2(squares: Sums, scale: Sums, spread: Sums) -> Sums:
    """1 − squares / spread; NaN where the spread is rounding only."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(spread > 1e-6 * np.maximum(scale, np.finfo(np.float64).tiny), 1 - squares / spread, np.nan)


def _weighted_r2(squares: Sums, values: Sums, value_squares: Sums, total: Sums, weights: Sums, offsets: Sums) -> Sums:
    """1 − Σ w·(y − ŷ)² / Σ w·(y − ȳ)² over all pairs, ȳ being each resample's own weighted mean. Values come less their target's
    mean; `offsets` puts them all on one scale.
    """
    sum_of_squares = (value_squares + 2 * offsets * values + total * offsets**2) @ weights
    spread = sum_of_squares - ((values + total * offsets) @ weights) ** 2 / (total[:, 0] * weights.sum())
    return _r2(squares @ weights, sum_of_squares, spread)


def _row_means(array: Sums, weights: Sums | None = None) -> Sums:
    """The mean of each row over what is known, weighted where columns have weights; NaN where nothing is."""
    shares = np.isfinite(array) * (np.ones(array.shape[1]) if weights is None else weights)
    totals = shares.sum(axis=1)
    return np.where(totals > 0, (np.where(shares > 0, array, 0) * shares).sum(axis=1) / np.where(totals > 0, totals, 1), np.nan)
