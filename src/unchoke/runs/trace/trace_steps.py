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
from typing import NamedTuple

from unchoke.runs.trace.trace_source import ANNOTATION, COPY, DEVICE_WORK, OPERATOR, RUNTIME, Span, ThreadCalls

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
STEP = "ProfilerStep#"
_MARKS = {f"unchoke.{stage}": stage for stage in STAGES} | {"unchoke.machine": "synchronise"}
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
class Step:
    """One ProfilerStep. The stages add up to `wall_us`; `device_busy_us` runs beside them, on the device."""

    name: str
    start_us: float
    wall_us: float
    stages: dict[str, float]
    device_busy_us: float
    whole: bool = True
    """False for the last one of a recording that ended in the middle of it."""


class _Stretch(NamedTuple):
    """A stretch of a step that belongs to one stage."""

    start_ns: int
    end_ns: int
    stage: str


def split_steps(calls: ThreadCalls, spans: Sequence[Span]) -> tuple[tuple[Step, ...], str]:
    """The steps in order, and by what they were split: "marks" or "names". Without any ProfilerStep, the whole is one step."""
    annotations = [span for span in spans if span.kind == ANNOTATION]
    marked = any(span.name in _MARKS for span in annotations)
    splitter = _Splitter(calls, spans, marked=marked)
    found = sorted((span for span in annotations if span.name.startswith(STEP)), key=lambda span: span.start_ns)
    steps = [splitter.split(span, span.children) for span in found]
    if not steps and calls:  # the busiest thread from its first call to its last
        outer = {thread: [span for span in ordered if span.parent is None] for thread, ordered in calls.items()}
        thread = max(outer, key=lambda thread: sum(span.duration_ns for span in outer[thread]))
        end_ns = max(span.end_ns for span in calls[thread])
        steps = [splitter.split(Span(ANNOTATION, WHOLE, thread, calls[thread][0].start_ns, end_ns), outer[thread])]
    if missing_stages(steps):
        steps[-1] = replace(steps[-1], whole=False)
    return tuple(steps), "marks" if marked else "names"


def missing_stages(steps: Sequence[Step]) -> list[str]:
    """What every step before the last has and the last has not, where that shows that the recording ended in the middle of it."""
    before, last = steps[:-1], steps[-1:]
    stages = [stage for stage in _OF_EVERY_STEP if before and all(stage in step.stages for step in before)]
    return [stage for stage in stages if stage not in last[0].stages]


