"""Which batch sizes are measured on the way to a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from errors import refused
from unchoke.machine.memory.line import fit_line
from unchoke.machine.memory.memory_plan import MemoryPlan, MemoryRequest, MemoryRoom
from unchoke.machine.memory.probe import ProbeResult, probe
from unchoke.machine.memory.search import Way, find_largest, plan_memory

if TYPE_CHECKING:
    from conftest import FakeMachine

MB, GB = 10**6, 10**9


def plan(machine: FakeMachine, limit_bytes: int, wanted: MemoryRequest, *, can_checkpoint: bool = True) -> MemoryPlan:
    machine.limit_bytes = limit_bytes
    return plan_memory(machine.measure, MemoryRoom(limit_bytes), wanted, num_samples=1000, can_checkpoint=can_checkpoint)


def tried(machine: FakeMachine, way: str) -> list[int]:
    return [batch for asked, batch in machine.asked if asked == way]


def test_two_small_batches_and_the_chosen_one_are_measured(machine: FakeMachine) -> None:
    found = plan(machine, 3 * GB, MemoryRequest(batch=32))
    assert found.sub_batch == 16
    assert tried(machine, "train") == [1, 4, 16]
    assert tried(machine, "evaluation") == [4, 16]
    assert not tried(machine, "train_ckpt")


def test_a_small_batch_needs_no_larger_one_measured(machine: FakeMachine) -> None:
    assert plan(machine, 3 * GB, MemoryRequest(batch=2)).sub_batch == 2
    assert tried(machine, "train") == [1, 2]


def test_checkpointing_is_measured_only_if_needed(machine: FakeMachine) -> None:
    assert plan(machine, 1500 * MB, MemoryRequest(batch=32)).grad_ckpt is False
    assert tried(machine, "train_ckpt")
    machine.asked.clear()
    plan(machine, 1500 * MB, MemoryRequest(batch=32, grad_ckpt=False))
    plan(machine, 1500 * MB, MemoryRequest(batch=32), can_checkpoint=False)
    assert not tried(machine, "train_ckpt")
    machine.asked.clear()
    plan(machine, 1500 * MB, MemoryRequest(batch=32, grad_ckpt=True))
    assert not tried(machine, "train")


def test_a_batch_between_is_tried_when_the_second_fails(machine: FakeMachine) -> None:
    machine.memory["train"] = (100 * MB, 400 * MB)
    assert plan(machine, 1100 * MB, MemoryRequest(batch=4), can_checkpoint=False).sub_batch == 2
    assert tried(machine, "train") == [1, 4, 2]


def test_a_chosen_batch_that_fails_after_all_is_halved(machine: FakeMachine) -> None:
    steps = {batch: 1000 * MB + 100 * MB * batch for batch in (1, 4)}
    machine.peak_bytes = lambda way, batch: steps.get(batch, 1000 * MB + 150 * MB * batch)  # type: ignore[method-assign]
    found = plan(machine, 3 * GB, MemoryRequest(batch=32), can_checkpoint=False)
    assert tried(machine, "train") == [1, 4, 16, 8]
    assert found.sub_batch == 8


def test_a_slow_machine_measures_no_step_of_minutes(machine: FakeMachine) -> None:
    machine.seconds["train"] = (0.0, 1.0)
    assert plan(machine, 9 * GB, MemoryRequest(batch=64)).sub_batch == 64
    assert max(tried(machine, "train")) == 10


def test_misfit_is_refused_before_evaluation(machine: FakeMachine) -> None:
    with refused("training-does-not-fit"):
        plan(machine, 500 * MB, MemoryRequest())
    assert not tried(machine, "evaluation")


def test_plan_from_real_processes_holds() -> None:
    limit_bytes, spec = 600 * MB, {"bytes_per_sample": 10 * MB}

    def measure(_: Way, batches: Sequence[int]) -> list[ProbeResult]:
        return probe("probe_bodies:allocate", spec, batches, timeout_s=60, limit_bytes=limit_bytes)

    found = plan_memory(
        measure, MemoryRoom(limit_bytes), MemoryRequest(batch=200), num_samples=1000, can_checkpoint=False, with_evaluation=False
    )
    assert 40 <= found.sub_batch <= 55
    (run,) = probe("probe_bodies:allocate", spec, [found.sub_batch - 3], timeout_s=60)
    assert run.measured is not None
    assert run.measured.peak_bytes == pytest.approx(found.line.at(found.sub_batch - 3), rel=0.1)
    assert run.measured.peak_bytes <= limit_bytes
    assert found.parts["overhead"] >= run.measured.parts["baseline"] * 0.9


@pytest.mark.campaign
def test_torch_step_takes_what_its_neighbours_foretell() -> None:
    """Within a quarter: a convolution's scratch memory and what the allocator keeps move each peak by up to a tenth."""
    found = probe("probe_bodies:train", {"px": 128}, [2, 8, 12], timeout_s=120)
    peaks = {one.batch: float(one.measured.peak_bytes) for one in found if one.measured}
    assert peaks[2] < peaks[8] < peaks[12]
    assert peaks[12] == pytest.approx(fit_line([(2, peaks[2]), (8, peaks[8])]).at(12), rel=0.25)
    assert peaks[8] == pytest.approx(fit_line([(2, peaks[2]), (12, peaks[12])]).at(8), rel=0.25)


def test_largest_batch_is_found_and_measured(machine: FakeMachine) -> None:
    found = find_largest(machine.measure, "train", MemoryRoom(3 * GB), at_most=1024)
    assert [one.batch for one in found] == [1, 4, 17]  # 3 GB less 8 % less 1 GB, at 100 MB each
    assert found[-1].fits


def test_largest_batch_keeps_count_and_time_limits(machine: FakeMachine) -> None:
    assert [one.batch for one in find_largest(machine.measure, "train", MemoryRoom(3 * GB), at_most=8)] == [1, 4, 8]
    machine.seconds["train"] = (0.0, 0.5)
    slow = find_largest(machine.measure, "train", MemoryRoom(3 * GB), at_most=1024, longest_s=4.0)
    assert [one.batch for one in slow] == [1, 4, 8]
