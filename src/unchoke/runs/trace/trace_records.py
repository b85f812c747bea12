"""What a trace says, as plain data: where it was recorded, steps, operators, kernels, the strip of events, memory over time.

Frozen dataclasses, made by the other modules of this package and shown by its pages and texts; times in µs, starts relative to
the first event. `compare_traces` puts two of them side by side, the operators with the largest change first: where both have
steps, times and calls are for one step, so that recordings of different lengths compare. It draws no conclusion: one recording is
one measurement.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

STAGES = {
    "wait": "the training thread waited for the next batch",
    "copy": "it copied the batch to the device, or queued the copy",
    "prepare": "it prepared the batch: augmenting, normalising",
    "forward": "it ran the network and the loss, or queued them on the device",
    "backward": "gradients were computed, or queued on the device",
    "exchange": "processes that train together exchanged gradients",
    "optimizer": "the optimizer changed the weights, or cleared the gradients",
    "evaluate": "it evaluated, all of it: loading, forward and metrics",
    "checkpoint": "it saved a checkpoint",
    "synchronise": "it stood still until the device had finished: .item(), .cpu(), printing a tensor",
    "other": "everything else on that thread: Python between the stages, logging, metrics",
}
"""The parts of a step, in the order they are shown, and what each means."""
WHOLE = "whole recording"
"""The name of the one step of a trace in which the program marked none."""


@dataclass(frozen=True)
class TraceOrigin:
    """Where the trace comes from and what was recorded. Empty where the file does not say."""

    file: str
    duration_us: float
    num_events: int
    devices: tuple[str, ...]
    torch: str
    schedule: str
    shapes: bool
    memory: bool
    split_by: str
    """How steps were split: "marks" the program set, "names" of well-known events, or nothing to split."""
    notes: tuple[str, ...] = ()
    cut_off: str = ""
    """Where the recording ended before it was over: what is missing."""
    unseen: str = ""
    """The device that computed, where torch.profiler cannot see what runs on it."""


@dataclass(frozen=True)
class Step:
    """One ProfilerStep. The stages add up to `wall_us`; `device_busy_us` runs beside them, on the device."""

    name: str
    start_us: float
    wall_us: float
    stages: dict[str, float]
    device_busy_us: float
    whole: bool = True
    """False for the last one of a recording that ended in the middle of it."""


@dataclass(frozen=True)
class OperatorRow:
    """All calls of one name with the same input shapes. `kind` is operator, annotation or runtime (calls of the driver)."""

    name: str
    kind: str
    shapes: str
    calls: int
    self_cpu_us: float
    total_cpu_us: float
    self_device_us: float
    total_device_us: float
    self_cpu_bytes: int
    self_device_bytes: int

    def plus(self, other: OperatorRow) -> OperatorRow:
        """Both together, under this one's name."""
        figures = [one.name for one in fields(self) if one.name not in ("name", "kind", "shapes")]
        return replace(self, **{name: getattr(self, name) + getattr(other, name) for name in figures})


@dataclass(frozen=True)
class KernelRow:
    """All runs of one kernel, copy or fill on a device. Grid, block and operator are those of most runs."""

    name: str
    kind: str
    calls: int
    total_us: float
    mean_us: float
    min_us: float
    max_us: float
    share: float
    launched_by: str
    grid: str
    block: str
    registers: int | None
    shared_bytes: int | None
    occupancy_percent: float | None
    """Estimated by the profiler from the launch, weighed by time; not measured on the device."""
    moved_bytes: int


@dataclass(frozen=True)
class StripRow:
    """One thread or stream of the strip: the same place in every tuple is one event. `names` and `details` are numbers in the
    strip's tables; an event with `merged` above 0 stands for so many small ones."""

    name: str
    kind: str
    starts_us: tuple[float, ...]
    durations_us: tuple[float, ...]
    depths: tuple[int, ...]
    names: tuple[int, ...]
    details: tuple[int, ...]
    merged: tuple[int, ...]


@dataclass(frozen=True)
class EventStrip:
    """Everything that was recorded, thread by thread; `merged` counts the small events that were drawn together."""

    rows: tuple[StripRow, ...]
    names: tuple[str, ...]
    details: tuple[str, ...]
    merged: int

    def __len__(self) -> int:
        return sum(len(row.starts_us) for row in self.rows)


