"""What a trace says, as plain data: where it was recorded, steps, operators, kernels, the strip of events, memory over time.

In: a trace file of anybody's run. Out: a `TraceRecord`, times in µs from the first event; `compare_traces` puts two side by side.
Operators are counted as torch's `key_averages()` counts them: self time is what no nested call took, device time belongs to the
operator that launched the work, bytes are those allocated less those released while the operator itself ran, on its own thread
(torch's table counts what other threads did meanwhile as well). Nothing is judged or rendered here.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from unchoke.runs.trace.trace_source import (
    CALLS,
    COPY,
    DEVICE_MARK,
    DEVICE_WORK,
    FILL,
    KERNEL,
    OPERATOR,
    OWN_NOTES,
    PYTHON,
    RUNTIME,
    MemoryEvent,
    Span,
    Thread,
    ThreadCalls,
    TraceSource,
    by_thread,
    load_source,
    nest_calls,
    sizes_text,
)
from unchoke.runs.trace.trace_steps import STAGES, STEP, WHOLE, Step, missing_stages, split_steps

MOST_EVENTS = 60_000
"""Of the strip: beyond that the smallest are merged with their neighbours."""
_MOST_POINTS = 4000
_PROCESSOR_TYPES = frozenset({0, 2, 5})
"""torch's numbers for memory of the machine itself (its CPU, MKLDNN and IDEEP device types)."""
_DEVICE_NAMES = {0: "CPU", 1: "CUDA", 6: "HIP", 12: "XPU", 13: "MPS"}
"""torch's numbers of device types; others are called by their number."""


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
    """One thread or stream of the strip: each event with its start and length in ns, depth, numbers of its name and its detail in
    the strip's tables, and how many small events it stands for (0: itself).
    """

    name: str
    kind: str
    events: tuple[tuple[int, int, int, int, int, int], ...]


@dataclass(frozen=True)
class EventStrip:
    """Everything that was recorded, thread by thread; `merged` counts the small events that were drawn together."""

    rows: tuple[StripRow, ...]
    names: tuple[str, ...]
    details: tuple[str, ...]
    merged: int

    def __len__(self) -> int:
        return sum(len(row.events) for row in self.rows)


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

    def mean_stages(self) -> dict[str, float]:
        """Mean µs of each stage over whole steps, in order, those that never occur left out."""
        timed = [step for step in self.steps if step.wall_us > 0]
        steps = [step for step in timed if step.whole] or timed
        sums = {stage: sum(step.stages.get(stage, 0.0) for step in steps) for stage in STAGES}
        return {stage: total / len(steps) for stage, total in sums.items() if total > 0}

    def by_name(self) -> list[OperatorRow]:
        """Operators with their shapes put together, most self time first."""
        figures = [one.name for one in fields(OperatorRow)][3:]
        sums: dict[tuple[str, str], OperatorRow] = {}
        for row in self.operators:
            key = (row.kind, row.name)
            if (held := sums.get(key)) is None:
                sums[key] = replace(row, shapes="")
            else:
                sums[key] = replace(held, **{name: getattr(held, name) + getattr(row, name) for name in figures})
        return sorted(sums.values(), key=lambda row: -row.self_cpu_us)


def read_trace(path: Path) -> TraceRecord:
    """Everything the viewer shows, from one `*.pt.trace.json`, plain or gzipped."""
    source = load_source(path)
    calls = nest_calls(source.spans, slack_ns=source.slack_ns)
    steps, split_by = split_steps(calls, source.spans)
    launched_by = {span.link: _first(span) for span in source.spans if span.link and span.kind in CALLS and span.kind != RUNTIME}
    return TraceRecord(
        _origin(source, steps, split_by),
        steps,
        _sum_operators(source, calls, launched_by),
        _sum_kernels(source.spans, launched_by),
        lay_out(source, launched_by),
        _memory_lines(source.memory),
    )


