"""What to run so that it fits: a limit and measured (or counted) steps come in, a `MemoryPlan` with its reasons comes out.

The batch is settled before and never changed for memory's sake, since results depend on it. What memory decides is the size of
the micro-batches (`sub_batch`), whether activations are kept or computed again (`grad_ckpt`), and how many samples evaluation
takes at once. The last part renders plans as text. Nothing runs here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from unchoke.core.choices import Choice
from unchoke.core.errors import MachineError
from unchoke.core.units import format_bytes, format_count, format_seconds
from unchoke.machine.backend import device_room_bytes, is_cpu, limit_memory

if TYPE_CHECKING:
    import torch

MARGIN_SHARE = 0.08
FAR_SHARE = 0.5
"""A bound below this share of the limit is far from it: nothing has to be measured."""
FEW_SHARE = 4
"""Micro-batches below a quarter of the batch are worth a look at gradient checkpointing."""
_FREE_SHARE = 0.8
_TRY = "a smaller --input-px, fewer trained blocks (a later --cut), --ema 0, or a larger --memory"


@dataclass(frozen=True)
class MemoryLimit:
    """How much may be taken. `given` ones are kept to: enforced where the device can, watched where it cannot."""

    num_bytes: int
    given: bool
    choice: Choice

    def enforced_bytes(self, device: torch.device) -> int | None:
        """What the device's allocator is told to keep to; a CPU has none to tell."""
        return self.num_bytes if self.given and not is_cpu(device) else None


def choose_limit(device: torch.device, asked: int | None) -> MemoryLimit:
    """The limit that was asked for, refused where there is not that much; else what is there for the taking."""
    if asked is not None:
        return MemoryLimit(asked, True, limit_memory(device, asked))
    num_bytes = room = device_room_bytes(device)
    reason = f"what {device} has and nobody else holds; --memory sets a lower limit"
    if is_cpu(device):
        num_bytes = int(room * _FREE_SHARE)
        reason = f"{_FREE_SHARE:.0%} of the {format_bytes(room)} that are free now; --memory sets another limit"
    return MemoryLimit(num_bytes, False, Choice("memory", format_bytes(num_bytes), reason, {"limit_bytes": num_bytes}))


@dataclass(frozen=True)
class MemoryRoom:
    """The limit, and what a run holds that a measured process does not: a cache, and what this process holds `beside` it.

    `process_bytes` is a CPU process that goes on with the run: what it holds beyond a bare one counts.
    """

    limit_bytes: int
    cache_bytes: int = 0
    beside_bytes: int = 0
    process_bytes: int = 0

    @property
    def margin_bytes(self) -> int:
        return math.ceil(self.limit_bytes * MARGIN_SHARE)

    def held_beside(self, bare_bytes: int) -> int:
        return self.beside_bytes + max(0, self.process_bytes - bare_bytes if self.process_bytes else 0)

    def step_bytes(self, bare_bytes: int) -> int:
        """What is left for a step, its process included, which took `bare_bytes` before the network."""
        return self.limit_bytes - self.margin_bytes - self.cache_bytes - self.held_beside(bare_bytes)


