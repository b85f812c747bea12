"""Memory over time on each device, from the allocator's own events.

In: a file's memory events. Out: one line for each device, thinned to what a screen can show (the highest and lowest point of each
stretch stay, so the peak is the true one). Where the totals count only from the start of the recording, the record says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from unchoke.reports.trace.operators import PROCESSOR_TYPES
from unchoke.reports.trace.trace_records import Memory
from unchoke.reports.trace.trace_source import MemoryEvent

_MOST_POINTS = 4000
_NAMES = {0: "CPU", 1: "CUDA", 6: "HIP", 12: "XPU", 13: "MPS"}
"""torch's numbers of device types; others are called by their number."""

Point = tuple[int, int, int]
"""When (ns), bytes allocated, bytes reserved."""


def memory_lines(events: Sequence[MemoryEvent]) -> tuple[Memory, ...]:
    """One line for each device, the machine's own memory first."""
    found: dict[tuple[int, int], list[MemoryEvent]] = {}
    for event in sorted(events, key=lambda event: event.at_ns):
        kind = 0 if event.device_type in PROCESSOR_TYPES else event.device_type
        found.setdefault((kind, event.device if kind else 0), []).append(event)
    return tuple(_line(kind, device, found[kind, device]) for kind, device in sorted(found))


def _line(kind: int, device: int, events: Sequence[MemoryEvent]) -> Memory:
    points = _points(events)
    peak_at_ns, peak, _ = max(points, key=lambda point: point[1])
    shown = _thinned(points)
    name = _NAMES.get(kind, f"device type {kind}")
    return Memory(
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
