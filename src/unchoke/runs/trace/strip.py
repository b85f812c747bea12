"""Everything that was recorded, laid out for drawing: one row for each thread or stream, nested events below the outer ones.

In: a file's spans. Out: an `EventStrip` of at most some 60,000 events. Beyond that the smallest are merged with their neighbours
on the same line, and counted; nothing vanishes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unchoke.runs.trace.spans import COPY, DEVICE_MARK, DEVICE_WORK, FILL, KERNEL, Span, Thread, by_thread, depths
from unchoke.runs.trace.trace_records import EventStrip, StripRow
from unchoke.runs.trace.trace_source import TraceSource
from unchoke.runs.trace.trace_sums import launchers, sizes_text

MOST_EVENTS = 60_000
_SMALL = "small events"

StripEvent = tuple[int, int, int, str, str, int]
"""Start and end (ns), depth, name, detail, how many events it stands for (0: itself)."""


def lay_out(source: TraceSource, *, most_events: int = MOST_EVENTS) -> EventStrip:
    """The strip: threads of the processor first, the busiest on top, then streams of devices."""
    threads = by_thread(source.spans)
    launched_by = launchers(source.spans)
    drawn = {thread: _drawn(ordered, launched_by) for thread, ordered in threads.items()}
    limit_ns = _limit(source.spans, most_events)
    num_lines = sum(1 + max(event[2] for event in events) for events in drawn.values())
    stretch_ns = max(1, source.duration_ns * num_lines * 4 // most_events)
    names: dict[str, int] = {}  # each text once, by number
    details: dict[str, int] = {}
    rows = []
    order = {thread: (_is_device(spans), thread[0] != thread[1], -len(spans), thread) for thread, spans in threads.items()}
    for thread in sorted(threads, key=order.__getitem__):
        shown = list(_merged(drawn[thread], limit_ns, stretch_ns))
        rows.append(_row(_row_name(source, thread), _is_device(threads[thread]), shown, names, details))
    merged = sum(sum(row.merged) for row in rows)
    return EventStrip(tuple(rows), tuple(names), tuple(details), merged)


def _limit(spans: Sequence[Span], most_events: int) -> int:
    """The length below which events are merged; 0 where all can be shown.

    3/8 of the room go to events that stay, as much to merged ones between these, and a quarter to where stretches end.
    """
    if len(spans) <= most_events:
        return 0
    return sorted((span.duration_ns for span in spans), reverse=True)[most_events * 3 // 8] + 1


def _is_device(spans: Sequence[Span]) -> bool:
    return any(span.kind in DEVICE_WORK or span.kind == DEVICE_MARK for span in spans)


def _row_name(source: TraceSource, thread: Thread) -> str:
    process, number = thread
    if source.threads.get(thread, "").startswith("stream") or source.labels.get(process, "").startswith("GPU"):
        return f"{source.labels.get(process) or f'device {process}'} · {source.threads.get(thread) or f'stream {number}'}"
    name = source.threads.get(thread) or f"thread {number}"
    return f"main {name}" if process == number else name


def _drawn(ordered: Sequence[Span], launched_by: dict[int, Span]) -> list[StripEvent]:
    return [
        (span.start_ns, span.end_ns, depth, span.name, _detail(span, launched_by), 0)
        for span, depth in zip(ordered, depths(ordered), strict=True)
    ]


def _detail(span: Span, launched_by: dict[int, Span]) -> str:
    """What hovering tells beside name and time."""
    if span.kind not in DEVICE_WORK:
        return span.detail
    launcher = launched_by.get(span.link)
    parts = [f"launched by {launcher.name}" if launcher else ""]
    if span.kind == KERNEL:
        parts.append(f"grid {sizes_text(span.facts.get('grid'))}, block {sizes_text(span.facts.get('block'))}")
    if span.kind in {COPY, FILL} and isinstance(span.facts.get("bytes"), int):
        parts.append(f"{span.facts['bytes']:,} bytes")
    return "; ".join(filter(None, parts))


def _merged(drawn: Sequence[StripEvent], limit_ns: int, stretch_ns: int) -> Iterator[StripEvent]:
    """Events below the limit become one with their neighbours of the same depth and stretch."""
    waiting: dict[int, list[StripEvent]] = {}
    for event in drawn:
        start_ns, end_ns, depth = event[:3]
        held = waiting.get(depth, [])
        small = end_ns - start_ns < limit_ns
        if held and (not small or held[0][0] // stretch_ns != start_ns // stretch_ns):
            yield _together(waiting.pop(depth))
        if small:
            waiting.setdefault(depth, []).append(event)
        else:
            yield event
    for held in waiting.values():
        yield _together(held)


def _together(events: Sequence[StripEvent]) -> StripEvent:
    if len(events) == 1:
        return events[0]
    end_ns = max(event[1] for event in events)
    return events[0][0], end_ns, events[0][2], _SMALL, "", len(events)


def _row(name: str, device: bool, drawn: Sequence[StripEvent], names: dict[str, int], details: dict[str, int]) -> StripRow:
    ordered = sorted(drawn, key=lambda event: (event[2], event[0]))
    return StripRow(
        name=name,
        kind="stream" if device else "thread",
        starts_us=tuple(start / 1000 for start, *_ in ordered),
        durations_us=tuple((end - start) / 1000 for start, end, *_ in ordered),
        depths=tuple(event[2] for event in ordered),
        names=tuple(names.setdefault(event[3], len(names)) for event in ordered),
        details=tuple(details.setdefault(event[4], len(details)) for event in ordered),
        merged=tuple(event[5] for event in ordered),
    )
