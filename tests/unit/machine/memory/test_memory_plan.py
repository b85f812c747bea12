"""Choosing under a limit, with the reasons and the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from errors import refused
from unchoke.machine.memory.memory_plan import (
    PARTS,
    MemoryPlan,
    MemoryRequest,
    MemoryRoom,
    Probes,
    choose_counted,
    choose_plan,
    default_batch,
    even_part,
    needs_checkpointing,
)
from unchoke.machine.memory.probe import ProbeResult

if TYPE_CHECKING:
    from conftest import FakeMachine

MB, GB = 10**6, 10**9


def probes(machine: FakeMachine, *, ckpt: bool = False, batches: tuple[int, ...] = (1, 4, 8)) -> Probes:
    return Probes(
        tuple(machine.measure("train", batches)),
        tuple(machine.measure("train_ckpt", batches)) if ckpt else (),
        tuple(machine.measure("evaluation", (4, 16))),
    )


def test_a_step_that_fits_runs_whole(machine: FakeMachine) -> None:
    plan = choose_plan(probes(machine), MemoryRoom(8 * GB), MemoryRequest(batch=32), num_samples=1000)
    assert (plan.batch, plan.sub_batch, plan.num_parts, plan.grad_ckpt) == (32, 32, 1, False)
    assert plan.planned_bytes == machine.peak_bytes("train", 32)
    assert "whole step" in plan.reasons["sub_batch"]


def test_a_step_that_does_not_is_cut_into_equal_parts(machine: FakeMachine) -> None:
    plan = choose_plan(probes(machine), MemoryRoom(3 * GB), MemoryRequest(batch=32), num_samples=1000)
    assert plan.sub_batch == 16  # 17 would fit, but leave a part of 15 behind
    assert plan.num_parts == 2
    assert machine.peak_bytes("train", plan.sub_batch) <= 3 * GB - plan.margin_bytes
    assert "4.2 GB" in plan.reasons["sub_batch"]


def test_the_batch_is_never_changed_for_memory(machine: FakeMachine) -> None:
    found = probes(machine)
    assert {choose_plan(found, MemoryRoom(gb * GB), MemoryRequest(), num_samples=2000).batch for gb in (2, 3, 8)} == {64}


def test_parts_add_up_to_the_plan(machine: FakeMachine) -> None:
    plan = choose_plan(
        probes(machine), MemoryRoom(8 * GB, cache_bytes=70 * MB, beside_bytes=30 * MB), MemoryRequest(batch=8), num_samples=1000
    )
    assert tuple(plan.parts) == PARTS
    assert sum(plan.parts.values()) == plan.planned_bytes == machine.peak_bytes("train", 8) + 100 * MB
    assert plan.parts["weights"] == 100 * MB
    assert plan.parts["optimizer"] == 200 * MB
    assert plan.parts["cache"] == 70 * MB
    assert plan.parts["activations"] == pytest.approx(800 * MB, rel=0.01)
    assert plan.parts["overhead"] == pytest.approx(630 * MB, rel=0.01)


def test_evaluation_batch_is_larger_within_the_memory(machine: FakeMachine) -> None:
    plan = choose_plan(probes(machine), MemoryRoom(2500 * MB), MemoryRequest(batch=32), num_samples=1000)
    assert (plan.sub_batch, plan.eval_batch) == (11, 64)
    assert machine.peak_bytes("evaluation", 64) <= machine.peak_bytes("train", 11) == plan.planned_bytes
    assert plan.planned_bytes <= 2500 * MB - plan.margin_bytes
    tight = choose_plan(probes(machine), MemoryRoom(1200 * MB), MemoryRequest(batch=32), num_samples=1000)
    assert tight.eval_batch == 16


def test_unmeasured_evaluation_takes_what_training_takes(machine: FakeMachine) -> None:
    found = Probes(tuple(machine.measure("train", (1, 4))))
    assert choose_plan(found, MemoryRoom(8 * GB), MemoryRequest(batch=16), num_samples=100).eval_batch == 16
    failed = Probes(found.train, evaluation=(ProbeResult(4, "killed", fact="gone"),))
    assert choose_plan(failed, MemoryRoom(8 * GB), MemoryRequest(batch=16), num_samples=100).eval_batch == 2


def test_checkpointing_is_chosen_when_nothing_else_fits(machine: FakeMachine) -> None:
    machine.memory["train"] = (1000 * MB, 3000 * MB)
    found = probes(machine, ckpt=True)
    plan = choose_plan(found, MemoryRoom(2 * GB), MemoryRequest(batch=16), num_samples=1000)
    assert (plan.grad_ckpt, plan.sub_batch) == (True, 16)
    assert "4.0 GB" in plan.reasons["grad_ckpt"]


@pytest.mark.parametrize(("again_s", "chosen"), [(0.004, True), (0.5, False)])
def test_clock_decides_between_parts_and_checkpointing(machine: FakeMachine, again_s: float, chosen: bool) -> None:
    machine.seconds["train_ckpt"] = (0.0, again_s)
    plan = choose_plan(probes(machine, ckpt=True), MemoryRoom(1500 * MB), MemoryRequest(batch=32), num_samples=1000)
    assert plan.grad_ckpt is chosen
    assert "a sample" in plan.reasons["grad_ckpt"]


def test_checkpointing_is_measured_where_little_fits(machine: FakeMachine) -> None:
    train = machine.measure("train", (1, 4))
    assert not needs_checkpointing(train, MemoryRoom(8 * GB), batch=32)
    assert not needs_checkpointing(train, MemoryRoom(2 * GB), batch=32)
    assert needs_checkpointing(train, MemoryRoom(1500 * MB), batch=32)
    assert needs_checkpointing([ProbeResult(1, "killed")], MemoryRoom(8 * GB), batch=32)


def test_small_parts_without_checkpointing_say_why(machine: FakeMachine) -> None:
    plan = choose_plan(probes(machine), MemoryRoom(1500 * MB), MemoryRequest(batch=32), num_samples=1000)
    assert (plan.grad_ckpt, plan.sub_batch) == (False, 3)
    assert "offers none" in plan.reasons["grad_ckpt"]


def test_what_was_asked_for_is_kept(machine: FakeMachine) -> None:
    wanted = MemoryRequest(batch=24, sub_batch=5, eval_batch=7, grad_ckpt=True)
    plan = choose_plan(probes(machine, ckpt=True), MemoryRoom(8 * GB), wanted, num_samples=1000)
    assert (plan.batch, plan.sub_batch, plan.eval_batch, plan.grad_ckpt) == (24, 5, 7, True)
    assert set(plan.reasons.values()) == {"given"}


@pytest.mark.parametrize("wanted", [MemoryRequest(batch=64, sub_batch=40), MemoryRequest(batch=8, eval_batch=400)])
def test_misfit_is_refused_with_what_would_fit(machine: FakeMachine, wanted: MemoryRequest) -> None:
    with refused("batch-does-not-fit") as caught:
        choose_plan(probes(machine), MemoryRoom(4 * GB), wanted, num_samples=1000)
    option, _, largest = caught.value.try_.rpartition(" ")
    fitting = MemoryRequest(wanted.batch, **{option.removeprefix("--").replace("-", "_"): int(largest)})
    choose_plan(probes(machine), MemoryRoom(4 * GB), fitting, num_samples=1000)


def test_nothing_that_fits_is_refused_with_the_numbers(machine: FakeMachine) -> None:
    with refused("training-does-not-fit") as caught:
        choose_plan(probes(machine, ckpt=True), MemoryRoom(1 * GB), MemoryRequest(), num_samples=1000)
    assert "1.0 GB" in caught.value.what
    assert "1 sample takes 1.1 GB" in caught.value.why
    assert "1.0 GB" in caught.value.why
    assert "920.0 MB are left" in caught.value.why
    assert "--input-px" in caught.value.try_
    with refused("training-does-not-fit") as caught:
        choose_plan(probes(machine), MemoryRoom(1 * GB), MemoryRequest(grad_ckpt=False), num_samples=1000)
    assert "--grad-ckpt" in caught.value.try_


def test_failed_batch_bounds_the_choice(machine: FakeMachine) -> None:
    train = (*machine.measure("train", (1, 4)), ProbeResult(24, "killed", fact="gone"))
    plan = choose_plan(Probes(train), MemoryRoom(100 * GB), MemoryRequest(batch=64), num_samples=1000)
    assert plan.sub_batch <= 12


@pytest.mark.parametrize(("num_samples", "batch"), [(1, 1), (5, 5), (10, 8), (300, 8), (1000, 32), (2000, 64), (100_000, 64)])
def test_the_default_batch_suits_the_number_of_samples(num_samples: int, batch: int) -> None:
    assert default_batch(num_samples) == batch


@pytest.mark.parametrize(
    ("batch", "largest", "part"), [(32, 32, 32), (32, 31, 16), (32, 17, 16), (33, 16, 11), (7, 4, 4), (5, 1, 1)]
)
def test_parts_are_as_even_as_they_can_be(batch: int, largest: int, part: int) -> None:
    assert even_part(batch, largest) == part


def test_a_plan_is_read_back_from_plain_values(machine: FakeMachine) -> None:
    import json

    plan = choose_plan(probes(machine, ckpt=True), MemoryRoom(3 * GB), MemoryRequest(), num_samples=1000)
    assert MemoryPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


def test_a_plan_kept_before_plans_were_counted_was_measured(machine: FakeMachine) -> None:
    plan = choose_plan(probes(machine), MemoryRoom(3 * GB), MemoryRequest(), num_samples=1000)
    assert MemoryPlan.from_dict({name: value for name, value in plan.to_dict().items() if name != "counted"}) == plan


def counted(machine: FakeMachine, room: MemoryRoom, **wanted: Any) -> MemoryPlan | None:
    request = MemoryRequest(8, **wanted)
    bounds = probes(machine, batches=(request.sub_batch, 8) if request.sub_batch else (8,))
    return choose_counted(bounds, room, request, num_samples=1000)


def test_bounds_far_below_the_limit_are_plan_enough(machine: FakeMachine) -> None:
    plan = counted(machine, MemoryRoom(4 * GB))
    assert plan is not None
    assert (plan.counted, plan.sub_batch, plan.grad_ckpt, plan.probes) == (True, 8, False, Probes())
    assert plan.planned_bytes == machine.peak_bytes("train", 8) == sum(plan.parts.values())


def test_bounds_near_the_limit_are_none(machine: FakeMachine) -> None:
    peak = machine.peak_bytes("train", 8)
    assert counted(machine, MemoryRoom(2 * peak)) is not None
    assert counted(machine, MemoryRoom(2 * peak - 1)) is None
    assert counted(machine, MemoryRoom(2 * peak, cache_bytes=1)) is None
    assert counted(machine, MemoryRoom(2 * peak, beside_bytes=1)) is None
    assert counted(machine, MemoryRoom(2 * peak - 1), sub_batch=4) is not None


def test_every_choice_has_its_reason(machine: FakeMachine) -> None:
    plan = choose_plan(probes(machine), MemoryRoom(3 * GB), MemoryRequest(), num_samples=1000)
    assert [choice.name for choice in plan.choices] == ["batch", "sub_batch", "grad_ckpt", "eval_batch"]
    assert all(choice.reason and choice.value == getattr(plan, choice.name) for choice in plan.choices)


def test_whole_step_as_measured_parts_by_their_line(machine: FakeMachine) -> None:
    """A part runs beside the gradients of the one before it; the whole step does not, so it takes less than their line says."""
    parts = tuple(machine.measure("train", (1, 4)))
    machine.memory["train"] = (800 * MB, 100 * MB)
    whole = machine.one("train", 16)
    found = Probes((*parts, whole))
    plan = choose_plan(found, MemoryRoom(4 * GB), MemoryRequest(batch=16), num_samples=1000)
    assert (plan.sub_batch, plan.planned_bytes) == (16, 2_400 * MB)
    split = choose_plan(found, MemoryRoom(2_500 * MB), MemoryRequest(batch=16), num_samples=1000)
    assert (split.sub_batch, split.planned_bytes) == (8, 1_800 * MB)


def test_evaluation_batch_is_at_most_all_samples(machine: FakeMachine) -> None:
    plan = choose_plan(probes(machine), MemoryRoom(8 * GB), MemoryRequest(batch=32, most_evaluated=10), num_samples=1000)
    assert plan.eval_batch == 10
    assert choose_plan(probes(machine), MemoryRoom(8 * GB), MemoryRequest(batch=32), num_samples=1000).eval_batch == 128
