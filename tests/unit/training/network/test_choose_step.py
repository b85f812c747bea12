from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from unchoke.core.choices import Choice
from unchoke.training.network.choose_step import (
    EAGER,
    FEWEST_STEPS,
    FILE,
    GRAPH,
    StepTrial,
    judge,
    load_choice,
    save_choice,
    too_few,
    try_both,
)


def way(weights: torch.Tensor, moves: list[float], seconds: list[float]) -> Callable[[], float]:
    """A pass that moves the weights by the next of `moves` and says that it took the next of `seconds`."""
    calls = iter(zip(moves, seconds, strict=True))

    def run() -> float:
        move, second = next(calls)
        weights.add_(move)
        return second

    return run


def tried(eager: list[float], graph: list[float]) -> tuple[StepTrial, torch.Tensor, torch.Tensor]:
    weights, counter = torch.ones(4), torch.zeros(())

    def record() -> None:
        counter.add_(1)
        weights.mul_(5)

    trial = try_both(
        [weights, counter],
        [weights],
        eager=way(weights, eager, [9.0, 0.02]),
        record=record,
        graph=way(weights, graph, [8.0, 0.01]),
    )
    return trial, weights, counter


def test_both_ways_start_equal_and_restore() -> None:
    trial, weights, counter = tried([1.0, 1.0], [7.0, 1.0])
    assert trial == StepTrial(eager_s=0.02, graph_s=0.01, apart=0.0, noise=0.0)
    assert torch.equal(weights, torch.ones(4))
    assert counter == 0


def test_weight_distance_relative_to_movement() -> None:
    trial, _, _ = tried([2.0, 2.2], [0.0, 1.0])
    assert (trial.apart, trial.noise) == pytest.approx((0.5, 0.1))


def test_a_recording_that_fails_leaves_everything_as_it_was() -> None:
    weights = torch.ones(4)

    def record() -> None:
        weights.mul_(5)
        raise RuntimeError("not now")

    with pytest.raises(RuntimeError, match="not now"):
        try_both([weights], [weights], eager=way(weights, [1, 1], [1, 1]), record=record, graph=lambda: 0.0)
    assert torch.equal(weights, torch.ones(4))


@pytest.mark.parametrize(
    ("trial", "value", "said"),
    [
        (StepTrial(0.03, 0.01, apart=0.001, noise=0.0), GRAPH, "3,200 samples/s"),
        (StepTrial(0.03, 0.01, apart=0.051, noise=0.0), EAGER, "5.1%"),
        (StepTrial(0.03, 0.01, apart=0.08, noise=0.05), GRAPH, "8.00%"),
        (StepTrial(0.03, 0.01, apart=float("nan"), noise=0.0), EAGER, "nan"),
        (StepTrial(0.0105, 0.01, apart=0.0, noise=0.0), EAGER, "3,200 samples/s"),
    ],
)
def test_a_recording_must_agree_and_pay(trial: StepTrial, value: str, said: str) -> None:
    choice = judge(trial, batch_size=32)
    assert (choice.name, choice.value) == ("step", value)
    assert said in choice.reason
    assert choice.evidence["samples_per_s"][EAGER] == pytest.approx(32 / trial.eager_s, abs=0.1)


def test_few_steps_are_not_worth_recording() -> None:
    assert "would not pay" in str(too_few(FEWEST_STEPS - 1))
    assert too_few(FEWEST_STEPS) is None


def test_a_choice_is_kept_for_the_training_it_was_made_for(tmp_path: Path) -> None:
    assert load_choice(tmp_path, "this") is None
    save_choice(tmp_path, "this", Choice("step", GRAPH, "faster", {"apart": 0.0}))
    kept = load_choice(tmp_path, "this")
    assert kept is not None
    assert (kept.value, kept.evidence) == (GRAPH, {"apart": 0.0})
    assert FILE in kept.reason
    assert load_choice(tmp_path, "another") is None
    assert load_choice(None, "this") is None
