"""Temperature scaling: one number, fitted on the val split, that makes stated confidences match hit rates.

In: logits and classes of val, and of the split to be judged. Out: the temperature and how far off confidences were
before and after. Predictions themselves never change: dividing by a temperature keeps the order of the classes. Val is judged by
temperatures that were fitted on other parts of it, since one fitted on itself flatters it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unchoke.core.record import CalibrationRecord
from unchoke.training.scoring.figures import ECE_BINS, expected_calibration_error, log_losses, log_softmax, reliability_bins

MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0
MIN_VAL_SAMPLES = 20
_PARTS = 5
_MOST_STEPS = 100


def calibrate(
    val_logits: NDArray[np.float32],
    val_targets: NDArray[np.int64],
    logits: NDArray[np.float32],
    targets: NDArray[np.int64],
    *,
    num_bins: int = ECE_BINS,
) -> CalibrationRecord:
    """Fit the temperature on val and judge it on the other split (which must not be empty)."""
    temperature, reason = fit_temperature(val_logits, val_targets)
    before, after = (reliability_bins(logits / scale, targets, num_bins=num_bins) for scale in (1.0, temperature))
    return CalibrationRecord(
        temperature=temperature,
        reason=reason,
        ece_before=expected_calibration_error(before),
        ece_after=expected_calibration_error(after),
        log_loss_before=_mean_log_loss(logits, targets, 1.0),
        log_loss_after=_mean_log_loss(logits, targets, temperature),
        bins_before=before,
        bins_after=after,
        bins=after,
    )


def fit_temperature(logits: NDArray[np.float32], targets: NDArray[np.int64]) -> tuple[float, str]:
    """The temperature with the lowest log loss, and the reason; 1 when there is too little to fit it on."""
    if len(targets) < MIN_VAL_SAMPLES or logits.shape[1] < 2:
        return 1.0, f"left at 1: {len(targets)} val samples are too few to fit it ({MIN_VAL_SAMPLES} needed)"
    return _lowest_loss(logits, targets), f"lowest log loss on {len(targets)} val samples"


def scaled_apart(logits: NDArray[np.float32], targets: NDArray[np.int64]) -> NDArray[np.float32]:
    """The val logits, each divided by a temperature that was fitted without it; as they are where none can be fitted."""
    if len(targets) < MIN_VAL_SAMPLES or logits.shape[1] < 2:
        return logits
    parts = np.arange(len(targets)) % _PARTS
    scaled = logits.copy()
    for part in range(_PARTS):
        scaled[parts == part] /= np.float32(_lowest_loss(logits[parts != part], targets[parts != part]))
    return scaled


def _lowest_loss(logits: NDArray[np.float32], targets: NDArray[np.int64]) -> float:
    """The log loss is convex in b = 1/temperature, so its only minimum is where its slope is 0: Newton's steps between bounds.

    Of one sample the slope is the mean of the logits, weighted by the probabilities at b, less the true class's logit; the
    curvature is their variance. One sample in `len(targets) + 2` counts as one of any class: without it a val split without
    mistakes, or with few, would make every answer certain (docs/claims.md).
    """
    wide = logits.astype(np.float64)
    any_class = 1 / (len(targets) + 2)
    wanted = (1 - any_class) * np.take_along_axis(wide, targets[:, None], axis=1).mean() + any_class * wide.mean()
    low, high, b = 1 / MAX_TEMPERATURE, 1 / MIN_TEMPERATURE, 1.0
    for _ in range(_MOST_STEPS):
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


def _mean_log_loss(logits: NDArray[np.float32], targets: NDArray[np.int64], temperature: float) -> float:
    return float(log_losses(logits.astype(np.float64) / temperature, targets).mean())
