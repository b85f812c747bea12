"""95 % intervals: Wilson's for shares, a bootstrap for other figures, and split-conformal ones around predicted values.

In: one row per sample, whose weighted column sums are all that a set of figures needs; and which samples are of one group.
Out: an `Interval` per figure. A resample is a vector of counts, so a block of resamples is one matrix product, and memory is
bounded by the block. Where samples are grouped, whole groups are drawn: photos of one group count as fewer than their number.
Resampling alone would show a false certainty for few samples, so accuracy has Wilson's interval, and balanced accuracy and macro
F1 the wider one of both. Why these intervals and not others: docs/claims-history.md has their coverage, measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.fingerprint import hash_int
from unchoke.core.metrics import VALUES, find_metric
from unchoke.core.record import Interval, ValueIntervalRecord
from unchoke.training.scoring.figures import ECE_BINS, bin_numbers, confidences, log_losses

Sums = NDArray[np.float64]
Figures = dict[str, Sums]
Z = 1.959963984540054
"""The quantile of the normal distribution that leaves 2.5 % above it."""
LEVEL = 0.9
"""How often the interval around a predicted value holds, unless somebody asks for another level."""
_STUDENT = {1: 12.706205, 2: 4.302653, 3: 3.182446}
_BLOCK_DRAWS = 1 << 21
_MIN_UNITS = 5
"""With fewer samples than this, resampling shows a false certainty: no interval is given."""
_MAX_CONFIDENCE = 1 - 1e-6
_ABS_MEAN = float(np.sqrt(2 / np.pi))
"""The mean of |x| for a standard normal x."""


def wilson(shares: Any, sizes: Any) -> tuple[Sums, Sums]:
    """Wilson's score interval of shares, each seen in so many trials; sizes need not be whole. 14 of 14 is 0.785 to 1."""
    p, n = np.asarray(shares, dtype=np.float64), np.maximum(np.asarray(sizes, dtype=np.float64), 1e-9)
    centre = (p + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z * np.sqrt(p * (1 - p) / n + Z**2 / (4 * n**2)) / (1 + Z**2 / n)
    return np.minimum(np.maximum(centre - half, 0), p), np.maximum(np.minimum(centre + half, 1), p)


def mean_limits(shares: Sums, lows: Sums, highs: Sums) -> tuple[float, float]:
    """Limits of a mean of independent shares from the limits of each: squared distances add up (Zou and Donner's MOVER)."""
    count, mean = len(shares), float(shares.mean())
    low = mean - float(np.sqrt(((shares - lows) ** 2).sum())) / count
    high = mean + float(np.sqrt(((highs - shares) ** 2).sum())) / count
    return max(0.0, low), min(1.0, high)


def effective_sizes(hits: Any, totals: Any) -> Sums:
    """For shares Σ hits / Σ totals over units (rows), each column by itself: how many independent trials they are worth.

    Units of one trial each are worth themselves. Else the spread between units says how alike trials of one unit are (Korn and
    Graubard); where it says nothing, because all or none were hits, a unit counts once.
    """
    h, t = (np.asarray(counts, dtype=np.float64) for counts in (hits, totals))
    total = t.sum(axis=0)
    if t.max(initial=0) <= 1:
        return np.asarray(total)
    p = h.sum(axis=0) / np.maximum(total, 1)
    units = (t > 0).sum(axis=0)
    spread = units / np.maximum(units - 1, 1) * ((h - p * t) ** 2).sum(axis=0) / np.maximum(total, 1) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = np.where((p > 0) & (p < 1) & (units > 1), p * (1 - p) / spread, units)
    few = np.array([(Z / student_quantile(int(count) - 1)) ** 2 if count > 1 else 1.0 for count in np.atleast_1d(units)])
    least = np.minimum(units, 1)
    return np.asarray(np.clip(sizes * few.reshape(np.shape(sizes)), least, np.maximum(total, least)))


def difference_limits(better: float, worse: float, size: float) -> tuple[float, float]:
    """Limits of (better − worse) / size, of pairs of which so many went one way and the other: Bonett and Price's."""
    up, down = (better + 1) / (size + 2), (worse + 1) / (size + 2)
    half = Z * float(np.sqrt(max(0.0, up + down - (up - down) ** 2) / (size + 2)))
    return max(-1.0, up - down - half), min(1.0, up - down + half)


def student_quantile(freedom: int) -> float:
    """The quantile of Student's t that leaves 2.5 % above it, to three digits."""
    if freedom in _STUDENT or freedom < 1:
        return _STUDENT[max(1, freedom)]
    z, v = Z, float(freedom)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / v ** (power + 1) for power, term in enumerate(terms))


