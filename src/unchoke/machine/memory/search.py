"""Which batch sizes to measure on the way to a plan: as few as tell, and the chosen one among them where that is quick.

Handed a callable that measures, it asks for small batches first, then for the one the line through them suggests. Gradient
checkpointing is measured only where it may be needed. What a step is and where it runs is the callable's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from unchoke.machine.memory.memory_plan import (
    MemoryPlan,
    MemoryRequest,
    MemoryRoom,
    Probes,
    StepMode,
    choose_plan,
    default_batch,
    even_part,
    needs_checkpointing,
)
from unchoke.machine.memory.probe import ProbeResult

Way = Literal["train", "train_ckpt", "evaluation"]
Measure = Callable[[Way, Sequence[int]], list[ProbeResult]]

_FIRST = (1, 4)
_FIRST_EVALUATION = (4, 16)
_LONGEST_STEP_S = 10.0
_TRIES = 2


def plan_memory(
    measure: Measure,
    room: MemoryRoom,
    wanted: MemoryRequest,
    *,
    num_samples: int,
    can_checkpoint: bool,
    with_evaluation: bool = True,
) -> MemoryPlan:
    """Measure what is needed and choose. `measure(way, batches)` tries batch sizes from small to large, as `probe` does.

    `MachineError` with numbers where not even one sample fits.
    """
    batch = wanted.batch or default_batch(num_samples)
    train: list[ProbeResult] = []
    train_ckpt: list[ProbeResult] = []
    if not wanted.grad_ckpt:
        train = _search(measure, "train", room, batch=batch)
    may_checkpoint = can_checkpoint and wanted.grad_ckpt is not False
    if may_checkpoint and (wanted.grad_ckpt or needs_checkpointing(train, room, batch=batch)):
        train_ckpt = _search(measure, "train_ckpt", room, batch=batch)
    plan = choose_plan(Probes(tuple(train), tuple(train_ckpt)), room, wanted, num_samples=num_samples)
    if not with_evaluation:
        return plan
    evaluation = measure("evaluation", _up_to(_most_evaluated(wanted, batch), _FIRST_EVALUATION))
    return choose_plan(Probes(tuple(train), tuple(train_ckpt), tuple(evaluation)), room, wanted, num_samples=num_samples)


def first_sizes(wanted: MemoryRequest, *, can_checkpoint: bool, with_evaluation: bool) -> list[tuple[Way, int]]:
    """What `plan_memory` asks for whatever the answers are, as long as they fit."""
    batch = wanted.batch or 1
    way: Way = "train_ckpt" if can_checkpoint and wanted.grad_ckpt else "train"
    evaluation = _up_to(_most_evaluated(wanted, batch), _FIRST_EVALUATION) if with_evaluation else []
    return [*((way, size) for size in _up_to(batch, _FIRST)), *(("evaluation", size) for size in evaluation)]


def _most_evaluated(wanted: MemoryRequest, batch: int) -> int:
    return max(wanted.max_eval_batch(batch), wanted.eval_batch or 0)


def find_largest(
    measure: Measure,
    way: Way,
    room: MemoryRoom,
    *,
    at_most: int,
    first: Sequence[int] = _FIRST,
    longest_s: float = _LONGEST_STEP_S,
) -> list[ProbeResult]:
    """Measure whole steps on the way to the largest batch that fits at once; one that would take `longest_s` is not tried."""
    found = measure(way, _up_to(at_most, first))
    return _go_on(measure, way, found, lambda points: _candidate(points, room, at_most=at_most, longest_s=longest_s))


def _search(measure: Measure, way: Way, room: MemoryRoom, *, batch: int) -> list[ProbeResult]:
    """Small batches, then the one that looks right; if that fails after all, half of it."""
    found = measure(way, _up_to(batch, _FIRST))
    return _go_on(measure, way, found, lambda points: _candidate(points, room, at_most=batch, parts_of=batch))


def _go_on(
    measure: Measure, way: Way, found: list[ProbeResult], candidate_of: Callable[[list[ProbeResult]], int | None]
) -> list[ProbeResult]:
    for _ in range(_TRIES):
        candidate = candidate_of(found)
        if candidate is None:
            break
        newest = measure(way, [candidate])
        found = sorted([*found, *newest], key=lambda one: one.batch)
        if newest[-1].fits:
            break
    return found


def _candidate(
    found: Sequence[ProbeResult],
    room: MemoryRoom,
    *,
    at_most: int,
    parts_of: int | None = None,
    longest_s: float = _LONGEST_STEP_S,
) -> int | None:
    """The size the points so far suggest, or less where its step would take long; None if that is known already.

    With `parts_of`, sizes are parts of a step of that batch, all alike.
    """
    good, failed = [one.batch for one in found if one.fits], [one.batch for one in found if not one.fits]
    mode = StepMode.of(found, batch=parts_of)
    if mode is None:
        return None
    if len(good) == 1 and failed:  # one point tells nothing of what a further sample takes
        return min(failed) // 2 if min(failed) // 2 > good[0] else None
    if not (largest := mode.largest(room.step_bytes, at_most=at_most)):
        return None
    fitting = largest if parts_of is None else even_part(parts_of, largest)
    candidate = min(fitting, max(1, mode.time.largest(longest_s, at_most=at_most)))
    return candidate if candidate > max(good) else None


def _up_to(largest: int, batches: Sequence[int]) -> list[int]:
    return sorted({min(batch, largest) for batch in batches})
