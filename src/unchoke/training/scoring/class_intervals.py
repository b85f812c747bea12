"""The intervals of figures of classes, where resampling alone would show a false certainty.

In: a tally of hits by class, added up by unit, and what was drawn of it. Out: an `Interval` per figure. Accuracy has Wilson's
interval. Balanced accuracy and macro F1 have the wider, on each side, of the bootstrap's and that of Wilson's limits of the
classes. Log loss and calibration error also say what wrong answers that were not seen yet could do to them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unchoke.core.record import Interval
from unchoke.training.scoring.bootstrap import Figures, Sums, intervals
from unchoke.training.scoring.figures import bin_numbers, confidences, log_losses
from unchoke.training.scoring.proportions import Z, effective_sizes, mean_limits, wilson

_SUREST = 1 - 1e-6
_ABS_MEAN = float(np.sqrt(2 / np.pi))
"""The mean of |x| for a standard normal x."""


def class_intervals(
    points: dict[str, float | None],
    drawn: Figures,
    units: NDArray[np.float32],
    logits: NDArray[np.float32],
    targets: NDArray[np.int64],
    *,
    num_bins: int,
) -> dict[str, Interval]:
    """`units` are the sums of a `ClassTally` by unit; `points` and `drawn` are by the names of its figures."""
    found = intervals(points, drawn, num_units=len(units))
    hits, truths, guesses = _parts(units, logits.shape[1])
    found["accuracy"] = _accuracy(points["accuracy"], hits, truths)
    found["balanced_accuracy"] = _widened(found["balanced_accuracy"], _recall_limits(hits, truths))
    found["macro_f1"] = _widened(found["macro_f1"], _f1_limits(hits, truths, guesses))
    found["log_loss"] = _widened(found["log_loss"], _loss_limits(logits, targets, found["accuracy"]))
    found["ece"] = _calibration_error(found["ece"], logits, found["accuracy"], num_bins=num_bins)
    return found


def recall_limits(units: NDArray[np.float32], num_classes: int) -> tuple[Sums, Sums]:
    """Wilson's limits of each class's recall; a class that does not occur has 0 and 1."""
    hits, truths, _ = _parts(units, num_classes)
    return wilson(hits.sum(axis=0) / np.maximum(truths.sum(axis=0), 1), effective_sizes(hits, truths))


def _parts(units: NDArray[np.float32], num_classes: int) -> tuple[Sums, Sums, Sums]:
    hits, truths, guesses = (units[:, num_classes * part : num_classes * (part + 1)].astype(np.float64) for part in range(3))
    return hits, truths, guesses


def _accuracy(point: float | None, hits: Sums, truths: Sums) -> Interval:
    size = effective_sizes(hits.sum(axis=1), truths.sum(axis=1))
    low, high = wilson(point, size)
    return Interval(point, float(low), float(high))


def _recall_limits(hits: Sums, truths: Sums) -> tuple[float, float]:
    there = truths.sum(axis=0) > 0
    shares = hits.sum(axis=0)[there] / truths.sum(axis=0)[there]
    return mean_limits(shares, *wilson(shares, effective_sizes(hits[:, there], truths[:, there])))


def _f1_limits(hits: Sums, truths: Sums, guesses: Sums) -> tuple[float, float]:
    """F1 rises with hits / (in truth or in the answer), which is a share."""
    either = truths + guesses - hits
    there = either.sum(axis=0) > 0
    shares = hits.sum(axis=0)[there] / either.sum(axis=0)[there]
    limits = wilson(shares, effective_sizes(hits[:, there], either[:, there]))
    return mean_limits(_f1(shares), *(_f1(limit) for limit in limits))


def _f1(iou: Sums) -> Sums:
    return 2 * iou / (1 + iou)


def _loss_limits(logits: NDArray[np.float32], targets: NDArray[np.int64], accuracy: Interval) -> tuple[float, float]:
    """As many wrong answers as Wilson's limits allow, each at the loss that wrong answers have, or would have had."""
    losses, hits = log_losses(logits, targets), logits.argmax(axis=1) == targets
    right = float(losses[hits].mean()) if hits.any() else 0.0
    if hits.all():
        wrong = float(-np.log1p(-np.minimum(confidences(logits).astype(np.float64), _SUREST)).mean())
    else:
        wrong = float(losses[~hits].mean())
    low, high = (share * right + (1 - share) * wrong for share in (accuracy.high or 0.0, accuracy.low or 0.0))
    return low, high


def _calibration_error(found: Interval, logits: NDArray[np.float32], accuracy: Interval, *, num_bins: int) -> Interval:
    """The sum of gaps is never negative and so errs upwards, in resamples even more: limits are mirrored at the point, and begin
    at 0 unless the error is more than chance gives where every confidence is right.
    """
    point = found.value
    if point is None:
        return found
    sure = confidences(logits)
    unsettled = [
        float(sure.mean()) - (accuracy.low or 0.0),
        (1.0 if accuracy.high is None else accuracy.high) - float(sure.mean()),
    ]
    low, high = 0.0, max(point, *unsettled)
    if found.low is not None and found.high is not None:
        low = max(0.0, 2 * point - found.high) if point > _by_chance(sure, num_bins=num_bins) else 0.0
        high = max(high, 2 * point - found.low)
    return Interval(point, low, min(1.0, high))


def _by_chance(sure: NDArray[np.float32], *, num_bins: int) -> float:
    """The largest calibration error that answers of these confidences have in all but 2.5 of 100 cases if each is right."""
    chances = sure.astype(np.float64)
    variances = np.bincount(bin_numbers(sure, num_bins=num_bins), weights=chances * (1 - chances), minlength=num_bins)
    mean, deviation = _ABS_MEAN * np.sqrt(variances).sum(), np.sqrt((1 - _ABS_MEAN**2) * variances.sum())
    return float((mean + Z * deviation) / len(sure))


def _widened(found: Interval, limits: tuple[float, float]) -> Interval:
    """Not narrower than `limits` on either side."""
    low, high = limits
    return Interval(
        found.value, low if found.low is None else min(found.low, low), high if found.high is None else max(found.high, high)
    )
