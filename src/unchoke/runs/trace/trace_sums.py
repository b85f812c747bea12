"""What a trace adds up to: operators by name and shapes, what ran on a device by name, memory over time.

In: a file's spans and memory events. Out: one `OperatorRow` for each name and input shapes, counted as torch's `key_averages()`
counts them; one `KernelRow` for each kernel, copy or fill; one `MemoryLine` for each device. Self time is what no nested call
took; device time belongs to the operator that launched the work; bytes are those allocated less those released while the operator
itself ran, on its own thread (torch's table counts what other threads did meanwhile as well). Memory is thinned to what a screen
can show: the highest and lowest point of each stretch stay, so the peak is the true one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from unchoke.runs.trace.spans import (
    CALLS,
    DEVICE_WORK,
    RUNTIME,
    Span,
    Thread,
    by_thread,
    innermost,
    merge_repeats,
    nest,
    self_ns,
)
from unchoke.runs.trace.trace_records import KernelRow, MemoryLine, OperatorRow
from unchoke.runs.trace.trace_source import MemoryEvent

PROCESSOR_TYPES = frozenset({0, 2, 5})
"""torch's numbers for memory of the machine itself (its CPU, MKLDNN and IDEEP device types)."""
STEP = "ProfilerStep#"
ALL_STEPS = "ProfilerStep*"
_GRID, _BLOCK = "grid", "block"
_REGISTERS, _SHARED = "registers per thread", "shared memory"
_OCCUPANCY = "est. achieved occupancy %"
_MOST_POINTS = 4000
_NAMES = {0: "CPU", 1: "CUDA", 6: "HIP", 12: "XPU", 13: "MPS"}
"""torch's numbers of device types; others are called by their number."""
Point = tuple[int, int, int]
"""When (ns), bytes allocated, bytes reserved."""

ThreadCalls = Mapping[Thread, list[Span]]
"""The calls of each thread, outer ones first, nested."""


@dataclass(slots=True)
class _OperatorCost:
    """What one call took, or all calls of one name and shapes."""

    calls: int = 0
    self_ns: int = 0
    total_ns: int = 0
    self_device_ns: int = 0
    total_device_ns: int = 0
    cpu_bytes: int = 0
    device_bytes: int = 0

    def add(self, other: _OperatorCost) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def nest_calls(spans: Iterable[Span], *, slack_ns: int = 0) -> ThreadCalls:
    """Operators, annotations and runtime calls of each thread, with their parents and children filled in."""
    threads = by_thread(span for span in spans if span.kind in CALLS)
    for ordered in threads.values():
        nest(ordered, slack_ns=slack_ns)
        merge_repeats(ordered)
    return threads


def sum_operators(spans: Sequence[Span], calls: ThreadCalls, memory: Iterable[MemoryEvent]) -> tuple[OperatorRow, ...]:
    """One row for each kind, name and shapes, most self time first."""
    counted = [span for ordered in calls.values() for span in ordered if span.same_as is None]
    costs = {id(span): _OperatorCost(1, self_ns(span), span.duration_ns) for span in counted}
    _add_device_time(spans, counted, costs)
    _add_memory(calls, memory, costs)
    sums: dict[tuple[str, str, str], _OperatorCost] = {}
    for span in counted:
        name = ALL_STEPS if span.name.startswith(STEP) else span.name
        sums.setdefault((span.kind, name, span.detail), _OperatorCost()).add(costs[id(span)])
    rows = [
        OperatorRow(
            name=name,
            kind=kind,
            shapes=shapes,
            calls=cost.calls,
            self_cpu_us=cost.self_ns / 1000,
            total_cpu_us=cost.total_ns / 1000,
            self_device_us=cost.self_device_ns / 1000,
            total_device_us=cost.total_device_ns / 1000,
            self_cpu_bytes=cost.cpu_bytes,
            self_device_bytes=cost.device_bytes,
        )
        for (kind, name, shapes), cost in sums.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.self_cpu_us, row.name, row.shapes)))


def launchers(spans: Iterable[Span]) -> dict[int, Span]:
    """The operator behind each number that ties device work to it."""
    return {span.link: _first(span) for span in spans if span.link and span.kind in CALLS and span.kind != RUNTIME}


def _first(span: Span) -> Span:
    """The outermost of repeated calls that count as one."""
    while span.same_as is not None:
        span = span.same_as
    return span


def _add_device_time(spans: Sequence[Span], counted: Sequence[Span], costs: Mapping[int, _OperatorCost]) -> None:
    launched_by = launchers(spans)
    for work in spans:
        if work.kind in DEVICE_WORK and work.link in launched_by:
            costs[id(launched_by[work.link])].self_device_ns += work.duration_ns
    for span in reversed(counted):  # inner calls come before those around them
        cost = costs[id(span)]
        cost.total_device_ns += cost.self_device_ns
        if span.parent is not None:
            costs[id(span.parent)].total_device_ns += cost.total_device_ns


