"""Operators by name and input shapes, as torch's `key_averages()` counts them: calls, self and total time, time on the device,
memory.

In: a file's spans. Out: one row for each name and shapes. Self time is what no nested call took; device time belongs to the
operator that launched the work; bytes are those allocated less those released while the operator itself ran, on its own thread
(torch's table counts what other threads did meanwhile as well).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from unchoke.reports.trace.spans import (
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
from unchoke.reports.trace.trace_records import Operator
from unchoke.reports.trace.trace_source import MemoryEvent

PROCESSOR_TYPES = frozenset({0, 2, 5})
"""torch's numbers for memory of the machine itself (its CPU, MKLDNN and IDEEP device types)."""
STEP = "ProfilerStep#"
ALL_STEPS = "ProfilerStep*"

Calls = Mapping[Thread, list[Span]]
"""The calls of each thread, outer ones first, nested."""


@dataclass(slots=True)
class _Cost:
    """What one call took, or all calls of one name and shapes."""

    calls: int = 0
    self_ns: int = 0
    total_ns: int = 0
    self_device_ns: int = 0
    total_device_ns: int = 0
    cpu_bytes: int = 0
    device_bytes: int = 0

    def add(self, other: _Cost) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def nest_calls(spans: Iterable[Span], *, slack_ns: int = 0) -> Calls:
    """Operators, annotations and runtime calls of each thread, with their parents and children filled in."""
    threads = by_thread(span for span in spans if span.kind in CALLS)
    for ordered in threads.values():
        nest(ordered, slack_ns=slack_ns)
        merge_repeats(ordered)
    return threads


def sum_operators(spans: Sequence[Span], calls: Calls, memory: Iterable[MemoryEvent]) -> tuple[Operator, ...]:
    """One row for each kind, name and shapes, most self time first."""
    counted = [span for ordered in calls.values() for span in ordered if span.same_as is None]
    costs = {id(span): _Cost(1, self_ns(span), span.duration_ns) for span in counted}
    _add_device_time(spans, counted, costs)
    _add_memory(calls, memory, costs)
    sums: dict[tuple[str, str, str], _Cost] = {}
    for span in counted:
        name = ALL_STEPS if span.name.startswith(STEP) else span.name
        sums.setdefault((span.kind, name, span.detail), _Cost()).add(costs[id(span)])
    rows = [_row(*key, cost) for key, cost in sums.items()]
    return tuple(sorted(rows, key=lambda row: (-row.self_cpu_us, row.name, row.shapes)))


def _row(kind: str, name: str, shapes: str, cost: _Cost) -> Operator:
    return Operator(
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


def launchers(spans: Iterable[Span]) -> dict[int, Span]:
    """The operator behind each number that ties device work to it."""
    return {span.link: _first(span) for span in spans if span.link and span.kind in CALLS and span.kind != RUNTIME}


def _first(span: Span) -> Span:
    """The outermost of repeated calls that count as one."""
    while span.same_as is not None:
        span = span.same_as
    return span


def _add_device_time(spans: Sequence[Span], counted: Sequence[Span], costs: Mapping[int, _Cost]) -> None:
    launched_by = launchers(spans)
    for work in spans:
        if work.kind in DEVICE_WORK and work.link in launched_by:
            costs[id(launched_by[work.link])].self_device_ns += work.duration_ns
    for span in reversed(counted):  # inner calls come before those around them
        cost = costs[id(span)]
        cost.total_device_ns += cost.self_device_ns
        if span.parent is not None:
            costs[id(span.parent)].total_device_ns += cost.total_device_ns


def _add_memory(calls: Calls, memory: Iterable[MemoryEvent], costs: Mapping[int, _Cost]) -> None:
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
