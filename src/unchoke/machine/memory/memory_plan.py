"""What to run so that it fits: measured steps and a limit come in, a `MemoryPlan` with its reasons comes out.

The effective batch is settled first and never changed for memory's sake, since results depend on it. What memory decides is how
many of its samples run at once (`sub_batch`), whether activations are kept or computed again (`grad_ckpt`), and how many samples
evaluation takes at a time. Pure arithmetic over `ProbeResult` values: nothing runs here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from unchoke.core.choices import Choice
from unchoke.core.errors import MachineError
from unchoke.core.units import format_bytes, format_count, format_seconds
from unchoke.machine.memory.line import Line, fit_line
from unchoke.machine.memory.probe import ProbeResult

MARGIN_SHARE = 0.08
FAR_SHARE = 0.5
"""A bound below this share of the limit is far from it: what it leaves out is less than it leaves."""
PARTS = ("weights", "gradients", "optimizer", "activations", "cache", "overhead")
_SMALL_SHARE = 4  # a sub-batch below a quarter of the batch is worth a look at checkpointing
_SMALLEST_BATCH, _LARGEST_BATCH, _STEPS_PER_EPOCH = 8, 64, 32
_LARGEST_EVAL_BATCH = 256
_TRY = "a smaller --input-px, fewer trained blocks (a later --cut), or a larger --memory"


@dataclass(frozen=True)
class Probes:
    """What was measured: training steps, the same with gradient checkpointing (where that was tried), and evaluation."""

    train: tuple[ProbeResult, ...] = ()
    train_ckpt: tuple[ProbeResult, ...] = ()
    evaluation: tuple[ProbeResult, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Sequence[Mapping[str, Any]]]) -> Probes:
        return cls(**{name: tuple(ProbeResult.from_dict(one) for one in found) for name, found in values.items()})


@dataclass(frozen=True)
class MemoryRoom:
    """The limit, and what a run holds that a probe does not: a cache in memory, and what this process holds `beside` it."""

    limit_bytes: int
    cache_bytes: int = 0
    beside_bytes: int = 0
    margin_share: float = MARGIN_SHARE

    @property
    def margin_bytes(self) -> int:
        return math.ceil(self.limit_bytes * self.margin_share)

    @property
    def step_bytes(self) -> int:
        """What is left for a step, its process included."""
        return self.limit_bytes - self.margin_bytes - self.cache_bytes - self.beside_bytes


@dataclass(frozen=True)
class MemoryRequest:
    """What a person asked for; None leaves it to be chosen."""

    batch: int | None = None
    sub_batch: int | None = None
    eval_batch: int | None = None
    grad_ckpt: bool | None = None
    most_evaluated: int | None = None
    """Evaluation shows no more samples than this at once, whatever would fit."""

    def max_eval_batch(self, batch: int) -> int:
        """Beyond this a larger batch gains nothing."""
        return min(max(batch, min(4 * batch, _LARGEST_EVAL_BATCH)), self.most_evaluated or batch * _LARGEST_EVAL_BATCH)


@dataclass(frozen=True)
class MemoryPlan:
    """What will run and what it is expected to take. `parts` add up to `planned_bytes`, the peak of the whole."""

    limit_bytes: int
    margin_bytes: int
    batch: int
    sub_batch: int
    eval_batch: int
    grad_ckpt: bool
    parts: Mapping[str, int]
    planned_bytes: int
    line: Line
    eval_line: Line | None
    seconds_per_sample: float
    reasons: Mapping[str, str]
    probes: Probes = field(default_factory=Probes)
    counted: bool = False
    """Whether `planned_bytes` is the most it can take, found by counting, and nothing was measured."""

    @property
    def num_parts(self) -> int:
        """In how many parts a step runs."""
        return math.ceil(self.batch / self.sub_batch)

    @property
    def reason(self) -> str:
        return "; ".join(self.reasons.values())

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Each choice with its reason, as they are shown everywhere."""
        evidence = {"limit_bytes": self.limit_bytes, "planned_bytes": self.planned_bytes}
        return tuple(Choice(name, getattr(self, name), reason, evidence) for name, reason in self.reasons.items())

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> MemoryPlan:
        eval_line = values["eval_line"]
        read = {
            "line": Line.from_dict(values["line"]),
            "eval_line": None if eval_line is None else Line.from_dict(eval_line),
            "probes": Probes.from_dict(values["probes"]),
        }
        return cls(**{**values, **read})