def _origin(source: TraceSource, steps: tuple[Step, ...], split_by: str) -> TraceOrigin:
    head, own, properties = source.head, source.head.get(OWN_NOTES), source.head.get("deviceProperties")
    own = own if isinstance(own, dict) else {}  # what a training of ours noted beside its events
    devices = [row for row in properties if isinstance(row, dict)] if isinstance(properties, list) else []
    # which steps of the run were recorded: the profiler numbers them from 0, skipped ones included
    numbers = [step.name.removeprefix(STEP) for step in steps if step.name.startswith(STEP)]
    schedule = f"steps {numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else "".join(f"step {number}" for number in numbers)
    notes, planned, cut_off = [], own.get("steps"), []
    if steps and steps[0].name == WHOLE:
        notes.append(
            "No ProfilerStep in this trace (the program never called the profiler's step()): the whole recording is one."
        )
    if any(span.kind == PYTHON for span in source.spans):
        notes.append("Python functions were recorded as well (with_stack): the strip draws them, the operators leave them out.")
    if source.unread:
        notes.append(f"Events that make no sense (no time, a negative length, no name) were left out: {source.unread:,}.")
    if isinstance(planned, int) and len(numbers) < planned:
        cut_off.append(f"{len(numbers)} of {planned} planned steps were recorded")
    if missing := missing_stages(steps):
        cut_off.append(f"its last step has no {' and no '.join(missing)}, and is left out of the means")
    metal = any(span.kind == OPERATOR and span.name.startswith(("aten::_mps_", "aten::mps_")) for span in source.spans)
    return TraceOrigin(
        file=source.file,
        duration_us=source.duration_ns / 1000,
        num_events=len(source.spans),
        devices=tuple(str(row["name"]) for row in devices if "name" in row),
        torch=str(head.get("torch_version") or head.get("pytorch_version") or ""),
        schedule=schedule,
        shapes=any(span.detail for span in source.spans) or bool(head.get("record_shapes")),
        memory=bool(source.memory),
        split_by=split_by,
        notes=tuple(notes),
        cut_off="; ".join(cut_off),
        unseen=own.get("unseen", "") or ("MPS" if metal else ""),
    )


# -- operators and kernels -----------------------------------------------------------------------------------------------------


def _first(span: Span) -> Span:
    """The outermost of repeated calls that count as one."""
    while span.same_as is not None:
        span = span.same_as
    return span


def _sum_operators(source: TraceSource, calls: ThreadCalls, launched_by: Mapping[int, Span]) -> tuple[OperatorRow, ...]:
    """One row for each kind, name and shapes, most self time first."""
    counted = [span for ordered in calls.values() for span in ordered if span.same_as is None]
    device_ns = dict.fromkeys(map(id, counted), 0)
    for work in source.spans:
        if work.kind in DEVICE_WORK and work.link in launched_by:
            device_ns[id(launched_by[work.link])] += work.duration_ns
    whole_ns = dict(device_ns)
    for span in reversed(counted):  # inner calls come before those around them
        if span.parent is not None:
            whole_ns[id(span.parent)] += whole_ns[id(span)]
    cpu_bytes, device_bytes = Counter[int](), Counter[int]()
    starts = {thread: [span.start_ns for span in ordered] for thread, ordered in calls.items()}
    for event in source.memory:
        inner = _innermost(calls[event.thread], starts[event.thread], event.at_ns) if event.thread in calls else None
        if inner is not None:
            held = cpu_bytes if event.device_type in _PROCESSOR_TYPES else device_bytes
            held[id(_first(inner))] += event.num_bytes
    sums: dict[tuple[str, str, str], list[int]] = {}
    for span in counted:
        one, name = id(span), "ProfilerStep*" if span.name.startswith(STEP) else span.name
        self_ns = span.duration_ns - sum(child.duration_ns for child in span.children)
        figures = (1, self_ns, span.duration_ns, device_ns[one], whole_ns[one], cpu_bytes[one], device_bytes[one])
        held_figures = sums.setdefault((span.kind, name, span.detail), [0] * len(figures))
        held_figures[:] = map(sum, zip(held_figures, figures, strict=True))
    rows = []
    for (kind, name, shapes), (num, own, total, device, total_device, num_cpu, num_device) in sums.items():
        times_us = (own / 1000, total / 1000, device / 1000, total_device / 1000)
        rows.append(OperatorRow(name, kind, shapes, num, *times_us, num_cpu, num_device))
    return tuple(sorted(rows, key=lambda row: (-row.self_cpu_us, row.name, row.shapes)))


