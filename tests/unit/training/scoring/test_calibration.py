from __future__ import annotations

import numpy as np
import pytest

from unchoke.training.scoring.figures import (
    MIN_VAL_SAMPLES,
    calibrate,
    fit_temperature,
    log_losses,
    log_softmax,
    reliability_bins,
    scaled_apart,
)


def drawn(count: int, *, seed: int, sharpness: float):
    """Classes drawn from softmax(logits), and the logits made `sharpness` times too sure."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(count, 5)) * 2
    targets = (logits + generator.gumbel(size=logits.shape)).argmax(axis=1)
    return (logits * sharpness).astype(np.float32), targets


@pytest.mark.parametrize("sharpness", [0.4, 1.0, 3.0])
def test_the_temperature_undoes_overconfidence(sharpness):
    temperature, _ = fit_temperature(*drawn(4000, seed=0, sharpness=sharpness))
    assert temperature == pytest.approx(sharpness, rel=0.08)


def test_calibration_shrinks_error_same_predictions():
    logits, targets = drawn(2000, seed=1, sharpness=4.0)
    result = calibrate(*drawn(1000, seed=0, sharpness=4.0), logits, targets)
    assert result.ece_after < 0.3 * result.ece_before
    assert result.log_loss_after < result.log_loss_before
    assert ((logits / result.temperature).argmax(axis=1) == logits.argmax(axis=1)).all()


def test_bins_hold_every_sample_once():
    logits, targets = drawn(300, seed=3, sharpness=1.0)
    bins = reliability_bins(logits, targets)
    assert sum(one.count for one in bins) == 300
    assert bins[0].to_dict() == {"low": 0.0, "high": 1 / 15, "count": 0, "confidence": None, "accuracy": None}


def test_too_few_val_samples_no_temperature():
    temperature, reason = fit_temperature(*drawn(MIN_VAL_SAMPLES - 1, seed=0, sharpness=3.0))
    assert temperature == 1.0
    assert str(MIN_VAL_SAMPLES) in reason


def test_a_perfect_val_split_gives_a_bounded_temperature():
    targets = np.arange(60) % 3
    temperature, _ = fit_temperature((np.eye(3)[targets] * 10).astype(np.float32), targets)
    assert 0.05 <= temperature <= 20


def test_perfect_val_does_not_make_certain():
    generator = np.random.default_rng(0)
    targets = np.arange(30) % 3
    logits = (np.eye(3)[targets] * 3 + generator.random((30, 3))).astype(np.float32)
    temperature, _ = fit_temperature(logits, targets)
    chances = np.exp(log_softmax(logits / temperature)).max(axis=1)
    assert 0.9 < chances.mean() < 0.985


def test_temperature_has_lowest_log_loss():
    logits, targets = drawn(500, seed=4, sharpness=2.0)
    temperature, _ = fit_temperature(logits, targets)
    losses = [
        log_losses(logits.astype(np.float64) / t, targets).mean() for t in (temperature, 0.97 * temperature, 1.05 * temperature)
    ]
    assert losses[0] == min(losses)


def test_every_val_sample_is_scaled_by_others():
    logits, targets = drawn(100, seed=5, sharpness=3.0)
    scaled = scaled_apart(logits, targets)
    ratios = (logits / scaled)[:, 0]
    assert len(np.unique(ratios.round(3))) == 5
    assert (scaled.argmax(axis=1) == logits.argmax(axis=1)).all()
    assert scaled_apart(logits[:10], targets[:10]) is not scaled
    assert (scaled_apart(logits[:10], targets[:10]) == logits[:10]).all()
