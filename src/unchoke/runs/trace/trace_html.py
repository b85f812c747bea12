"""A torch.profiler trace as one self-contained HTML page: overview, operators, kernels, trace strip, memory; a diff of two.

In: one trace file, or two. Out: the page beside it or where asked. These are the views that TensorBoard's profiler plugin had; no
network, no external script, works from a file. Everything from the trace is escaped, and the page's policy lets only its own
script run. What a trace lacks, the view says, with how to record it. The data lies in the page as JSON, columns and tables
instead of objects and times in whole nanoseconds, for its scripts (`templates/trace_*.js`) to read; whatever the names in a trace
hold, no character that HTML reads as markup is left.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from markupsafe import Markup

from unchoke.core import atomic
from unchoke.runs.report.charts import share_bar, stacked_bar
from unchoke.runs.report.layout import shorten
from unchoke.runs.report.page import environment, page_parts
from unchoke.runs.trace import read_trace
from unchoke.runs.trace.trace_records import (
    STAGES,
    EventStrip,
    KernelRow,
    OperatorChange,
    OperatorRow,
    Step,
    StripRow,
    TraceDiff,
    TraceRecord,
    compare_traces,
)
from unchoke.runs.trace.trace_text import (
    about_facts,
    describe_causes,
    describe_kernels,
    describe_split,
    describe_steps,
    diff_warnings,
    format_us,
)

_STYLES = ("report.css", "trace.css")
_SCRIPTS = ("trace_page.js", "trace_tables.js", "trace_strip.js", "trace_strip_input.js", "trace_memory.js", "trace_start.js")
_COLOURS = dict(zip(STAGES, ("s2", "s5", "s6", "s1", "s4", "s9", "s3", "s7", "s8", "sync", "rest"), strict=True))
_MOST_STEPS = 200
_LONGEST_TEXT = 2000
_ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
_CHANGES = ("cpu_change_us", "device_change_us")


def save_trace_html(trace: Path, to: Path, *, against: Path | None = None) -> Path:
    """Write the page of `trace` to `to`; with `against`, an earlier trace, also what changed since. Returns the page's path."""
    record = read_trace(trace)
    diff = compare_traces(read_trace(against), record) if against is not None else None
    atomic.write_text(to, render_trace_html(record, diff))
    return to


def render_trace_html(record: TraceRecord, diff: TraceDiff | None = None) -> str:
    """The whole page."""
    parts = page_parts(styles=_STYLES, scripts=_SCRIPTS)
    template = environment().get_template("trace.html.j2")
    return template.render(
        **parts,
        data=embed(record, diff),
        about=record.about,
        facts=about_facts(record),
        sentences=[*describe_steps(record), *describe_causes(record)],
        split_hint=describe_split(record),
        means=_means(record),
        steps=_step_rows(record.steps),
        steps_left_out=max(0, len(record.steps) - _MOST_STEPS),
        has_device=bool(record.kernels),
        no_kernels=describe_kernels(record),
        strip=record.strip,
        memory=record.memory,
        diff=diff,
        changes=_stage_changes(diff) if diff else [],
        warnings=diff_warnings(diff) if diff else [],
    )


def _means(record: TraceRecord) -> list[dict[str, Any]]:
    means = record.mean_stages()
    whole_us = sum(means.values()) or 1.0
    return [
        {"stage": stage, "time": format_us(mean), "share": mean / whole_us, "meaning": STAGES[stage], "class": _COLOURS[stage]}
        for stage, mean in means.items()
    ]


def _step_rows(steps: Sequence[Step]) -> list[dict[str, Any]]:
    longest_us = max((step.wall_us for step in steps), default=0.0) or 1.0
    return [
        {
            "name": step.name,
            "time": format_us(step.wall_us),
            "busy": f"{step.device_busy_us / step.wall_us * 100:.0f} %" if step.wall_us else "",
            "bar": _bar(step, longest_us),
        }
        for step in steps[:_MOST_STEPS]
    ]


def _bar(step: Step, longest_us: float) -> Markup:
    parts = [
        (
            f"{stage}: {format_us(step.stages[stage])} of {format_us(step.wall_us)}",
            step.stages[stage] / longest_us,
            _COLOURS[stage],
        )
        for stage in STAGES
        if stage in step.stages
    ]
    return stacked_bar(parts, height_px=16)


def _stage_changes(diff: TraceDiff) -> list[dict[str, Any]]:
    longest_us = max((max(change.before_us, change.after_us) for change in diff.stages), default=0.0) or 1.0
    return [
        {
            "stage": change.stage,
            "class": _COLOURS[change.stage],
            "before": format_us(change.before_us),
            "after": format_us(change.after_us),
            "change": format_us(change.change_us, signed=True),
            "bars": [share_bar(side / longest_us, class_=_COLOURS[change.stage]) for side in (change.before_us, change.after_us)],
        }
        for change in diff.stages
    ]


def embed(record: TraceRecord, diff: TraceDiff | None = None) -> Markup:
    """The page's data as text for a script tag of type application/json."""
    text = json.dumps(page_data(record, diff), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character, escape in _ESCAPED.items():
        text = text.replace(character, escape)
    return Markup(text)


def page_data(record: TraceRecord, diff: TraceDiff | None = None) -> dict[str, Any]:
    """What the scripts read."""
    return {
        "duration_us": record.about.duration_us,
        "steps": [[step.name, step.start_us, step.wall_us] for step in record.steps],
        "operators": _column_table(record.operators, [column.name for column in fields(OperatorRow)]),
        "kernels": _column_table(record.kernels, [column.name for column in fields(KernelRow)]),
        "strip": _strip(record.strip),
        "memory": [asdict(line) for line in record.memory],
        "changes": _column_table(
            diff.operators if diff else (), [*(column.name for column in fields(OperatorChange)), *_CHANGES]
        ),
    }


def _column_table(rows: Sequence[object], columns: Sequence[str]) -> dict[str, Any]:
    return {"columns": list(columns), "rows": [[_plain(getattr(row, name)) for name in columns] for row in rows]}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return shorten(value, _LONGEST_TEXT)
    return round(value, 4) if isinstance(value, float) else value


def _strip(strip: EventStrip) -> dict[str, Any]:
    names, details = ([shorten(text, _LONGEST_TEXT) for text in texts] for texts in (strip.names, strip.details))
    return {"names": names, "details": details, "rows": [_strip_row(row) for row in strip.rows]}


def _strip_row(row: StripRow) -> dict[str, Any]:
    """Starts as steps from one event to the next: most are short, and the file is half as large."""
    return {
        "name": shorten(row.name, _LONGEST_TEXT),
        "kind": row.kind,
        "starts": [after - before for before, after in pairwise([0, *(round(start * 1000) for start in row.starts_us)])],
        "durations": [round(duration * 1000) for duration in row.durations_us],
        "depths": row.depths,
        "names": row.names,
        "details": row.details,
        "merged": {place: count for place, count in enumerate(row.merged) if count},
    }
