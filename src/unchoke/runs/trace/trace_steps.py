"""Where each step's time went: every ProfilerStep split into stages that add up to it.

In: the nested calls of a trace. Out: one `Step` each, on the clock of the thread that trains. The split follows the marks
`unchoke.wait`, `unchoke.forward` and so on where the program set them, one inside another taking its time from it; otherwise what
torch marks by itself tells: `enumerate(DataLoader)` and `Optimizer.step`, gradient functions, copies to the device. Work on a
device runs beside that clock: it is summed up apart, and where the thread stood still for it, that is a stage.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from unchoke.runs.trace.spans import ANNOTATION, COPY, DEVICE_WORK, OPERATOR, RUNTIME, Span
from unchoke.runs.trace.trace_records import STAGES, WHOLE, Step
from unchoke.runs.trace.trace_sums import STEP, ThreadCalls

MARKS = {f"unchoke.{stage}": stage for stage in STAGES} | {"unchoke.machine": "synchronise"}
_STARTS = {
    "enumerate(DataLoader)#": "wait",
    "Optimizer.step#": "optimizer",
    "Optimizer.zero_grad#": "optimizer",
    "autograd::engine::evaluate_function": "backward",
}
_READS_BACK = {"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::nonzero"}
_OF_EVERY_STEP = ("forward", "backward", "optimizer")
_WORK = "work"
"""Operators that no name explains: forward when a backward follows them, otherwise other."""


@dataclass(frozen=True)
class _Stretch:
    """A stretch of a step that belongs to one stage."""

    start_ns: int
    end_ns: int
    stage: str


def split_steps(calls: ThreadCalls, spans: Sequence[Span]) -> tuple[tuple[Step, ...], str]:
    """The steps in order, and by what they were split: "marks" or "names". Without any ProfilerStep, the whole is one step."""
    annotations = [span for span in spans if span.kind == ANNOTATION]
    marked = any(span.name in MARKS for span in annotations)
    found = sorted((span for span in annotations if span.name.startswith(STEP)), key=lambda span: span.start_ns)
    splitter = _Splitter(calls, spans, marked=marked)
    steps = [splitter.split(span, span.children) for span in found] or list(splitter.split_whole())
    return tuple(_last_judged(steps)), "marks" if marked else "names"


def missing_stages(steps: Sequence[Step]) -> list[str]:
    """What every step before the last has and the last has not, where that shows that the recording ended in the middle of it."""
    if len(steps) < 2:
        return []
    *before, last = steps
    return [stage for stage in _OF_EVERY_STEP if stage not in last.stages and all(stage in step.stages for step in before)]


def _last_judged(steps: list[Step]) -> list[Step]:
    return [*steps[:-1], replace(steps[-1], whole=False)] if missing_stages(steps) else steps


class _Splitter:
    """Splits steps of one trace."""

    def __init__(self, calls: ThreadCalls, spans: Sequence[Span], *, marked: bool) -> None:
        self._calls = calls
        self._marked = marked
        self._busy = _union((span.start_ns, span.end_ns) for span in spans if span.kind in DEVICE_WORK)
        self._uploads = {span.link for span in spans if span.kind == COPY and "HtoD" in span.name}
        gradients = (span for ordered in calls.values() for span in ordered if _named(span) == "backward")
        self._gradients = sorted(gradients, key=lambda span: span.start_ns)

    def split_whole(self) -> Iterator[Step]:
        """The busiest thread from its first call to its last."""
        if not self._calls:
            return
        thread = max(self._calls, key=lambda thread: sum(span.duration_ns for span in self._calls[thread] if span.parent is None))
        ordered = self._calls[thread]
        whole = Span(ANNOTATION, WHOLE, thread, ordered[0].start_ns, max(span.end_ns for span in ordered))
        yield self.split(whole, [span for span in ordered if span.parent is None])

    def split(self, step: Span, inside: Sequence[Span]) -> Step:
        parts = list(_marked(inside, step)) if self._marked else self._guess(step, inside)
        parts = _apart(step, [*parts, *self._standing_still(step, parts)])
        stages = dict.fromkeys(STAGES, 0)
        for part in parts:
            stages[part.stage] += part.end_ns - part.start_ns
        stages["other"] += step.duration_ns - sum(stages.values())
        return Step(
            name=step.name,
            start_us=step.start_ns / 1000,
            wall_us=step.duration_ns / 1000,
            stages={stage: spent_ns / 1000 for stage, spent_ns in stages.items() if spent_ns},
            device_busy_us=_overlap(self._busy, step) / 1000,
        )

    def _guess(self, step: Span, inside: Sequence[Span]) -> list[_Stretch]:
        """Neighbours of one kind are one part, with the Python between them."""
        elsewhere = [span for span in _within(self._gradients, step) if span.thread != step.thread and span.parent is None]
        labelled = [(span, self._label(span)) for span in self._opened(inside)] + [(span, "backward") for span in elsewhere]
        labelled.sort(key=lambda pair: pair[0].start_ns)
        groups = [(label, [span for span, _ in group]) for label, group in groupby(labelled, key=lambda pair: pair[1])]
        backwards = [place for place, (label, _) in enumerate(groups) if label == "backward"]
        last = backwards[-1] if backwards else len(groups)
        parts = []
        for place, (label, spans) in enumerate(groups):
            after = "optimizer" if spans[0].parent is not None and _named(spans[0].parent) == "optimizer" else "other"
            stage = ("forward" if place < last else after) if label == _WORK else label
            parts.append(_Stretch(spans[0].start_ns, max(span.end_ns for span in spans), stage))
        return parts

    def _opened(self, spans: Iterable[Span]) -> Iterator[Span]:
        """ThreadCalls one by one; annotations that name no stage are replaced by what they hold.

        So is an optimizer's step that computes the gradients itself, in a closure, as Lightning has it.
        """
        for span in spans:
            stage = _named(span)
            if (stage is None and span.kind == ANNOTATION) or (stage == "optimizer" and _within(self._gradients, span)):
                yield from self._opened(span.children)
            else:
                yield span

    def _label(self, span: Span) -> str:
        stage = _named(span)
        if stage:
            return stage
        if span.kind == RUNTIME or span.name in _READS_BACK:
            return "synchronise" if any(map(_stands_still, _all(span))) else _WORK
        if self._uploads and any(inner.link in self._uploads for inner in _all(span) if inner.kind == OPERATOR):
            return "copy"
        return _WORK

    def _standing_still(self, step: Span, parts: Sequence[_Stretch]) -> Iterator[_Stretch]:
        """Waits for the device that lie in no stage yet."""
        known = sorted(parts, key=lambda part: part.start_ns)
        starts = [part.start_ns for part in known]
        for span in _within(self._calls.get(step.thread, []), step):
            place = bisect.bisect_right(starts, span.start_ns) - 1
            covered = place >= 0 and span.start_ns < known[place].end_ns
            if _stands_still(span) and not covered:
                yield _Stretch(span.start_ns, span.end_ns, "synchronise")


def _named(span: Span) -> str | None:
    return next((stage for start, stage in _STARTS.items() if span.name.startswith(start)), None)


def _stands_still(span: Span) -> bool:
    return span.kind == RUNTIME and span.name.endswith("Synchronize")


def _marked(inside: Iterable[Span], around: Span) -> Iterator[_Stretch]:
    """Marks below a span, however deep among other calls; what no inner mark takes is the outer one's."""
    stage, reached = MARKS.get(around.name), around.start_ns
    for mark in _marks(inside):
        if stage:
            yield _Stretch(reached, mark.start_ns, stage)
        yield from _marked(mark.children, mark)
        reached = mark.end_ns
    if stage:
        yield _Stretch(reached, around.end_ns, stage)


