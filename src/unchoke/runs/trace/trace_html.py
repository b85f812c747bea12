"""A torch.profiler trace as one self-contained HTML page: overview, operators, kernels, trace strip, memory; a diff of two.

In: one trace file, or two. Out: the page, made like the report of a run (`report.html.j2`), with a strip of all events to zoom
into (`trace.js`). No network, works from a file. Names in a trace are escaped, also in the strip's data, which is JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from markupsafe import Markup

from unchoke.core import atomic
from unchoke.core.units import format_bytes
from unchoke.runs.report.charts import Series, line_chart
from unchoke.runs.report.layout import shorten, visible
from unchoke.runs.report.page import Block, Section, render_page
from unchoke.runs.trace.trace_record import EventStrip, MemoryLine, TraceDiff, TraceRecord, compare_traces, read_trace
from unchoke.runs.trace.trace_steps import WHOLE
from unchoke.runs.trace.trace_text import (
    about_facts,
    change_tables,
    describe_causes,
    describe_kernels,
    describe_split,
    describe_steps,
    diff_warnings,
    format_us,
    kernel_table,
    operator_table,
    stage_table,
    step_table,
)

_LONGEST_TEXT = 2000
_ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
_SLOWED = "The profiler itself slows many short operators down: compare shares, and measure speed without it."
_BESIDE = (
    "Work on the device runs beside that thread: forward and backward are the time it takes to queue it, and where the thread "
    "stands still for the device, that is “synchronise”."
)
_OPERATORS = (
    "Every call that torch recorded. Self time leaves out the calls inside it, so self times add up to the whole and total times "
    "do not; that of ProfilerStep is Python between the calls. Memory is what a call allocated less what it released."
)
_NO_SHAPES = "Input shapes were not recorded: pass record_shapes=True to the profiler."
_NO_MEMORY = "Memory was not recorded in this trace: pass profile_memory=True to the profiler."
_KERNELS = (
    "What ran on the device itself: kernels, copies between host and device, fills. A share is of all time the device was given "
    "work; streams that run at once both count. Grid, block, registers and shared memory are those of most launches; occupancy "
    "is the profiler's estimate from them."
)
_MEMORY = (
    "Bytes held by tensors after each allocation and release, as torch's allocator counts them. On a device, “reserved” is what "
    "the allocator has taken from it, handed out or not."
)
_CPU_MEMORY = (
    "On the CPU torch counts from the start of the recording: what was allocated before, weights for instance, is not in it, and "
    "releasing such a block lets the line fall below zero."
)
_SINGLE = "Each recording is a single measurement: a change of a few per cent may be noise."


def save_trace_html(trace: Path, to: Path, *, against: Path | None = None) -> Path:
    """Write the page of `trace` to `to`; with `against`, an earlier trace, also what changed since. Returns the page's path."""
    record = read_trace(trace)
    diff = compare_traces(read_trace(against), record) if against is not None else None
    atomic.write_text(to, render_trace_html(record, diff))
    return to


def render_trace_html(record: TraceRecord, diff: TraceDiff | None = None) -> str:
    """The whole page."""
    means, sentences = record.mean_stages(), [*describe_steps(record), *describe_causes(record)]
    whole = bool(record.steps) and record.steps[0].name == WHOLE
    result = {
        "figure": format_us(sum(means.values())),
        "caption": "the whole recording" if whole else "the mean step",
        "sentences": [visible(sentence) for sentence in sentences],
        "table": stage_table(record),
    }
    heading, sections = {"title": record.about.file, "facts": about_facts(record)}, list(_sections(record, diff))
    return render_page(heading, result, sections, style="trace.css", script="trace.js", data=embed(record))