class ClassTally:
    """Columns for classes: hits, truths and predictions per class, the log loss, and confidence minus hit per bin."""

    def __init__(self, logits: NDArray[np.float32], targets: NDArray[np.int64]) -> None:
        self.num_classes = logits.shape[1]
        classes = np.eye(self.num_classes, dtype=np.float32)
        predicted = logits.argmax(axis=1)
        hits = predicted == targets
        confidence = confidences(logits)
        gaps = np.eye(ECE_BINS, dtype=np.float32)[bin_numbers(confidence)] * (confidence - hits)[:, None]
        losses = log_losses(logits, targets)[:, None]
        parts = [classes[targets] * hits[:, None], classes[targets], classes[predicted], losses, gaps]
        self.columns = np.concatenate(parts, axis=1, dtype=np.float32)

    def figures(self, sums: Sums) -> Figures:
        """Accuracy, balanced accuracy, macro F1, log loss and ECE from sums of the columns, one row per resample."""
        hits, truths, guesses = (sums[:, self.num_classes * part : self.num_classes * (part + 1)] for part in range(3))
        total = truths.sum(axis=1)
        either = truths + guesses
        return {
            "accuracy": hits.sum(axis=1) / total,
            "balanced_accuracy": (hits / np.maximum(truths, 1)).sum(axis=1) / (truths > 0).sum(axis=1),
            "macro_f1": (2 * hits / np.maximum(either, 1)).sum(axis=1) / (either > 0).sum(axis=1),
            "log_loss": sums[:, 3 * self.num_classes] / total,
            "ece": np.abs(sums[:, 3 * self.num_classes + 1 :]).sum(axis=1) / total,
        }


class ValueTally:
    """Columns for values: per target the squared and absolute error, the value (less its mean) and its square; and a 1."""

    def __init__(
        self, outputs: NDArray[np.float32], targets: NDArray[Any], names: Sequence[str], weights: Sequence[float] | None = None
    ) -> None:
        truth = targets.astype(np.float64)
        means = truth.mean(axis=0)
        errors, centred = outputs - truth, truth - means
        parts = [errors**2, np.abs(errors), centred, centred**2, np.ones((len(truth), 1))]
        self.columns = np.concatenate(parts, axis=1).astype(np.float32)
        self._names, self._weights = names, None if weights is None else np.array(weights, dtype=np.float64)
        self._offsets = means - np.average(means, weights=self._weights)  # puts centred values back on one scale

    def figures(self, sums: Sums) -> Figures:
        """R², MAE and RMSE per target and averaged, and both kinds of weighted R² where there are weights; NaN where a resample
        is constant.
        """
        num = len(self._names)
        squares, absolutes, values, value_squares = (sums[:, num * part : num * (part + 1)] for part in range(4))
        total = sums[:, -1:]
        r2 = _r2(squares, value_squares, value_squares - values**2 / total)
        per_target = {"r2": r2, "mae": absolutes / total, "rmse": np.sqrt(squares / total)}
        figures = {f"{figure}/{name}": array[:, i] for figure, array in per_target.items() for i, name in enumerate(self._names)}
        figures |= {figure: _row_means(array) for figure, array in per_target.items()}
        if self._weights is not None:
            weights, offsets = self._weights, self._offsets
            sum_of_squares = (value_squares + 2 * offsets * values + total * offsets**2) @ weights
            # each resample has its own weighted mean
            spread = sum_of_squares - ((values + total * offsets) @ weights) ** 2 / (total[:, 0] * weights.sum())
            figures["weighted_r2"] = _r2(squares @ weights, sum_of_squares, spread)
            figures["weighted_mean_r2"] = _row_means(r2, weights)
        return figures