@dataclass(frozen=True)
class StepCost:
    """What `batch` samples at once took: the peak of the whole process (or device), seconds, and known parts in bytes by name:
    weights, gradients, optimizer, and baseline (what was there before the network).
    """

    batch: int
    peak_bytes: int
    seconds: float = 0.0
    parts: Mapping[str, int] = field(default_factory=dict)
    eval_batch: int = 0
    """How many samples were evaluated at once beside it."""

    def fits(self, room: MemoryRoom) -> bool:
        return self.peak_bytes <= room.step_bytes(self.parts.get("baseline", 0))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def largest_fitting(costs: Sequence[StepCost], room: MemoryRoom) -> StepCost | None:
    return max((one for one in costs if one.fits(room)), key=lambda one: one.batch, default=None)


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
    reasons: Mapping[str, str]
    measured: tuple[StepCost, ...] = ()
    counted: bool = False
    """Whether `planned_bytes` is the most it can take, found by counting, and nothing was measured."""

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Each choice with its reason, as they are shown everywhere."""
        evidence = {"limit_bytes": self.limit_bytes, "planned_bytes": self.planned_bytes}
        return tuple(Choice(name, getattr(self, name), reason, evidence) for name, reason in self.reasons.items())

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> MemoryPlan:
        """Plans of earlier versions said more; what they measured is not read again."""
        known = {name: values[name] for name in (one.name for one in fields(cls)) if name in values}
        return cls(**{**known, "measured": tuple(StepCost(**one) for one in known.get("measured", ()))})


def make_plan(
    cost: StepCost, room: MemoryRoom, *, batch: int, eval_batch: int, grad_ckpt: bool, reasons: Mapping[str, str], **more: Any
) -> MemoryPlan:
    """The plan for steps in micro-batches of `cost`. What nothing explains are activations."""
    parts, left = {}, cost.peak_bytes
    for name, known in (("weights", "weights"), ("gradients", "gradients"), ("optimizer", "optimizer"), ("overhead", "baseline")):
        parts[name] = min(left, cost.parts.get(known, 0))
        left -= parts[name]
    parts["overhead"] += room.held_beside(cost.parts.get("baseline", 0))
    parts |= {"activations": left, "cache": room.cache_bytes}
    planned = sum(parts.values())
    return MemoryPlan(
        room.limit_bytes, room.margin_bytes, batch, cost.batch, eval_batch, grad_ckpt, parts, planned, reasons, **more
    )


def does_not_fit(
    option: str, costs: Sequence[StepCost], best: StepCost | None, room: MemoryRoom, fact: str, *, ckpt: bool
) -> MachineError:
    """A size that was asked for by `option`, or even one sample: refused with what was measured and what would fit.

    `ckpt` is whether gradient checkpointing was tried; `fact` is how the last process ended.
    """
    limit = format_bytes(room.limit_bytes)
    bare = costs[0].parts.get("baseline", 0) if costs else room.process_bytes
    off = [(room.margin_bytes, f"a margin of {MARGIN_SHARE:.0%}"), (room.cache_bytes, "the cache"),
           (room.held_beside(bare), "what this process holds beside it")]  # fmt: skip
    taken = ", ".join(f"{format_bytes(size)} for {what}" for size, what in off if size)
    left = f"{format_bytes(max(0, room.step_bytes(bare)))} are left for a step{f' after {taken}' if taken else ''}"
    said = [f"{format_count(one.batch, 'sample')} {'takes' if one.batch == 1 else 'take'} {format_bytes(one.peak_bytes)}"
            for one in sorted(costs, key=lambda one: one.batch)[:2]]  # fmt: skip
    why = f"{'; '.join(said) or fact}; {left}"
    if option:
        smaller = f"{option.split()[0]} {best.batch}" if best else _TRY
        return MachineError(f"{option} does not fit in {limit}", code="batch-does-not-fit", why=why, try_=smaller)
    return MachineError(
        f"training does not fit in {limit}, not even one sample at a time",
        code="training-does-not-fit",
        why=why,
        try_=_TRY if ckpt else f"--grad-ckpt, or {_TRY}",
    )


# -- text ----------------------------------------------------------------------------------------------------------------------


def render_plan(plan: MemoryPlan) -> str:
    """The plan: its parts, and each choice with its reason."""
    shown = {"grad_ckpt": "checkpointing", "sub_batch": "at once", "eval_batch": "evaluation"}
    words = {"True": "yes", "False": "no"}
    choices = [(shown.get(one.name, one.name), f"{words.get(str(one.value), one.value)}  ({one.reason})") for one in plan.choices]
    return "\n".join([render_parts(plan), "Chosen", *aligned(choices)]) + "\n"


def render_parts(plan: MemoryPlan) -> str:
    """What the planned peak is made of, and the limit it stays below."""
    order = ("weights", "gradients", "optimizer", "activations", "cache", "overhead")
    sizes = [
        *((name, format_bytes(plan.parts[name])) for name in order if name in plan.parts),
        ("planned", _planned(plan)),
        ("limit", f"{format_bytes(plan.limit_bytes)}, of which {format_bytes(plan.margin_bytes)} are a margin"),
    ]
    return "\n".join(["Memory", *aligned(sizes)])


def render_costs(title: str, costs: Sequence[StepCost]) -> list[str]:
    """What was measured, and how fast it was."""
    rows = []
    for one in costs:
        speed = f", {one.batch / one.seconds:.1f} samples/s" if one.seconds else ""
        text = f"{format_bytes(one.peak_bytes)}, {format_seconds(one.seconds)} a step{speed}"
        rows.append((format_count(one.batch, "sample"), text))
    return [f"Measured: {title}", *aligned(rows)] if rows else []


def render_outcome(plan: MemoryPlan, measured_bytes: int, *, beside_bytes: int = 0) -> str:
    """After the run: planned against measured. `beside_bytes` were put on the GPU because the plan left them free."""
    expected = plan.planned_bytes + beside_bytes
    off = (measured_bytes - expected) / expected if expected else 0.0
    compared = "as planned" if abs(off) < 0.005 else f"{abs(off):.0%} {'more' if off > 0 else 'less'} than planned"
    if plan.counted and off <= 0:
        compared = "no more than that"
    over = measured_bytes - plan.limit_bytes
    kept = f"over the limit of {format_bytes(plan.limit_bytes)} by {format_bytes(over)}" if over > 0 else "within the limit"
    beside = [("beside it", f"{format_bytes(beside_bytes)}: rows on the GPU and a CUDA graph")] if beside_bytes else []
    measured = ("measured", f"{format_bytes(measured_bytes)}, {compared}, {kept}")
    return "\n".join(["Memory", *aligned([("planned", _planned(plan)), *beside, measured])])


def _planned(plan: MemoryPlan) -> str:
    return f"at most {format_bytes(plan.planned_bytes)}, counted" if plan.counted else format_bytes(plan.planned_bytes)


def aligned(rows: Sequence[tuple[str, str]]) -> list[str]:
    width = max((len(name) for name, _ in rows), default=0)
    return [f"  {name:<{width}}  {text}" for name, text in rows]
