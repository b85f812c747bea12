"""A memory plan as text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unchoke.machine.memory.budget_text import render_outcome, render_plan, render_probes
from unchoke.machine.memory.memory_plan import MemoryPlan, MemoryRequest, MemoryRoom, Probes, choose_plan
from unchoke.machine.memory.probe import ProbeResult, StepCost

MB, GB = 10**6, 10**9


@pytest.fixture
def plan() -> MemoryPlan:
    parts = {"weights": 100 * MB, "gradients": 100 * MB, "optimizer": 200 * MB, "baseline": 300 * MB}
    train = tuple(ProbeResult(b, "ok", StepCost(1000 * MB + 100 * MB * b, 0.1 * b, parts)) for b in (1, 4))
    train += (ProbeResult(64, "out of memory", fact="CUDA out of memory"),)
    evaluation = tuple(ProbeResult(b, "ok", StepCost(900 * MB + 10 * MB * b, 0.01 * b, parts)) for b in (4, 16))
    return choose_plan(Probes(train, (), evaluation), MemoryRoom(3 * GB), MemoryRequest(batch=32), num_samples=1000)


def test_plan_shows_every_part_and_choice(plan: MemoryPlan) -> None:
    text = render_plan(plan)
    for name, size in [("weights", "100.0 MB"), ("activations", "1.6 GB"), ("cache", "0 B"), ("planned", "2.6 GB")]:
        assert any(line.split() == [name, *size.split()] for line in text.splitlines())
    assert "3.0 GB, of which 240.0 MB are a margin" in text
    assert all(reason in text for reason in plan.reasons.values())


def test_measurements_show_speed_and_failures(plan: MemoryPlan) -> None:
    text = render_probes(plan)
    assert "4 samples   1.4 GB, 400 ms a step, 10.0 samples/s" in text
    assert "64 samples  out of memory: CUDA out of memory" in text
    assert "with checkpointing" not in text


@pytest.mark.parametrize(
    ("share", "words"),
    [(1.0, "as planned, within"), (1.1, "10% more than planned, within"), (1.2, "over the limit of 3.0 GB by")],
)
def test_after_the_run_planned_stands_against_measured(plan: MemoryPlan, share: float, words: str) -> None:
    assert words in render_outcome(plan, int(plan.planned_bytes * share))


def test_what_was_counted_is_called_the_most_it_can_take(plan: MemoryPlan) -> None:
    counted = replace(plan, counted=True)
    assert "planned      at most 2.6 GB, counted" in render_plan(counted)
    assert "no more than that, within the limit" in render_outcome(counted, counted.planned_bytes // 2)
    assert "10% more than planned" in render_outcome(counted, int(counted.planned_bytes * 1.1))


def test_what_was_put_on_the_card_beside_the_plan_is_told(plan: MemoryPlan) -> None:
    text = render_outcome(plan, plan.planned_bytes + 2 * GB, beside_bytes=2 * GB)
    assert "2.0 GB: rows on the card and a recorded step" in text
    assert "as planned" in text
