"""The figures themselves, from predictions and truth: what `core/metrics.py` names, in numpy; and temperature scaling.

In: logits or values, or a confusion matrix (rows: truth, columns: prediction). Out: plain numbers and arrays. The temperature is
fitted on the val split; it changes how confident predictions are, never which class is predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.record import BinRecord, CalibrationRecord
from unchoke.data.several_labels import MULTI_LABEL

ECE_BINS = 15
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0
MIN_VAL_SAMPLES = 20
_CALIBRATION_FOLDS = 5
_MAX_NEWTON_STEPS = 100


def confusion_matrix(truth: NDArray[Any], predicted: NDArray[Any], *, num_classes: int) -> NDArray[np.int64]:
    """How many samples of each class (rows) were predicted as which (columns)."""
    pairs = truth.astype(np.int64) * num_classes + predicted
    return np.bincount(pairs, minlength=num_classes**2).reshape(num_classes, num_classes).astype(np.int64)


def class_rates(confusion: NDArray[np.int64]) -> dict[str, NDArray[np.float32]]:
    """precision, recall, f1 and iou of each class; 0 where there is nothing to divide by."""
    hits, truths, claims = np.diag(confusion), confusion.sum(axis=1), confusion.sum(axis=0)

    def rate(counts: NDArray[np.int64], of: NDArray[np.int64]) -> NDArray[np.float32]:
        rates: NDArray[np.float32] = np.where(
            of > 0, counts.astype(np.float32) / np.maximum(of, 1).astype(np.float32), np.float32(0)
        )
        return rates

    return {
        "precision": rate(hits, claims),
        "recall": rate(hits, truths),
        "f1": rate(2 * hits, truths + claims),
        "iou": rate(hits, truths + claims - hits),
    }


def r2(outputs: NDArray[np.float64], targets: NDArray[np.float64]) -> float | None:
    """1 − Σ (y − ŷ)² / Σ (y − ȳ)² of one target; None where the truth does not vary."""
    if (targets == targets[0]).all():
        return None
    return float(1 - ((targets - outputs) ** 2).sum() / ((targets - targets.mean()) ** 2).sum())


def weighted_r2(outputs: NDArray[np.float32], targets: NDArray[Any], weights: Sequence[float]) -> float | None:
    """1 − Σ w·(y − ŷ)² / Σ w·(y − ȳ)² over all (sample, target) pairs; None where the truth does not vary."""
    spread = pair_spread(targets, weights)
    errors = (targets.astype(np.float64) - outputs) ** 2
    return 1 - float((errors @ np.array(weights, dtype=np.float64)).sum()) / spread if spread > 0 else None


def weighted_mean(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """Σ w·v / Σ w over the values that are defined; None where no such value has a weight."""
    known = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None and weight > 0]
    return sum(value * weight for value, weight in known) / sum(weight for _, weight in known) if known else None


def pair_spread(targets: NDArray[Any], weights: Sequence[float]) -> float:
    """Σ w·(y − ȳ)² over all (sample, target) pairs, ȳ their weighted mean: what a weighted R² divides by. 0 if nothing varies."""
    counted = np.asarray(weights, dtype=np.float64) > 0
    values, shares = targets[:, counted].astype(np.float64), np.asarray(weights, dtype=np.float64)[counted]
    if (values == values.flat[0]).all():
        return 0.0
    mean = (values @ shares).sum() / (shares.sum() * len(values))
    return float(((values - mean) ** 2 @ shares).sum())


def log_softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Log-probabilities (n, classes) in float64."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result


def softmax(logits: NDArray[Any]) -> NDArray[np.float32]:
    """Probabilities (n, classes) in float32."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True), dtype=np.float32)


def as_pairs(logits: NDArray[Any]) -> NDArray[Any]:
    """Each of several labels (n, labels) as two classes (n · labels, 2): without it and with it, whose softmax is the sigmoid."""
    return np.stack([np.zeros_like(logits), logits], axis=-1).reshape(-1, 2)


def probabilities(kind: str, outputs: NDArray[np.float32], temperature: float = 1.0) -> NDArray[np.float32]:
    """Of each class, which add up to one, or of each of several labels; float32 (n, outputs)."""
    if kind != MULTI_LABEL:
        return softmax(outputs / temperature)
    return softmax(as_pairs(outputs / temperature))[:, 1].reshape(outputs.shape)


def log_losses(logits: NDArray[Any], targets: NDArray[np.int64]) -> NDArray[np.float64]:
    """The cross-entropy of each sample."""
    return -np.take_along_axis(log_softmax(logits), targets[:, None], axis=1)[:, 0]


def confidences(logits: NDArray[Any]) -> NDArray[np.float32]:
    """The probability given to the predicted class."""
    result: NDArray[np.float32] = np.exp(log_softmax(logits).max(axis=1)).astype(np.float32)
    return result


