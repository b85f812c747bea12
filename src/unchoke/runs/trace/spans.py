"""Spans of time, and how those of one thread lie inside each other.

In: what happened on a thread, in any order. Out: each span's parent and children, as torch's own tables see them, and depths for
drawing. Integers of nanoseconds throughout, so that nothing is inside another only by rounding. Knows no file format.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

OPERATOR, ANNOTATION, RUNTIME, PYTHON = "operator", "annotation", "runtime", "python"
KERNEL, COPY, FILL, DEVICE_MARK = "kernel", "copy", "fill", "device mark"
CALLS = frozenset({OPERATOR, ANNOTATION, RUNTIME})
"""What runs on a thread of the processor and is counted among the operators."""
DEVICE_WORK = frozenset({KERNEL, COPY, FILL})
"""What keeps a device busy."""

Thread = tuple[str, str]
"""Process and thread on the processor; device and stream on a device."""


@dataclass(slots=True, eq=False)
class Span:
    """One event with a length. `parent` and `children` are filled in by `nest`; `same_as` by `merge_repeats`."""

    kind: str
    name: str
    thread: Thread
    start_ns: int
    end_ns: int
    link: int = 0
    """The number that ties a kernel to the operator that launched it; 0 without."""
    detail: str = ""
    facts: dict[str, object] = field(default_factory=dict)
    parent: Span | None = None
    children: list[Span] = field(default_factory=list)
    same_as: Span | None = None

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


def by_thread(spans: Iterable[Span]) -> dict[Thread, list[Span]]:
    """The spans of each thread, outer ones before the inner ones they hold."""
    threads: dict[Thread, list[Span]] = {}
    for span in spans:
        threads.setdefault(span.thread, []).append(span)
    for found in threads.values():
        found.sort(key=lambda span: (span.start_ns, -span.end_ns))
    return threads


def nest(ordered: Sequence[Span], *, slack_ns: int = 0) -> None:
    """Give every span of one thread its parent: the innermost one that holds it whole.

    With slack, one that seems to end a little later than its parent ends with it.
    """
    open_spans: list[Span] = []
    for span in ordered:
        while open_spans and (span.start_ns >= open_spans[-1].end_ns or span.end_ns > open_spans[-1].end_ns + slack_ns):
            open_spans.pop()
        if open_spans:
            span.parent = open_spans[-1]
            span.end_ns = min(span.end_ns, span.parent.end_ns)
            span.parent.children.append(span)
        open_spans.append(span)


def merge_repeats(ordered: Sequence[Span]) -> None:
    """A span that is the only thing inside another of the same name is one call with it: its children become the outer one's."""
    for span in ordered:
        outer = span.parent
        if outer is None or outer.name != span.name or len(outer.children) != 1:
            continue
        outer.children = span.children
        for child in span.children:
            child.parent = outer
        span.same_as = outer


def self_ns(span: Span) -> int:
    """The time of a span that none of its children took."""
    return span.duration_ns - sum(child.duration_ns for child in span.children)


def depths(ordered: Sequence[Span]) -> list[int]:
    """The line each span of a thread is drawn on: below everything that is open when it begins, so none covers another."""
    found: list[int] = []
    open_spans: list[tuple[int, int]] = []
    for span in ordered:
        open_spans = [(end_ns, depth) for end_ns, depth in open_spans if end_ns > span.start_ns]
        depth = 1 + max((depth for _, depth in open_spans), default=-1)
        open_spans.append((span.end_ns, depth))
        found.append(depth)
    return found


def innermost(ordered: Sequence[Span], starts_ns: Sequence[int], at_ns: int) -> Span | None:
    """The innermost of nested spans that was open at a moment: the last one begun before it, or one around that."""
    place = bisect.bisect_right(starts_ns, at_ns) - 1
    span = ordered[place] if place >= 0 else None
    while span is not None and span.end_ns < at_ns:
        span = span.parent
    return span