@dataclass(frozen=True)
class MemoryLine:
    """Bytes over time on one device. `reserved` is what the allocator holds, 0 throughout where it holds nothing back."""

    device: str
    at_us: tuple[float, ...]
    allocated: tuple[int, ...]
    reserved: tuple[int, ...]
    peak_bytes: int
    peak_at_us: float
    whole: bool
    """False where the total counts only from the start of the recording."""


@dataclass(frozen=True)
class TraceRecord:
    """One trace file."""

    about: TraceOrigin
    steps: tuple[Step, ...]
    operators: tuple[OperatorRow, ...]
    kernels: tuple[KernelRow, ...]
    strip: EventStrip
    memory: tuple[MemoryLine, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def mean_stages(self) -> dict[str, float]:
        """Mean µs of each stage over whole steps, in order, those that never occur left out."""
        timed = [step for step in self.steps if step.wall_us > 0]
        steps = [step for step in timed if step.whole] or timed
        sums = {stage: sum(step.stages.get(stage, 0.0) for step in steps) for stage in STAGES}
        return {stage: total / len(steps) for stage, total in sums.items() if total > 0}

    def by_name(self) -> list[OperatorRow]:
        """Operators with their shapes put together, most self time first."""
        sums: dict[tuple[str, str], OperatorRow] = {}
        for row in self.operators:
            key = (row.kind, row.name)
            sums[key] = sums[key].plus(row) if key in sums else replace(row, shapes="")
        return sorted(sums.values(), key=lambda row: -row.self_cpu_us)


@dataclass(frozen=True)
class StageChange:
    """A stage's mean time in a step, in both traces."""

    stage: str
    before_us: float
    after_us: float

    @property
    def change_us(self) -> float:
        return self.after_us - self.before_us

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "change_us": self.change_us}


@dataclass(frozen=True)
class OperatorChange:
    """An operator in both traces; what one of them lacks is 0 there. `state` is both, new or gone."""

    name: str
    kind: str
    state: str
    before_calls: float
    after_calls: float
    before_cpu_us: float
    after_cpu_us: float
    before_device_us: float
    after_device_us: float

    @property
    def cpu_change_us(self) -> float:
        return self.after_cpu_us - self.before_cpu_us

    @property
    def device_change_us(self) -> float:
        return self.after_device_us - self.before_device_us

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "cpu_change_us": self.cpu_change_us, "device_change_us": self.device_change_us}


@dataclass(frozen=True)
class TraceDiff:
    """Two traces side by side. Everything is for one step where both have steps, else for the whole recording."""

    before: TraceOrigin
    after: TraceOrigin
    per_step: bool
    stages: tuple[StageChange, ...] = ()
    operators: tuple[OperatorChange, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        return {
            "before": asdict(self.before),
            "after": asdict(self.after),
            "per_step": self.per_step,
            "stages": [change.to_dict() for change in self.stages],
            "operators": [change.to_dict() for change in self.operators],
        }


def compare_traces(before: TraceRecord, after: TraceRecord) -> TraceDiff:
    """What changed from `before` to `after`."""
    per_step = _has_steps(before) and _has_steps(after)
    sides: list[dict[tuple[str, str], _Figures]] = []
    for record in (before, after):  # calls, self time on the processor and self time on the device, by kind and name
        num = len(record.steps) if per_step else 1
        rows = record.by_name()
        sides.append({(row.kind, row.name): (row.calls / num, row.self_cpu_us / num, row.self_device_us / num) for row in rows})
    changes = [_change(key, sides[0].get(key), sides[1].get(key)) for key in {**sides[0], **sides[1]}]
    changes.sort(key=lambda change: (-max(abs(change.cpu_change_us), abs(change.device_change_us)), change.name))
    means = [record.mean_stages() for record in (before, after)]
    stages = [StageChange(stage, means[0].get(stage, 0.0), means[1].get(stage, 0.0)) for stage in STAGES]
    shown = tuple(change for change in stages if change.before_us or change.after_us)
    return TraceDiff(before.about, after.about, per_step, shown, tuple(changes))


def _has_steps(record: TraceRecord) -> bool:
    return bool(record.steps) and record.steps[0].name != WHOLE


_Figures = tuple[float, float, float]


def _change(key: tuple[str, str], before: _Figures | None, after: _Figures | None) -> OperatorChange:
    kind, name = key
    state = "new" if before is None else "gone" if after is None else "both"
    (calls, cpu_us, device_us), (now_calls, now_cpu_us, now_device_us) = before or (0.0, 0.0, 0.0), after or (0.0, 0.0, 0.0)
    return OperatorChange(name, kind, state, calls, now_calls, cpu_us, now_cpu_us, device_us, now_device_us)
