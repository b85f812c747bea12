"""Recorded updates: the same state as call by call, each batch once, and nothing that disagrees is used."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from unchoke.training.heads.heads import HeadConfig
from unchoke.training.heads.stack import RecordedUpdate, StackedAdamW, UpdateInputs, scheduled_lr


def test_a_stacked_step_equals_torchs_adamw_for_each_head():
    torch.manual_seed(0)
    rates, decays = [1e-3, 3e-2, 1e-1], [0.0, 0.1, 2.0]
    start = torch.randn(3, 4, 5)
    stacked = StackedAdamW({"weight": start.clone()}, weight_decay=decays)
    singles = [torch.nn.Parameter(start[number].clone()) for number in range(3)]
    torchs = [torch.optim.AdamW([p], lr=r, weight_decay=d) for p, r, d in zip(singles, rates, decays, strict=True)]
    for step in range(6):
        grads = torch.randn(3, 4, 5)
        stacked.step({"weight": grads}, count=torch.tensor(step + 1.0), lr=rates)
        for number, optimiser in enumerate(torchs):
            singles[number].grad = grads[number].clone()
            optimiser.step()
    for number, single in enumerate(singles):
        torch.testing.assert_close(stacked.params["weight"][number], single.detach(), rtol=1e-5, atol=1e-6)


def test_a_gradient_laid_out_otherwise_counts_the_same():
    torch.manual_seed(0)
    start, grad = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    strided = grad.transpose(1, 2).contiguous().transpose(1, 2)
    assert not strided.is_contiguous()
    plain, other = (StackedAdamW({"weight": start.clone()}, weight_decay=[0.1, 0.1]) for _ in range(2))
    plain.step({"weight": grad}, count=torch.tensor(1.0), lr=[0.1, 0.1])
    other.step({"weight": strided}, count=torch.tensor(1.0), lr=[0.1, 0.1])
    assert torch.equal(plain.params["weight"], other.params["weight"])


def test_decay_spares_biases():
    optimiser = StackedAdamW({"bias": torch.ones(1, 3), "weight": torch.ones(1, 2, 3)}, weight_decay=[0.5])
    optimiser.step({"bias": torch.zeros(1, 3), "weight": torch.zeros(1, 2, 3)}, count=torch.tensor(1.0), lr=[0.1])
    assert optimiser.params["bias"].tolist() == [[1.0] * 3]
    torch.testing.assert_close(optimiser.params["weight"], torch.full((1, 2, 3), 0.95))


def test_the_rate_warms_up_and_falls_to_nearly_nothing():
    config = HeadConfig(lr=1.0)
    rates = [scheduled_lr(config, step=step, num_steps=100) for step in range(100)]
    peak = rates.index(max(rates))
    assert peak == 5
    assert rates[5] == 1.0
    assert rates[:6] == sorted(rates[:6])
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert 0 < rates[-1] < 0.001


def test_a_training_of_one_step_still_has_a_rate():
    assert scheduled_lr(HeadConfig(lr=1.0), step=0, num_steps=1) > 0


def inputs(number: int, *, rows: int = 4) -> UpdateInputs:
    feats = torch.full((rows, 2), float(number))
    return feats, torch.arange(rows), torch.tensor(number + 1.0), torch.tensor([0.5, 0.25]), None, None


class Sums:
    """A state that every update adds its batch to."""

    def __init__(self) -> None:
        self.state, self.calls = torch.zeros(2), 0

    def update(self, given: UpdateInputs) -> None:
        self.calls += 1
        feats, _, count, rates, _, _ = given
        self.state += feats.sum(dim=0) * rates + count


def as_recorded(work: Callable[[], None]) -> Callable[[], None]:
    """What a card does: run it, then keep what it does to be repeated."""
    work()
    return work


def test_recorded_updates_end_where_plain_ones_do() -> None:
    plain, other = Sums(), Sums()
    recorded = RecordedUpdate(other.update, [other.state], as_recorded)
    for number in range(6):
        rows = 3 if number == 4 else 4
        plain.update(inputs(number, rows=rows))
        recorded(inputs(number, rows=rows))
        assert torch.equal(plain.state, other.state)
    assert recorded.agrees


@pytest.mark.parametrize("off", [7.0, float("nan")])
def test_a_repetition_that_differs_is_never_used(off: float) -> None:
    plain, other = Sums(), Sums()

    def wrongly(work: Callable[[], None]) -> Callable[[], None]:
        work()

        def repeat() -> None:
            other.state.add_(off)

        return repeat

    recorded = RecordedUpdate(other.update, [other.state], wrongly)
    for number in range(3):
        plain.update(inputs(number))
        recorded(inputs(number))
    assert torch.equal(plain.state, other.state)
    assert not recorded.agrees
