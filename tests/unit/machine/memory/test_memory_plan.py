"""Choosing under a limit, with the reasons and the numbers."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unchoke.machine.memory.memory_plan import (
    MemoryPlan,
    MemoryRoom,
    StepCost,
    does_not_fit,
    largest_fitting,
    make_plan,
    render_outcome,
    render_plan,
)

MB, GB = 10**6, 10**9
PARTS = {"weights": 100 * MB, "gradients": 100 * MB, "optimizer": 200 * MB, "baseline": 300 * MB}
REASONS = {"sub_batch": "as measured", "grad_ckpt": "not needed", "eval_batch": "given"}


def cost(batch: int) -> StepCost:
    return StepCost(batch, 1000 * MB + 100 * MB * batch, 0.01 * batch, PARTS, 2 * batch)


def plan(room: MemoryRoom) -> MemoryPlan:
    return make_plan(cost(8), room, batch=32, eval_batch=16, grad_ckpt=False, reasons=REASONS, measured=(cost(4), cost(8)))


def test_parts_add_up_to_the_plan() -> None:
    found = plan(MemoryRoom(8 * GB, cache_bytes=70 * MB, beside_bytes=30 * MB))
    assert sum(found.parts.values()) == found.planned_bytes == cost(8).peak_bytes + 100 * MB
    expected = {"weights": 100, "optimizer": 200, "cache": 70, "overhead": 330, "activations": 1100}
    assert {name: found.parts[name] for name in expected} == {name: size * MB for name, size in expected.items()}


def test_what_this_process_holds_beyond_a_bare_one_counts() -> None:
    room = MemoryRoom(2 * GB, process_bytes=400 * MB)
    assert (room.held_beside(300 * MB), room.held_beside(500 * MB)) == (100 * MB, 0)
    assert room.step_bytes(300 * MB) == 2 * GB - room.margin_bytes - 100 * MB
    assert plan(room).parts["overhead"] == 400 * MB


@given(st.lists(st.integers(1, 64), unique=True).map(sorted), st.integers(1, 20_000), st.integers(0, 20_000))
def test_more_memory_never_allows_less(sizes: list[int], limit: int, more: int) -> None:
    costs, room = [cost(size) for size in sizes], MemoryRoom(limit * MB)
    best, better = largest_fitting(costs, room), largest_fitting(costs, MemoryRoom((limit + more) * MB))
    if best is not None:
        assert best.peak_bytes <= room.limit_bytes - room.margin_bytes
        assert better is not None and better.batch >= best.batch


def test_refusals_have_the_numbers() -> None:
    room = MemoryRoom(1 * GB)
    refusal = does_not_fit("", [cost(1)], None, room, "", ckpt=False)
    assert (refusal.code, "--grad-ckpt" in refusal.try_) == ("training-does-not-fit", True)
    assert all(words in f"{refusal.what} {refusal.why}" for words in ("1.0 GB", "1 sample takes 1.1 GB", "920.0 MB are left"))
    gone = does_not_fit("", [], None, room, "gone", ckpt=True)
    assert "gone" in gone.why
    assert "--grad-ckpt" not in gone.try_
    refusal = does_not_fit("--sub-batch 16", [cost(16), cost(4)], cost(4), MemoryRoom(2 * GB), "", ckpt=False)
    assert (refusal.code, refusal.try_) == ("batch-does-not-fit", "--sub-batch 4")


def test_plan_is_read_back_and_so_is_one_of_an_earlier_version() -> None:
    found = plan(MemoryRoom(3 * GB))
    kept = json.loads(json.dumps(found.to_dict()))
    assert MemoryPlan.from_dict(kept) == found
    earlier = {name: value for name, value in kept.items() if name not in ("measured", "counted")}
    earlier |= {"line": {"fixed": 1.0}, "eval_line": None, "seconds_per_sample": 0.1, "probes": {"train": []}}
    assert MemoryPlan.from_dict(earlier) == replace(found, measured=())


def test_every_choice_is_told_with_its_reason() -> None:
    found = plan(MemoryRoom(3 * GB))
    assert [(choice.name, choice.value, choice.reason) for choice in found.choices] == [
        ("sub_batch", 8, "as measured"), ("grad_ckpt", False, "not needed"), ("eval_batch", 16, "given"),
    ]  # fmt: skip
    text = render_plan(found)
    assert all(words in text for words in ("weights", "activations", "planned", "limit", "margin", "no  (not needed)"))


@pytest.mark.parametrize(
    ("measured_mb", "words"),
    [(1800, "as planned, within"), (1900, "6% more than planned, within"), (3100, "over the limit of 3.0 GB by 100.0 MB")],
)
def test_planned_against_measured(measured_mb: int, words: str) -> None:
    assert words in render_outcome(plan(MemoryRoom(3 * GB)), measured_mb * MB)