def _add_memory(calls: ThreadCalls, memory: Iterable[MemoryEvent], costs: Mapping[int, _OperatorCost]) -> None:
    starts = {thread: [span.start_ns for span in ordered] for thread, ordered in calls.items()}
    for event in memory:
        span = innermost(calls[event.thread], starts[event.thread], event.at_ns) if event.thread in calls else None
        if span is None:
            continue
        cost = costs[id(_first(span))]
        if event.device_type in PROCESSOR_TYPES:
            cost.cpu_bytes += event.num_bytes
        else:
            cost.device_bytes += event.num_bytes


def sum_kernels(spans: Sequence[Span]) -> tuple[KernelRow, ...]:
    """One row for each kind and name, longest first; shares are of all device time."""
    found: dict[tuple[str, str], list[Span]] = {}
    for span in spans:
        if span.kind in DEVICE_WORK:
            found.setdefault((span.kind, span.name), []).append(span)
    whole_ns = sum(span.duration_ns for runs in found.values() for span in runs) or 1
    launched_by = launchers(spans)
    rows = [_kernel_row(kind, name, runs, whole_ns, launched_by) for (kind, name), runs in found.items()]
    return tuple(sorted(rows, key=lambda row: (-row.total_us, row.name)))


def _kernel_row(kind: str, name: str, runs: Sequence[Span], whole_ns: int, launched_by: Mapping[int, Span]) -> KernelRow:
    lengths = [run.duration_ns for run in runs]
    return KernelRow(
        name=name,
        kind=kind,
        calls=len(runs),
        total_us=sum(lengths) / 1000,
        mean_us=sum(lengths) / len(runs) / 1000,
        min_us=min(lengths) / 1000,
        max_us=max(lengths) / 1000,
        share=sum(lengths) / whole_ns,
        launched_by=_usual(launched_by[run.link].name for run in runs if run.link in launched_by) or "",
        grid=_usual(sizes_text(run.facts.get(_GRID)) for run in runs) or "",
        block=_usual(sizes_text(run.facts.get(_BLOCK)) for run in runs) or "",
        registers=_usual_number(runs, _REGISTERS),
        shared_bytes=_usual_number(runs, _SHARED),
        occupancy_percent=_occupancy(runs),
        moved_bytes=sum(moved for run in runs if isinstance(moved := run.facts.get("bytes"), int)),
    )


def _usual(texts: Iterable[str]) -> str | None:
    counted = Counter(text for text in texts if text).most_common(1)
    return counted[0][0] if counted else None


def _usual_number(runs: Iterable[Span], fact: str) -> int | None:
    counted = Counter(value for run in runs if isinstance(value := run.facts.get(fact), int)).most_common(1)
    return counted[0][0] if counted else None


def _occupancy(runs: Iterable[Span]) -> float | None:
    known = [(run.duration_ns, value) for run in runs if isinstance(value := run.facts.get(_OCCUPANCY), int | float)]
    whole_ns = sum(length for length, _ in known)
    return sum(length * value for length, value in known) / whole_ns if whole_ns else None


def sizes_text(sizes: object) -> str:
    """``[12, 1, 1]`` as ``12×1×1``."""
    return "×".join(map(str, sizes)) if isinstance(sizes, list) else ""


def memory_lines(events: Sequence[MemoryEvent]) -> tuple[MemoryLine, ...]:
    """One line for each device, the machine's own memory first."""
    found: dict[tuple[int, int], list[MemoryEvent]] = {}
    for event in sorted(events, key=lambda event: event.at_ns):
        kind = 0 if event.device_type in PROCESSOR_TYPES else event.device_type
        found.setdefault((kind, event.device if kind else 0), []).append(event)
    return tuple(_line(kind, device, found[kind, device]) for kind, device in sorted(found))


def _line(kind: int, device: int, events: Sequence[MemoryEvent]) -> MemoryLine:
    points = _points(events)
    peak_at_ns, peak, _ = max(points, key=lambda point: point[1])
    shown = _thinned(points)
    name = _NAMES.get(kind, f"device type {kind}")
    return MemoryLine(
        device=f"{name} {device}" if kind else name,
        at_us=tuple(at_ns / 1000 for at_ns, _, _ in shown),
        allocated=tuple(allocated for _, allocated, _ in shown),
        reserved=tuple(reserved for _, _, reserved in shown),
        peak_bytes=peak,
        peak_at_us=peak_at_ns / 1000,
        whole=kind != 0 and events[0].allocated is not None,
    )


def _points(events: Sequence[MemoryEvent]) -> list[Point]:
    """The allocator's totals; where the file has none, the sum of what was allocated and released so far."""
    if any(event.allocated is None for event in events):
        sums = accumulate(event.num_bytes for event in events)
        return [(event.at_ns, total, 0) for event, total in zip(events, sums, strict=True)]
    return [(event.at_ns, event.allocated or 0, event.reserved or 0) for event in events]


def _thinned(points: Sequence[Point]) -> list[Point]:
    if len(points) <= _MOST_POINTS:
        return list(points)
    size = -(-len(points) // (_MOST_POINTS // 4))
    kept = []
    for first in range(0, len(points), size):
        stretch = range(first, min(first + size, len(points)))
        low, high = (pick(stretch, key=lambda place: points[place][1]) for pick in (min, max))
        kept += [points[place] for place in sorted({stretch[0], low, high, stretch[-1]})]
    return kept
