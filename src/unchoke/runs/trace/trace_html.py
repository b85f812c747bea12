"""A torch.profiler trace as one self-contained HTML page: overview, operators, kernels, trace strip, memory; a diff of two.

In: one trace file, or two. Out: the page beside it or where asked. These are the views that TensorBoard's profiler plugin had; no
network, no external script, works from a file. Everything from the trace is escaped, and the page's policy lets only its own
script run. What a trace lacks, the view says, with how to record it. The data lies in the page as JSON, columns and tables
instead of objects and times in whole nanoseconds, for its scripts (`templates/trace_*.js`) to read; whatever the names in a trace
hold, no character that HTML reads as markup is left.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from markupsafe import Markup

from unchoke.core import atomic
from unchoke.runs.report.charts import share_bar, stacked_bar
from unchoke.runs.report.layout import shorten
from unchoke.runs.report.page import environment, page_parts
from unchoke.runs.trace.trace_record import EventStrip, KernelRow, OperatorRow, TraceDiff, TraceRecord, compare_traces, read_trace
from unchoke.runs.trace.trace_steps import STAGES, Step
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
    rows = []
    for step in steps[:_MOST_STEPS]:
        wall = format_us(step.wall_us)
        spent = [(stage, step.stages[stage]) for stage in STAGES if stage in step.stages]
        parts = [(f"{stage}: {format_us(us)} of {wall}", us / longest_us, _COLOURS[stage]) for stage, us in spent]
        busy = f"{step.device_busy_us / step.wall_us * 100:.0f} %" if step.wall_us else ""
        rows.append({"name": step.name, "time": wall, "busy": busy, "bar": stacked_bar(parts, height_px=16)})
    return rows


def _stage_changes(diff: TraceDiff) -> list[dict[str, Any]]:
    longest_us = max((max(row["before_us"], row["after_us"]) for row in diff.stages), default=0.0) or 1.0
    return [
        {
            "stage": row["stage"],
            "class": _COLOURS[row["stage"]],
            "before": format_us(row["before_us"]),
            "after": format_us(row["after_us"]),
            "change": format_us(row["change_us"], signed=True),
            "bars": [share_bar(row[one] / longest_us, class_=_COLOURS[row["stage"]]) for one in ("before_us", "after_us")],
        }
        for row in diff.stages
    ]


def embed(record: TraceRecord, diff: TraceDiff | None = None) -> Markup:
    """The page's data as text for a script tag of type application/json."""
    text = json.dumps(page_data(record, diff), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character, escape in _ESCAPED.items():
        text = text.replace(character, escape)
    return Markup(text)


def page_data(record: TraceRecord, diff: TraceDiff | None = None) -> dict[str, Any]:
    """What the scripts read."""
    changes = diff.operators if diff else ()
    return {
        "duration_us": record.about.duration_us,
        "steps": [[step.name, step.start_us, step.wall_us] for step in record.steps],
        "operators": _column_table([vars(row) for row in record.operators], [one.name for one in fields(OperatorRow)]),
        "kernels": _column_table([vars(row) for row in record.kernels], [one.name for one in fields(KernelRow)]),
        "strip": _strip(record.strip),
        "memory": [asdict(line) for line in record.memory],
        "changes": _column_table(changes, list(changes[0]) if changes else []),
    }


def _column_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> dict[str, Any]:
    return {"columns": columns, "rows": [[_plain(row[name]) for name in columns] for row in rows]}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return shorten(value, _LONGEST_TEXT)
    return round(value, 4) if isinstance(value, float) else value


def _strip(strip: EventStrip) -> dict[str, Any]:
    """Columns of each row; starts as steps from one event to the next: most are short, and the file is half as large."""
    names, details = ([shorten(text, _LONGEST_TEXT) for text in texts] for texts in (strip.names, strip.details))
    rows = []
    for row in strip.rows:
        starts, durations, depths, name_numbers, detail_numbers, merged = map(list, zip(*row.events, strict=True))
        steps = [after - before for before, after in pairwise([0, *starts])]
        kept = {"name": shorten(row.name, _LONGEST_TEXT), "kind": row.kind, "starts": steps, "durations": durations}
        kept |= {"depths": depths, "names": name_numbers, "details": detail_numbers}
        rows.append({**kept, "merged": {place: count for place, count in enumerate(merged) if count}})
    return {"names": names, "details": details, "rows": rows}