def _sections(record: TraceRecord, diff: TraceDiff | None) -> Iterator[Section]:
    about, steps, shapes = record.about, step_table(record), operator_table(record.operators)
    hint = f"Times are those of the thread that trains; the parts add up to the step. {describe_split(record)}"
    later = len(record.steps) - len(steps.rows)
    left_out = f" {later:,} later steps are not drawn; the mean counts them." if later else ""
    drawn: list[Block] = [("table", steps)] if steps.rows else []
    yield Section(
        "steps",
        "Step by step",
        "",
        [*drawn, ("hint", " ".join(filter(None, (hint, _BESIDE if record.kernels else "", _SLOWED))) + left_out)],
    )
    lacks = " ".join(["" if about.shapes else _NO_SHAPES, "" if about.memory else _NO_MEMORY]).strip()
    by_shape: list[Block] = [("details", ("One row for each input shape", shapes))] if about.shapes else []
    yield Section(
        "operators", "Operators", "", [("table", operator_table(record.by_name())), *by_shape, ("hint", f"{_OPERATORS} {lacks}")]
    )
    kernels: list[Block] = [("table", kernel_table(record)), ("hint", _KERNELS)]
    yield Section("kernels", "Kernels", "", kernels if record.kernels else [("p", describe_kernels(record))])
    merged = (
        f"{record.strip.merged:,} of the {about.num_events:,} events, the shortest, are drawn together with their neighbours."
    )
    yield Section("strip", "Trace strip", "", [("strip", merged if record.strip.merged else "")])
    charts = [_memory_chart(line, place) for place, line in enumerate(record.memory)]
    counted = _MEMORY if all(line.whole for line in record.memory) else f"{_MEMORY} {_CPU_MEMORY}"
    yield Section(
        "memory", "Memory over time", "Memory", [("charts", charts), ("hint", counted)] if charts else [("p", _NO_MEMORY)]
    )
    if diff is not None:
        stages, operators = change_tables(diff)
        per_step = "Times and calls are for one step, so that recordings of different lengths compare."
        unit = per_step if diff.per_step else "One of the two has no steps: times and calls are those of the whole recordings."
        changes: list[Block] = [("p", f"before: {diff.before.file}; after: {diff.after.file}")]
        changes += [("p", warning) for warning in diff_warnings(diff)]
        changes += [("table", stages), ("h3", "Operators"), ("table", operators), ("hint", f"{unit} {_SINGLE}")]
        yield Section("diff", "Before and after", "Diff", changes)


def _memory_chart(line: MemoryLine, place: int) -> tuple[str, Markup]:
    """Bytes stay as they are until the next event: lines of steps, in MB over ms."""

    def steps(values: tuple[int, ...]) -> list[tuple[float, float]]:
        points = [(at / 1000, value / 1e6) for at, value in zip(line.at_us, values, strict=True)]
        return [points[0], *(one for (_, y), after in pairwise(points) for one in ((after[0], y), after))]

    series = [Series("allocated, MB", steps(line.allocated), "s1")]
    series += [Series("reserved, MB", steps(line.reserved), "s2")] if any(line.reserved) else []
    peak = f"peak {format_bytes(line.peak_bytes)}"
    mark = {"mark_x": line.peak_at_us / 1000, "mark_label": peak}
    drawn = line_chart(f"memory-{place}", f"Memory of {line.device} over time", series, x_label="ms", **mark)  # type: ignore[arg-type]
    return f"{line.device}: {peak}, {format_us(line.peak_at_us)} after the first event", drawn


def embed(record: TraceRecord) -> Markup:
    """What the strip's script reads, as text for a script tag: no character that HTML reads as markup is left."""
    data = {
        "duration_us": record.about.duration_us,
        "steps": [[step.name, step.start_us, step.wall_us] for step in record.steps],
        "strip": _strip(record.strip),
    }
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character, escape in _ESCAPED.items():
        text = text.replace(character, escape)
    return Markup(text)


def _strip(strip: EventStrip) -> dict[str, Any]:
    """Columns of each row; starts as steps from one event to the next: most are short, and the file is half as large."""
    names, details = ([shorten(text, _LONGEST_TEXT) for text in texts] for texts in (strip.names, strip.details))
    rows = []
    for row in strip.rows:
        starts, durations, depths, name_numbers, detail_numbers, merged = map(list, zip(*row.events, strict=True))
        steps = [after - before for before, after in pairwise([0, *starts])]
        kept = {"name": shorten(row.name, _LONGEST_TEXT), "starts": steps, "durations": durations, "depths": depths}
        kept |= {"names": name_numbers, "details": detail_numbers}
        rows.append({**kept, "merged": {place: count for place, count in enumerate(merged) if count}})
    return {"names": names, "details": details, "rows": rows}
