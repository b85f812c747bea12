"""Both ways are held against float64: another layout is as exact, a network that is a little wrong is not."""

from __future__ import annotations

import torch

from unchoke.tuning.claims.plain_training import PlainTrainer, as_exact, noise_batch


def first_convolution(trainer: PlainTrainer) -> torch.nn.Conv2d:
    return next(module for module in trainer.network.modules() if isinstance(module, torch.nn.Conv2d))


def test_layout_is_exact_and_a_wrong_convolution_is_not() -> None:
    device = torch.device("cpu")
    plain, other, inputs = PlainTrainer(device), PlainTrainer(device, channels_last=True), noise_batch(2, 64, 64)
    equal, figure = as_exact(plain, other, inputs)
    assert equal, figure
    with torch.no_grad():
        first_convolution(other).weight.mul_(1.001)
    equal, figure = as_exact(plain, other, inputs)
    assert not equal, figure
