"""Rounding by sums is rounding to float16."""

from __future__ import annotations

import torch

from unchoke.features.engines import round_to_half


def test_numbers_become_those_of_float16() -> None:
    values = torch.randn(100_000, generator=torch.Generator().manual_seed(0)) * torch.logspace(-3, 4, 100_000)
    values = values[(values.abs() > 1e-4) & (values.abs() < 65000)]
    assert torch.equal(round_to_half(values), values.half().float())