class _Splitter:
    """Splits steps of one trace."""

    def __init__(self, calls: ThreadCalls, spans: Sequence[Span], *, marked: bool) -> None:
        self._calls, self._marked = calls, marked
        self._busy = _union((span.start_ns, span.end_ns) for span in spans if span.kind in DEVICE_WORK)
        self._uploads = {span.link for span in spans if span.kind == COPY and "HtoD" in span.name}
        gradients = (span for ordered in calls.values() for span in ordered if _named(span) == "backward")
        self._gradients = sorted(gradients, key=lambda span: span.start_ns)

    def split(self, step: Span, inside: Sequence[Span]) -> Step:
        parts = list(_marked(inside, step)) if self._marked else self._guess(step, inside)
        stages, reached = dict.fromkeys(STAGES, 0), step.start_ns
        # cut to the step, none over another: what began first keeps its time
        for part in sorted([*parts, *self._standing_still(step, parts)], key=lambda part: part.start_ns):
            start_ns, end_ns = max(part.start_ns, reached), min(part.end_ns, step.end_ns)
            if end_ns > start_ns:
                stages[part.stage] += end_ns - start_ns
                reached = end_ns
        stages["other"] += step.duration_ns - sum(stages.values())
        first = bisect.bisect_right(self._busy, step.start_ns, key=lambda interval: interval[1])
        busy = self._busy[first : bisect.bisect_left(self._busy, step.end_ns, key=lambda interval: interval[0])]
        busy_ns = sum(min(end, step.end_ns) - max(start, step.start_ns) for start, end in busy)
        spent_us = {stage: spent_ns / 1000 for stage, spent_ns in stages.items() if spent_ns}
        return Step(step.name, step.start_ns / 1000, step.duration_ns / 1000, spent_us, busy_ns / 1000)

    def _guess(self, step: Span, inside: Sequence[Span]) -> list[_Stretch]:
        """Neighbours of one kind are one part, with the Python between them."""
        elsewhere = [span for span in _within(self._gradients, step) if span.thread != step.thread and span.parent is None]
        labelled = [(span, self._label(span)) for span in self._opened(inside)] + [(span, "backward") for span in elsewhere]
        labelled.sort(key=lambda pair: pair[0].start_ns)
        groups = [(label, [span for span, _ in group]) for label, group in groupby(labelled, key=lambda pair: pair[1])]
        last = max((place for place, (label, _) in enumerate(groups) if label == "backward"), default=len(groups))
        parts = []
        for place, (label, spans) in enumerate(groups):
            after = "optimizer" if spans[0].parent is not None and _named(spans[0].parent) == "optimizer" else "other"
            stage = ("forward" if place < last else after) if label == _WORK else label
            parts.append(_Stretch(spans[0].start_ns, max(span.end_ns for span in spans), stage))
        return parts

    def _opened(self, spans: Iterable[Span]) -> Iterator[Span]:
        """Calls one by one; annotations that name no stage are replaced by what they hold.

        So is an optimizer's step that computes the gradients itself, in a closure, as Lightning has it.
        """
        for span in spans:
            stage = _named(span)
            if (stage is None and span.kind == ANNOTATION) or (stage == "optimizer" and _within(self._gradients, span)):
                yield from self._opened(span.children)
            else:
                yield span

    def _label(self, span: Span) -> str:
        if stage := _named(span):
            return stage
        if span.kind == RUNTIME or span.name in _READS_BACK:
            return "synchronise" if any(map(_stands_still, _all(span))) else _WORK
        uploads = self._uploads and any(inner.link in self._uploads for inner in _all(span) if inner.kind == OPERATOR)
        return "copy" if uploads else _WORK

    def _standing_still(self, step: Span, parts: Sequence[_Stretch]) -> Iterator[_Stretch]:
        """Waits for the device that lie in no stage yet."""
        known = sorted(parts, key=lambda part: part.start_ns)
        for span in _within(self._calls.get(step.thread, []), step):
            place = bisect.bisect_right(known, span.start_ns, key=lambda part: part.start_ns) - 1
            if _stands_still(span) and (place < 0 or span.start_ns >= known[place].end_ns):
                yield _Stretch(span.start_ns, span.end_ns, "synchronise")


def _named(span: Span) -> str | None:
    return next((stage for start, stage in _STARTS.items() if span.name.startswith(start)), None)


def _stands_still(span: Span) -> bool:
    return span.kind == RUNTIME and span.name.endswith("Synchronize")


def _marked(inside: Iterable[Span], around: Span) -> Iterator[_Stretch]:
    """Marks below a span, however deep among other calls; what no inner mark takes is the outer one's."""
    stage, reached = _MARKS.get(around.name), around.start_ns
    for mark in _marks(inside):
        if stage:
            yield _Stretch(reached, mark.start_ns, stage)
        yield from _marked(mark.children, mark)
        reached = mark.end_ns
    if stage:
        yield _Stretch(reached, around.end_ns, stage)


def _marks(spans: Iterable[Span]) -> Iterator[Span]:
    for span in spans:
        if span.name in _MARKS:
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
    first, last = (bisect.bisect_left(ordered, at, key=lambda span: span.start_ns) for at in (step.start_ns, step.end_ns))
    return ordered[first:last]


def _union(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The intervals with overlaps put together, in order."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