def _innermost(ordered: Sequence[Span], starts_ns: Sequence[int], at_ns: int) -> Span | None:
    """The innermost of nested spans that was open at a moment: the last one begun before it, or one around that."""
    place = bisect.bisect_right(starts_ns, at_ns) - 1
    span = ordered[place] if place >= 0 else None
    while span is not None and span.end_ns < at_ns:
        span = span.parent
    return span


def _sum_kernels(spans: Sequence[Span], launched_by: Mapping[int, Span]) -> tuple[KernelRow, ...]:
    """One row for each kind and name, longest first; shares are of all device time."""
    found: dict[tuple[str, str], list[Span]] = {}
    for span in spans:
        if span.kind in DEVICE_WORK:
            found.setdefault((span.kind, span.name), []).append(span)
    whole_ns = sum(span.duration_ns for runs in found.values() for span in runs) or 1
    rows = []
    for (kind, name), runs in found.items():
        lengths = [run.duration_ns for run in runs]
        known = [
            (run.duration_ns, value)
            for run in runs
            if isinstance(value := run.facts.get("est. achieved occupancy %"), int | float)
        ]
        known_ns = sum(length for length, _ in known)
        row = KernelRow(
            name=name,
            kind=kind,
            calls=len(runs),
            total_us=sum(lengths) / 1000,
            mean_us=sum(lengths) / len(runs) / 1000,
            min_us=min(lengths) / 1000,
            max_us=max(lengths) / 1000,
            share=sum(lengths) / whole_ns,
            launched_by=_usual(launched_by[run.link].name for run in runs if run.link in launched_by) or "",
            grid=_usual(sizes_text(run.facts.get("grid")) for run in runs) or "",
            block=_usual(sizes_text(run.facts.get("block")) for run in runs) or "",
            registers=_usual(n for run in runs if isinstance(n := run.facts.get("registers per thread"), int)),
            shared_bytes=_usual(n for run in runs if isinstance(n := run.facts.get("shared memory"), int)),
            occupancy_percent=sum(length * value for length, value in known) / known_ns if known_ns else None,
            moved_bytes=sum(moved for run in runs if isinstance(moved := run.facts.get("bytes"), int)),
        )
        rows.append(row)
    return tuple(sorted(rows, key=lambda row: (-row.total_us, row.name)))


def _usual(values: Iterable[Any]) -> Any:
    counted = Counter(value for value in values if value != "").most_common(1)
    return counted[0][0] if counted else None


# -- the strip -----------------------------------------------------------------------------------------------------------------

_Event = tuple[int, int, int, str, str, int]
"""Start and end (ns), depth, name, detail, how many small events it stands for."""