def _r2(squares: Sums, scale: Sums, spread: Sums) -> Sums:
    """1 − squares / spread; NaN where the spread is rounding only."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(spread > 1e-6 * np.maximum(scale, np.finfo(np.float64).tiny), 1 - squares / spread, np.nan)


def _row_means(array: Sums, weights: Sums | None = None) -> Sums:
    """The mean of each row over what is known, weighted where columns have weights; NaN where nothing is."""
    shares = np.isfinite(array) * (np.ones(array.shape[1]) if weights is None else weights)
    totals = shares.sum(axis=1)
    return np.where(totals > 0, (np.where(shares > 0, array, 0) * shares).sum(axis=1) / np.where(totals > 0, totals, 1), np.nan)


def sum_units(columns: NDArray[np.float32], groups: NDArray[np.int64] | None) -> NDArray[np.float32]:
    """Rows of one group added up; every sample by itself where there are no groups."""
    if groups is None:
        return columns
    numbers = np.unique(groups, return_inverse=True)[1]
    sums = np.zeros((int(numbers.max()) + 1, columns.shape[1]))
    np.add.at(sums, numbers, columns)
    return sums.astype(np.float32)


def draw(tally: ClassTally | ValueTally, units: NDArray[np.float32], *, seed: int, num_resamples: int) -> Figures:
    """Each figure per resample of `units`, drawn with replacement; nothing where there are too few. The same seed and count give
    the same resamples.
    """
    sums = [(weights @ units).astype(np.float64) for weights in resamples(len(units), seed=seed, num_resamples=num_resamples)]
    return tally.figures(np.concatenate(sums)) if sums else {}


def resamples(count: int, *, seed: int, num_resamples: int) -> Iterator[NDArray[np.float32]]:
    """Blocks (rows, count) of how often each unit was drawn; none where there are too few units."""
    generator = np.random.Generator(np.random.PCG64(hash_int(seed, "bootstrap")))
    per_block = max(1, _BLOCK_DRAWS // max(1, count))
    for start in range(0, num_resamples if count >= _MIN_UNITS else 0, per_block):
        rows = min(per_block, num_resamples - start)
        drawn = generator.integers(0, count, size=(rows, count), dtype=np.int32)
        drawn += (np.arange(rows, dtype=np.int32) * count)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * count).reshape(rows, count).astype(np.float32)


def intervals(points: dict[str, float | None], drawn: Figures, *, num_units: int) -> dict[str, Interval]:
    """Intervals around `points`, from what was drawn of each."""
    return {name: interval(name, value, drawn.get(name), num_units=num_units) for name, value in points.items()}


def interval(name: str, value: float | None, drawn: Sums | None, *, num_units: int) -> Interval:
    """Percentiles set wider as Student's t is (Hesterberg); and for values not less than a t interval of the logarithm of the
    figure's distance from its end (1 for R², 0 for errors), which small samples need.
    """
    point = value if value is not None and math.isfinite(value) else None
    known = np.empty(0) if drawn is None else drawn[np.isfinite(drawn)]
    if point is None or len(known) == 0:
        return Interval(point, None, None)
    wider = math.sqrt(num_units / (num_units - 1)) * student_quantile(num_units - 1)
    tail = 100 * NormalDist().cdf(-wider)
    limits = [point, *(float(limit) for limit in np.percentile(known, [tail, 100 - tail]))]
    metric = find_metric(name)
    if VALUES in metric.tasks and (metric.low is None) != (metric.high is None):
        end, sign = (metric.low, 1.0) if metric.low is not None else (metric.high or 0.0, -1.0)
        distance, distances = sign * (point - end), sign * (known - end)
        if distance > 0 and (distances > 0).all():
            factor = math.exp(min(50.0, wider * float(np.log(distances).std())))
            limits += [end + sign * distance / factor, end + sign * distance * factor]
    return Interval(point, min(limits), max(limits))


def class_intervals(
    points: dict[str, float | None],
    drawn: Figures,
    units: NDArray[np.float32],
    logits: NDArray[np.float32],
    targets: NDArray[np.int64],
) -> dict[str, Interval]:
    """`units` are the sums of a `ClassTally` by unit; `points` and `drawn` are by the names of its figures."""
    found = intervals(points, drawn, num_units=len(units))
    hits, truths, guesses = _class_sums(units, logits.shape[1])
    low, high = wilson(points["accuracy"], effective_sizes(hits.sum(axis=1), truths.sum(axis=1)))
    accuracy = found["accuracy"] = Interval(points["accuracy"], float(low), float(high))

    def limits(of: Sums) -> tuple[Sums, tuple[Sums, Sums]]:
        there = of.sum(axis=0) > 0
        shares = hits.sum(axis=0)[there] / of.sum(axis=0)[there]
        return shares, wilson(shares, effective_sizes(hits[:, there], of[:, there]))

    recalls, recall_ends = limits(truths)
    found["balanced_accuracy"] = widened(found["balanced_accuracy"], *mean_limits(recalls, *recall_ends))
    # F1 rises with hits / (in truth or in the answer), which is a share.
    shares, ends = limits(truths + guesses - hits)
    f1s = [2 * iou / (1 + iou) for iou in (shares, *ends)]
    found["macro_f1"] = widened(found["macro_f1"], *mean_limits(f1s[0], f1s[1], f1s[2]))
    found["log_loss"] = widened(found["log_loss"], *_loss_limits(logits, targets, accuracy))
    found["ece"] = _calibration_error(found["ece"], logits, accuracy)
    return found


def recall_limits(units: NDArray[np.float32], num_classes: int) -> tuple[Sums, Sums]:
    """Wilson's limits of each class's recall; a class that does not occur has 0 and 1."""
    hits, truths, _ = _class_sums(units, num_classes)
    return wilson(hits.sum(axis=0) / np.maximum(truths.sum(axis=0), 1), effective_sizes(hits, truths))


def _class_sums(units: NDArray[np.float32], num_classes: int) -> tuple[Sums, Sums, Sums]:
    hits, truths, guesses = (units[:, num_classes * part : num_classes * (part + 1)].astype(np.float64) for part in range(3))
    return hits, truths, guesses


def _loss_limits(logits: NDArray[np.float32], targets: NDArray[np.int64], accuracy: Interval) -> tuple[float, float]:
    """As many wrong answers as Wilson's limits allow, each at the loss that wrong answers have, or would have had."""
    losses, hits = log_losses(logits, targets), logits.argmax(axis=1) == targets
    right = float(losses[hits].mean()) if hits.any() else 0.0
    if hits.all():
        wrong = float(-np.log1p(-np.minimum(confidences(logits).astype(np.float64), _MAX_CONFIDENCE)).mean())
    else:
        wrong = float(losses[~hits].mean())
    low, high = (share * right + (1 - share) * wrong for share in (accuracy.high or 0.0, accuracy.low or 0.0))
    return low, high


