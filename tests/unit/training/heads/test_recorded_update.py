"""Recorded updates: the same state as call by call, each batch once, and nothing that disagrees is used."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from unchoke.training.heads.stack import RecordedUpdate, UpdateInputs


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


def test_what_is_recorded_keeps_its_own_inputs() -> None:
    sums, kept = Sums(), inputs(1)
    recorded = RecordedUpdate(sums.update, [sums.state], as_recorded)
    recorded(kept)
    recorded(inputs(2))
    assert torch.equal(kept[0], torch.full((4, 2), 1.0))


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