def lay_out(source: TraceSource, launched_by: Mapping[int, Span], *, most_events: int = MOST_EVENTS) -> EventStrip:
    """The strip: threads of the processor first, the busiest on top, then streams of devices; nested events below the outer ones.

    Beyond `most_events` the smallest are merged with their neighbours on the same line, and counted; nothing vanishes. 3/8 of the
    room go to events that stay, as much to merged ones between these, and a quarter to where stretches end.
    """
    threads = by_thread(source.spans)
    drawn = {thread: list(_drawn(ordered, launched_by)) for thread, ordered in threads.items()}
    limit_ns = 0
    if len(source.spans) > most_events:
        limit_ns = sorted((span.duration_ns for span in source.spans), reverse=True)[most_events * 3 // 8] + 1
    num_lines = sum(1 + max(event[2] for event in events) for events in drawn.values())
    stretch_ns = max(1, source.duration_ns * num_lines * 4 // most_events)
    names: dict[str, int] = {}  # each text once, by number
    details: dict[str, int] = {}
    on_device = {thread: any(span.kind in {*DEVICE_WORK, DEVICE_MARK} for span in spans) for thread, spans in threads.items()}
    rows = []
    for thread in sorted(threads, key=lambda one: (on_device[one], one[0] != one[1], -len(threads[one]), one)):
        ordered = sorted(_merged(drawn[thread], limit_ns, stretch_ns), key=lambda event: (event[2], event[0]))
        events = tuple(
            (start, end - start, depth, names.setdefault(name, len(names)), details.setdefault(detail, len(details)), merged)
            for start, end, depth, name, detail, merged in ordered
        )
        rows.append(StripRow(_row_name(source, thread), "stream" if on_device[thread] else "thread", events))
    return EventStrip(tuple(rows), tuple(names), tuple(details), sum(event[5] for row in rows for event in row.events))


def _row_name(source: TraceSource, thread: Thread) -> str:
    process, number = thread
    name, label = source.threads.get(thread, ""), source.labels.get(process, "")
    if name.startswith("stream") or label.startswith("GPU"):
        return f"{label or f'device {process}'} · {name or f'stream {number}'}"
    return f"{'main ' if process == number else ''}{name or f'thread {number}'}"


def _drawn(ordered: Sequence[Span], launched_by: Mapping[int, Span]) -> Iterator[_Event]:
    """Each span of a thread below everything that is open when it begins, so that none covers another."""
    open_spans: list[tuple[int, int]] = []
    for span in ordered:
        open_spans = [(end_ns, depth) for end_ns, depth in open_spans if end_ns > span.start_ns]
        depth = 1 + max((depth for _, depth in open_spans), default=-1)
        open_spans.append((span.end_ns, depth))
        detail = span.detail
        if span.kind in DEVICE_WORK:
            parts = [f"launched by {launched_by[span.link].name}"] if span.link in launched_by else []
            if span.kind == KERNEL:
                parts.append(f"grid {sizes_text(span.facts.get('grid'))}, block {sizes_text(span.facts.get('block'))}")
            if span.kind in {COPY, FILL} and isinstance(span.facts.get("bytes"), int):
                parts.append(f"{span.facts['bytes']:,} bytes")
            detail = "; ".join(parts)
        yield span.start_ns, span.end_ns, depth, span.name, detail, 0


def _merged(drawn: Sequence[_Event], limit_ns: int, stretch_ns: int) -> Iterator[_Event]:
    """Events below the limit become one with their neighbours of the same depth and stretch."""

    def together(events: Sequence[_Event]) -> _Event:
        start_ns, depth = events[0][0], events[0][2]
        return events[0] if len(events) == 1 else (start_ns, max(x[1] for x in events), depth, "small events", "", len(events))

    waiting: dict[int, list[_Event]] = {}
    for event in drawn:
        start_ns, end_ns, depth = event[:3]
        held, small = waiting.get(depth, []), end_ns - start_ns < limit_ns
        if held and (not small or held[0][0] // stretch_ns != start_ns // stretch_ns):
            yield together(waiting.pop(depth))
        if small:
            waiting.setdefault(depth, []).append(event)
        else:
            yield event
    yield from map(together, waiting.values())


# -- memory --------------------------------------------------------------------------------------------------------------------


def _memory_lines(events: Sequence[MemoryEvent]) -> tuple[MemoryLine, ...]:
    """One line for each device, the machine's own memory first: the allocator's totals; where the file has none, the sum of what
    was allocated and released so far. Thinned to what a screen can show: the highest and lowest point of each stretch stay.
    """
    found: dict[tuple[int, int], list[MemoryEvent]] = {}
    for event in sorted(events, key=lambda event: event.at_ns):
        kind = 0 if event.device_type in _PROCESSOR_TYPES else event.device_type
        found.setdefault((kind, event.device if kind else 0), []).append(event)
    lines = []
    for (kind, device), held in sorted(found.items()):
        points = [(event.at_ns, event.allocated or 0, event.reserved or 0) for event in held]
        if any(event.allocated is None for event in held):
            sums = accumulate(event.num_bytes for event in held)
            points = [(event.at_ns, total, 0) for event, total in zip(held, sums, strict=True)]
        peak_at_ns, peak, _ = max(points, key=lambda point: point[1])
        at_ns, allocated, reserved = zip(*_thinned(points), strict=True)
        name = _DEVICE_NAMES.get(kind, f"device type {kind}")
        times_us = tuple(at / 1000 for at in at_ns)
        whole = kind != 0 and held[0].allocated is not None
        lines.append(
            MemoryLine(f"{name} {device}" if kind else name, times_us, allocated, reserved, peak, peak_at_ns / 1000, whole)
        )
    return tuple(lines)


def _thinned(points: Sequence[tuple[int, int, int]]) -> Sequence[tuple[int, int, int]]:
    if len(points) <= _MOST_POINTS:
        return points
    size = -(-len(points) // (_MOST_POINTS // 4))
    kept = []
    for first in range(0, len(points), size):
        stretch = range(first, min(first + size, len(points)))
        low, high = (pick(stretch, key=lambda place: points[place][1]) for pick in (min, max))
        kept += [points[place] for place in sorted({stretch[0], low, high, stretch[-1]})]
    return kept


# -- two traces ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TraceDiff:
    """Two traces side by side. Everything is for one step where both have steps, else for the whole recording.

    `stages` are those of the mean step (stage, before_us, after_us, change_us), `operators` those of either trace, with the
    largest change first; what one of them lacks is 0 there, and its `state` is new or gone.
    """

    before: TraceOrigin
    after: TraceOrigin
    per_step: bool
    stages: tuple[dict[str, Any], ...] = ()
    operators: tuple[dict[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def compare_traces(before: TraceRecord, after: TraceRecord) -> TraceDiff:
    """What changed from `before` to `after`. It draws no conclusion: one recording is one measurement."""
    records = (before, after)
    per_step = all(record.steps and record.steps[0].name != WHOLE for record in records)
    figures: list[dict[tuple[str, str], tuple[float, float, float]]] = []
    for record in records:  # calls, self time on the processor and self time on the device, by kind and name
        num, rows = len(record.steps) if per_step else 1, record.by_name()
        figures.append({(row.kind, row.name): (row.calls / num, row.self_cpu_us / num, row.self_device_us / num) for row in rows})
    operators = []
    for kind, name in {**figures[0], **figures[1]}:
        held = [one.get((kind, name)) for one in figures]
        (calls, cpu_us, device_us), (now_calls, now_cpu_us, now_device_us) = (one or (0.0, 0.0, 0.0) for one in held)
        row: dict[str, Any] = {
            "name": name,
            "kind": kind,
            "state": "new" if held[0] is None else "gone" if held[1] is None else "both",
            "before_calls": calls,
            "after_calls": now_calls,
            "before_cpu_us": cpu_us,
            "after_cpu_us": now_cpu_us,
            "before_device_us": device_us,
            "after_device_us": now_device_us,
            "cpu_change_us": now_cpu_us - cpu_us,
            "device_change_us": now_device_us - device_us,
        }
        operators.append(row)
    operators.sort(key=lambda row: (-max(abs(row["cpu_change_us"]), abs(row["device_change_us"])), row["name"]))
    means = [record.mean_stages() for record in records]
    stages = []
    for stage in STAGES:
        old, new = (mean.get(stage, 0.0) for mean in means)
        stages += [{"stage": stage, "before_us": old, "after_us": new, "change_us": new - old}] if old or new else []
    return TraceDiff(before.about, after.about, per_step, tuple(stages), tuple(operators))