@dataclass(frozen=True)
class StepMode:
    """One way of stepping, as measured: how memory and time grow with the batch, and how far that may be trusted."""

    memory: Line
    time: Line
    at_most: int
    """No larger batch, because one that failed was not far above."""
    whole: tuple[int, int] | None = None
    """The whole step at once, and what that took: less than the line says, since no other part's gradients lie beside it."""

    @classmethod
    def of(cls, probes: Sequence[ProbeResult], *, batch: int | None = None) -> StepMode | None:
        """None if nothing fitted. `batch` is the whole step: smaller sizes were measured as parts of it; the line is theirs."""
        good = [(one.batch, one.measured) for one in probes if one.measured is not None]
        if not good:
            return None
        failed = min((one.batch for one in probes if not one.fits), default=None)
        at_most = 2**31 if failed is None else max(good[-1][0], failed // 2)
        points = [(size, measured.peak_bytes) for size, measured in good]
        parts = [(size, peak) for size, peak in points if batch is None or size < batch]
        time = fit_line([(size, measured.seconds_per_step) for size, measured in good])
        whole = next(((size, peak) for size, peak in points if size == batch), None)
        memory = fit_line(parts if len(parts) > 1 else points)
        if whole and whole[1] > memory.at(whole[0]):  # parts take no less than the whole step
            memory = fit_line(points)
        return cls(memory, time, at_most, whole)

    def bytes_at(self, size: int) -> int:
        return self.whole[1] if self.whole and self.whole[0] == size else math.ceil(self.memory.at(size))

    def largest(self, room_bytes: int, *, at_most: int) -> int:
        if self.whole and self.whole[0] == at_most and self.whole[1] <= room_bytes:
            return at_most
        return self.memory.largest(room_bytes, at_most=min(at_most, self.at_most))

    def seconds_per_sample(self, batch: int) -> float:
        return self.time.at(batch) / batch


def default_batch(num_samples: int) -> int:
    """A power of two that leaves a small set enough steps in an epoch, and a large one no needless ones."""
    wanted = 1 << round(math.log2(max(1, num_samples / _STEPS_PER_EPOCH)))
    return max(1, min(num_samples, max(_SMALLEST_BATCH, min(_LARGEST_BATCH, wanted))))


def even_part(batch: int, largest: int) -> int:
    """The size of the parts when `batch` is cut into as few as `largest` allows, all alike but the last."""
    return math.ceil(batch / math.ceil(batch / largest))


def needs_checkpointing(train: Sequence[ProbeResult], room: MemoryRoom, *, batch: int) -> bool:
    """Whether gradient checkpointing is worth measuring: nothing fits without it, or only a small part of the batch."""
    mode = StepMode.of(train, batch=batch)
    return mode is None or mode.largest(room.step_bytes, at_most=batch) * _SMALL_SHARE < batch


def choose_plan(probes: Probes, room: MemoryRoom, wanted: MemoryRequest, *, num_samples: int) -> MemoryPlan:
    """The largest parts that fit, in the order of the module's docstring. `MachineError` with numbers where nothing does."""
    batch, why_batch = _batch(wanted, num_samples)
    plain, ckpt = StepMode.of(probes.train, batch=batch), StepMode.of(probes.train_ckpt, batch=batch)
    grad_ckpt, why_ckpt = _grad_ckpt(plain, ckpt, probes, room, wanted, batch=batch)
    mode = ckpt if grad_ckpt else plain
    assert mode is not None
    sub_batch, why_sub = _sub_batch(mode, room, wanted, batch=batch)
    evaluation = StepMode.of(probes.evaluation)
    step_bytes = mode.bytes_at(sub_batch)
    eval_batch, why_eval = _eval_batch(probes, room, wanted, batch=batch, sub_batch=sub_batch, step_bytes=step_bytes)
    eval_bytes = 0 if evaluation is None else evaluation.bytes_at(eval_batch)
    parts = _parts(probes.train_ckpt if grad_ckpt else probes.train, mode.memory, max(step_bytes, eval_bytes), room)
    return MemoryPlan(
        limit_bytes=room.limit_bytes,
        margin_bytes=room.margin_bytes,
        batch=batch,
        sub_batch=sub_batch,
        eval_batch=eval_batch,
        grad_ckpt=grad_ckpt,
        parts=parts,
        planned_bytes=sum(parts.values()),
        line=mode.memory,
        eval_line=None if evaluation is None else evaluation.memory,
        seconds_per_sample=mode.seconds_per_sample(sub_batch),
        reasons={"batch": why_batch, "sub_batch": why_sub, "grad_ckpt": why_ckpt, "eval_batch": why_eval},
        probes=probes,
    )


def choose_counted(counted: Probes, room: MemoryRoom, wanted: MemoryRequest, *, num_samples: int) -> MemoryPlan | None:
    """The plan for bounds that were `counted`, not measured; None unless all of them are far below the limit."""
    train = counted.train_ckpt or counted.train
    most = max(one.measured.peak_bytes for one in (*train[:1], *counted.evaluation) if one.measured is not None)
    if most + room.cache_bytes + room.beside_bytes > FAR_SHARE * room.limit_bytes:
        return None
    plan = choose_plan(counted, room, wanted, num_samples=num_samples)
    why = "given" if wanted.grad_ckpt is not None else "not needed: activations fit"
    return replace(plan, reasons={**plan.reasons, "grad_ckpt": why}, probes=Probes(), counted=True)


def _batch(wanted: MemoryRequest, num_samples: int) -> tuple[int, str]:
    if wanted.batch is not None:
        return wanted.batch, "given"
    return default_batch(num_samples), f"for {format_count(num_samples, 'sample')}"


def _grad_ckpt(
    plain: StepMode | None, ckpt: StepMode | None, probes: Probes, room: MemoryRoom, wanted: MemoryRequest, *, batch: int
) -> tuple[bool, str]:
    without = plain.largest(room.step_bytes, at_most=batch) if plain else 0
    with_it = ckpt.largest(room.step_bytes, at_most=batch) if ckpt else 0
    if not (with_it if wanted.grad_ckpt else without or (wanted.grad_ckpt is None and with_it)):
        raise _nothing_fits(probes, room, wanted)
    if wanted.grad_ckpt is not None:
        return wanted.grad_ckpt, "given"
    if not without or plain is None:
        return True, f"without it {_smallest(probes.train)}"
    if not with_it or ckpt is None:
        return False, "not needed: activations fit" if without * _SMALL_SHARE >= batch else "this network offers none that helps"
    kept, again = plain.seconds_per_sample(even_part(batch, without)), ckpt.seconds_per_sample(even_part(batch, with_it))
    compared = f"{format_seconds(again)} a sample with {with_it} at once, {format_seconds(kept)} with {without} and all kept"
    return again < kept, f"{'faster' if again < kept else 'not faster'}: {compared}"


def _sub_batch(mode: StepMode, room: MemoryRoom, wanted: MemoryRequest, *, batch: int) -> tuple[int, str]:
    if wanted.sub_batch is not None:
        sub_batch = min(wanted.sub_batch, batch)
        _refuse_too_large("--sub-batch", sub_batch, mode, room)
        return sub_batch, "given"
    largest = mode.largest(room.step_bytes, at_most=batch)
    if largest >= batch:
        return batch, "the whole step fits at once"
    sub_batch = even_part(batch, largest)
    left = f"{format_bytes(room.step_bytes)} are left of {format_bytes(room.limit_bytes)}"
    return sub_batch, f"{batch} at once would take {format_bytes(mode.bytes_at(batch))}, {left}"


def _eval_batch(
    probes: Probes, room: MemoryRoom, wanted: MemoryRequest, *, batch: int, sub_batch: int, step_bytes: int
) -> tuple[int, str]:
    """More than in training, but no more than what a training step has taken anyway: the peak stays where it was measured."""
    mode = StepMode.of(probes.evaluation)
    if wanted.eval_batch is not None:
        if mode is not None:
            _refuse_too_large("--eval-batch", wanted.eval_batch, mode, room)
        return wanted.eval_batch, "given"
    if mode is None:
        failed = min((one.batch for one in probes.evaluation), default=2 * sub_batch)
        return max(1, min(sub_batch, failed // 2)), "no more than in training: it was not measured by itself"
    most = wanted.max_eval_batch(batch)
    largest = mode.largest(min(room.step_bytes, max(step_bytes, mode.bytes_at(sub_batch))), at_most=most)
    if not largest:
        _refuse_too_large("--eval-batch", 1, mode, room)
    if largest == wanted.most_evaluated:
        return largest, "there are no more to judge at once: a split is judged in several parts"
    if largest < sub_batch:
        return largest, "as many as fit"
    return max(sub_batch, 1 << largest.bit_length() - 1), "no gradients are kept, so more fit in what a training step takes"


def _refuse_too_large(option: str, size: int, mode: StepMode, room: MemoryRoom) -> None:
    largest = mode.largest(room.step_bytes, at_most=size)
    if largest < size:
        raise MachineError(
            f"{option} {size} does not fit in {format_bytes(room.limit_bytes)}",
            code="batch-does-not-fit",
            why=f"it would take about {format_bytes(mode.bytes_at(size))}, and {_left(room)}",
            try_=f"{option} {largest}" if largest else _TRY,
        )


def _nothing_fits(probes: Probes, room: MemoryRoom, wanted: MemoryRequest) -> MachineError:
    tried = [f"without gradient checkpointing {_smallest(probes.train)}"] if probes.train else []
    tried += [f"with it {_smallest(probes.train_ckpt)}"] if probes.train_ckpt else []
    remedy = f"--grad-ckpt, or {_TRY}" if wanted.grad_ckpt is False else _TRY
    return MachineError(
        f"training does not fit in {format_bytes(room.limit_bytes)}, not even one sample at a time",
        code="training-does-not-fit",
        why=f"{'; '.join(tried) or 'nothing was measured'}; {_left(room)}",
        try_=remedy,
    )


def _left(room: MemoryRoom) -> str:
    """The room for a step in words, with what was taken off."""
    off = [(room.margin_bytes, f"a margin of {room.margin_share:.0%}"), (room.cache_bytes, "the cache"),
           (room.beside_bytes, "what this process holds beside it")]  # fmt: skip
    taken = ", ".join(f"{format_bytes(size)} for {what}" for size, what in off if size)
    return f"{format_bytes(max(0, room.step_bytes))} are left for a step{f' after {taken}' if taken else ''}"


def _smallest(probes: Sequence[ProbeResult]) -> str:
    """What the smallest step that was tried takes, in words."""
    if not probes:
        return "nothing fits"
    least = min(probes, key=lambda one: one.batch)
    samples = format_count(least.batch, "sample")
    if least.measured is None:
        return f"{samples} did not fit ({least.fact})"
    return f"{samples} {'takes' if least.batch == 1 else 'take'} {format_bytes(least.measured.peak_bytes)}"


def _parts(probes: Sequence[ProbeResult], line: Line, planned_bytes: int, room: MemoryRoom) -> dict[str, int]:
    """What the planned peak is made of. What grows with the batch are activations; what nothing explains is overhead."""
    measured = [one.measured.parts for one in probes if one.measured is not None][-1]
    parts, rest = {}, planned_bytes
    for name in ("weights", "gradients", "optimizer", "cache"):
        parts[name] = min(rest, measured.get(name, 0))
        rest -= parts[name]
    fixed = max(measured.get("baseline", 0), line.fixed - sum(parts.values()))
    overhead = min(rest, math.ceil(fixed))
    parts |= {"activations": rest - overhead, "overhead": overhead + room.beside_bytes}
    parts["cache"] += room.cache_bytes
    return {name: parts[name] for name in PARTS}