def _marks(spans: Iterable[Span]) -> Iterator[Span]:
    for span in spans:
        if span.name in MARKS:
            yield span
        else:
            yield from _marks(span.children)


def _all(span: Span) -> Iterator[Span]:
    waiting = [span]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += found.children


def _within(ordered: Sequence[Span], step: Span) -> Sequence[Span]:
    """The spans that begin inside the step; `ordered` by start."""
    first = bisect.bisect_left(ordered, step.start_ns, key=lambda span: span.start_ns)
    last = bisect.bisect_left(ordered, step.end_ns, key=lambda span: span.start_ns)
    return ordered[first:last]


def _apart(step: Span, parts: Iterable[_Stretch]) -> list[_Stretch]:
    """Parts cut to the step, none over another: what began first keeps its time."""
    kept, reached = [], step.start_ns
    for part in sorted(parts, key=lambda part: part.start_ns):
        start_ns, end_ns = max(part.start_ns, reached), min(part.end_ns, step.end_ns)
        if end_ns > start_ns:
            kept.append(_Stretch(start_ns, end_ns, part.stage))
            reached = end_ns
    return kept


def _union(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The intervals with overlaps put together, in order."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _overlap(union: Sequence[tuple[int, int]], step: Span) -> int:
    first = bisect.bisect_left(union, step.start_ns, key=lambda interval: interval[1])
    total = 0
    for start, end in union[first:]:
        if start >= step.end_ns:
            break
        total += min(end, step.end_ns) - max(start, step.start_ns)
    return total
