"""A trace's record as compact data inside its page: columns and tables instead of objects, times in whole nanoseconds.

In: a record, and a comparison where there is one. Out: JSON that is safe between script tags, whatever the names in the trace
hold: no character that HTML reads as markup is left, and control characters are shown, not effective. The page's scripts
(`templates/trace_*.js`) read it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from unchoke.reports.layout import shorten
from unchoke.reports.trace.trace_records import Kernel, Operator, OperatorChange, Row, Strip, TraceDiff, TraceRecord

if TYPE_CHECKING:
    from markupsafe import Markup

_LONGEST_TEXT = 2000
_ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
_CHANGES = ("cpu_change_us", "device_change_us")


def embed(record: TraceRecord, diff: TraceDiff | None = None) -> Markup:
    """The page's data as text for a script tag of type application/json."""
    from markupsafe import Markup

    text = json.dumps(page_data(record, diff), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character, escape in _ESCAPED.items():
        text = text.replace(character, escape)
    return Markup(text)


def page_data(record: TraceRecord, diff: TraceDiff | None = None) -> dict[str, Any]:
    """What the scripts read."""
    return {
        "duration_us": record.about.duration_us,
        "steps": [[step.name, step.start_us, step.wall_us] for step in record.steps],
        "operators": _table(record.operators, [column.name for column in fields(Operator)]),
        "kernels": _table(record.kernels, [column.name for column in fields(Kernel)]),
        "strip": _strip(record.strip),
        "memory": [asdict(line) for line in record.memory],
        "changes": _table(diff.operators if diff else (), [*(column.name for column in fields(OperatorChange)), *_CHANGES]),
    }


def _table(rows: Sequence[object], columns: Sequence[str]) -> dict[str, Any]:
    return {"columns": list(columns), "rows": [[_plain(getattr(row, name)) for name in columns] for row in rows]}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return shorten(value, _LONGEST_TEXT)
    return round(value, 4) if isinstance(value, float) else value


def _strip(strip: Strip) -> dict[str, Any]:
    names, details = ([shorten(text, _LONGEST_TEXT) for text in texts] for texts in (strip.names, strip.details))
    return {"names": names, "details": details, "rows": [_row(row) for row in strip.rows]}


def _row(row: Row) -> dict[str, Any]:
    """Starts as steps from one event to the next: most are short, and the file is half as large."""
    return {
        "name": shorten(row.name, _LONGEST_TEXT),
        "kind": row.kind,
        "starts": _steps(round(start * 1000) for start in row.starts_us),
        "durations": [round(duration * 1000) for duration in row.durations_us],
        "depths": row.depths,
        "names": row.names,
        "details": row.details,
        "merged": {place: count for place, count in enumerate(row.merged) if count},
    }


def _steps(values: Iterable[int]) -> list[int]:
    return [after - before for before, after in pairwise([0, *values])]