def _calibration_error(found: Interval, logits: NDArray[np.float32], accuracy: Interval) -> Interval:
    """The sum of gaps is never negative and so errs upwards, in resamples even more: limits are mirrored at the point, and begin
    at 0 unless the error is more than chance gives where every confidence is right.
    """
    point = found.value
    if point is None or accuracy.low is None or accuracy.high is None:
        return found
    sure = confidences(logits)
    low, high = 0.0, max(point, float(sure.mean()) - accuracy.low, accuracy.high - float(sure.mean()))
    if found.low is not None and found.high is not None:
        # The largest error that answers of these confidences have in all but 2.5 of 100 cases if each confidence is right.
        chances = sure.astype(np.float64)
        variances = np.bincount(bin_numbers(sure), weights=chances * (1 - chances), minlength=ECE_BINS)
        mean, deviation = _ABS_MEAN * np.sqrt(variances).sum(), np.sqrt((1 - _ABS_MEAN**2) * variances.sum())
        by_chance = float((mean + Z * deviation) / len(sure))
        low = max(0.0, 2 * point - found.high) if point > by_chance else 0.0
        high = max(high, 2 * point - found.low)
    return Interval(point, low, min(1.0, high))


def widened(found: Interval, low: float, high: float) -> Interval:
    """Not narrower than from `low` to `high`."""
    return Interval(
        found.value, low if found.low is None else min(found.low, low), high if found.high is None else max(found.high, high)
    )


def fewest_samples(level: float) -> int:
    """How many val samples intervals around values take: 9 for 90 %."""
    return math.ceil(level / (1 - level) - 1e-9)


def half_widths(outputs: NDArray[Any], targets: NDArray[Any], *, level: float) -> NDArray[np.float64] | None:
    """For each target the error that ⌈(n + 1) · level⌉ of the n samples do not exceed; None where there are too few samples."""
    place = math.ceil((len(targets) + 1) * level - 1e-9)
    if len(targets) == 0 or place > len(targets):
        return None
    return np.asarray(np.sort(np.abs(outputs.astype(np.float64) - targets), axis=0)[place - 1])


def value_intervals(
    names: Sequence[str],
    val: tuple[NDArray[Any], NDArray[Any]] | None,
    test: tuple[NDArray[Any], NDArray[Any]] | None,
    *,
    level: float = LEVEL,
) -> ValueIntervalRecord | None:
    """By how much a prediction is widened so that the truth lies within `level` of the time (split conformal prediction, from the
    errors on val), and how often it did on test. In: (outputs, targets) of val and test. None where val is too small.
    """
    widths = None if val is None else half_widths(*val, level=level)
    if widths is None or val is None:
        return None
    record = ValueIntervalRecord(level=level, num_val=len(val[1]), half_widths=dict(zip(names, widths.tolist(), strict=True)))
    if test is not None and len(test[1]):
        inside = (np.abs(test[0].astype(np.float64) - test[1]) <= widths).mean(axis=0)
        lows, highs = wilson(inside, len(test[1]))
        figures = zip(names, inside.tolist(), lows.tolist(), highs.tolist(), strict=True)
        record.num_test = len(test[1])
        record.coverage = {name: Interval(share, low, high) for name, share, low, high in figures}
    return record
