"""Temperature scaling: one number, fitted on the val split, that makes stated confidences match hit rates.

In: logits and classes of val, and of the split to be judged. Out: the temperature and how far off confidences were
before and after. Predictions themselves never change: dividing by a temperature keeps the order of the classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unchoke.core.record import CalibrationRecord
from unchoke.training.scoring.figures import ECE_BINS, expected_calibration_error, log_losses, reliability_bins

MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0
MIN_VAL_SAMPLES = 20
_GOLDEN = (5**0.5 - 1) / 2


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
    """The temperature with the lowest log loss, and the reason; 1 when there is too little to fit it on.

    The log loss is convex in 1/temperature, so a golden-section search finds its only minimum.
    """
    if len(targets) < MIN_VAL_SAMPLES or logits.shape[1] < 2:
        return 1.0, f"left at 1: {len(targets)} val samples are too few to fit it ({MIN_VAL_SAMPLES} needed)"
    low, high = 1 / MAX_TEMPERATURE, 1 / MIN_TEMPERATURE
    while high - low > 1e-5 * low:
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        if _mean_log_loss(logits, targets, 1 / left) <= _mean_log_loss(logits, targets, 1 / right):
            high = right
        else:
            low = left
    return float(2 / (low + high)), f"lowest log loss on {len(targets)} val samples"


def _mean_log_loss(logits: NDArray[np.float32], targets: NDArray[np.int64], temperature: float) -> float:
    return float(log_losses(logits.astype(np.float64) / temperature, targets).mean())