def bin_numbers(confidence: NDArray[np.float32]) -> NDArray[np.int64]:
    """Which of the equal bins of [0, 1] a confidence lies in; a value on an edge belongs to the bin above it."""
    edges = np.linspace(0, 1, ECE_BINS + 1, dtype=np.float32)
    return np.clip(np.searchsorted(edges, confidence, side="right") - 1, 0, ECE_BINS - 1).astype(np.int64)


def reliability_bins(logits: NDArray[Any], targets: NDArray[np.int64]) -> list[BinRecord]:
    """Per bin of confidence: its edges, how many samples, their mean confidence and how many were right (None if empty)."""
    confidence, hits = confidences(logits), logits.argmax(axis=1) == targets
    numbers = bin_numbers(confidence)
    counts, sure, right = (
        np.bincount(numbers, weights=weights, minlength=ECE_BINS) for weights in (None, confidence, hits.astype(float))
    )
    return [
        BinRecord(
            low=number / ECE_BINS,
            high=(number + 1) / ECE_BINS,
            count=int(counts[number]),
            confidence=float(sure[number] / counts[number]) if counts[number] else None,
            accuracy=float(right[number] / counts[number]) if counts[number] else None,
        )
        for number in range(ECE_BINS)
    ]


def expected_calibration_error(bins: Sequence[BinRecord]) -> float:
    """The gap between confidence and accuracy, averaged over samples."""
    total = sum(one.count for one in bins)
    full = [(one.confidence, one.accuracy, one.count) for one in bins if one.confidence is not None and one.accuracy is not None]
    return float(sum(abs(sure - right) * count for sure, right, count in full) / total) if total else 0.0


def calibrate(
    val_logits: NDArray[np.float32], val_targets: NDArray[np.int64], logits: NDArray[np.float32], targets: NDArray[np.int64]
) -> CalibrationRecord:
    """Fit the temperature on val and judge it on the other split (which must not be empty)."""
    temperature, reason = fit_temperature(val_logits, val_targets)
    before, after = (reliability_bins(logits / scale, targets) for scale in (1.0, temperature))
    losses = [float(log_losses(logits.astype(np.float64) / scale, targets).mean()) for scale in (1.0, temperature)]
    return CalibrationRecord(
        temperature=temperature,
        reason=reason,
        ece_before=expected_calibration_error(before),
        ece_after=expected_calibration_error(after),
        log_loss_before=losses[0],
        log_loss_after=losses[1],
        bins_before=before,
        bins_after=after,
        bins=after,
    )


def fit_temperature(logits: NDArray[np.float32], targets: NDArray[np.int64]) -> tuple[float, str]:
    """The temperature with the lowest log loss, and the reason; 1 when there are too few samples to fit it on."""
    if len(targets) < MIN_VAL_SAMPLES or logits.shape[1] < 2:
        return 1.0, f"left at 1: {len(targets)} val samples are too few to fit it ({MIN_VAL_SAMPLES} needed)"
    return _best_temperature(logits, targets), f"lowest log loss on {len(targets)} val samples"


def scaled_apart(logits: NDArray[np.float32], targets: NDArray[np.int64]) -> NDArray[np.float32]:
    """The val logits, each divided by a temperature that was fitted without it; unchanged where none can be fitted."""
    if len(targets) < MIN_VAL_SAMPLES or logits.shape[1] < 2:
        return logits
    folds = np.arange(len(targets)) % _CALIBRATION_FOLDS
    scaled = logits.copy()
    for fold in range(_CALIBRATION_FOLDS):
        scaled[folds == fold] /= np.float32(_best_temperature(logits[folds != fold], targets[folds != fold]))
    return scaled


def _best_temperature(logits: NDArray[np.float32], targets: NDArray[np.int64]) -> float:
    """The log loss is convex in b = 1/temperature, so its only minimum is where its slope is 0: Newton's steps between bounds.

    For one sample the slope is the mean of the logits, weighted by the probabilities at b, less the true class's logit; the
    curvature is their variance. One sample in `len(targets) + 2` counts as one of any class: without it a val split without
    mistakes, or with few, would make every answer certain (docs/claims-history.md).
    """
    wide = logits.astype(np.float64)
    any_class = 1 / (len(targets) + 2)
    wanted = (1 - any_class) * np.take_along_axis(wide, targets[:, None], axis=1).mean() + any_class * wide.mean()
    low, high, b = 1 / MAX_TEMPERATURE, 1 / MIN_TEMPERATURE, 1.0
    for _ in range(_MAX_NEWTON_STEPS):
        chances = np.exp(log_softmax(wide * b))
        means = (chances * wide).sum(axis=1)
        slope = means.mean() - wanted
        curvature = ((chances * wide**2).sum(axis=1) - means**2).mean()
        low, high = (b, high) if slope < 0 else (low, b)
        step = b - slope / curvature if curvature > 0 else 0.0
        following = step if low < step < high else (low + high) / 2
        if abs(following - b) <= 1e-9 * b or high - low <= 1e-9 * low:
            break
        b = following
    return float(1 / b)
