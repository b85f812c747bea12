"""A notebook's cells as one self-contained HTML page: verdicts, bars of time and memory, the source with its choke points marked.

In comes the dictionary of an analysis, out comes the page's text. No script, no network; everything from the notebook is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unchoke.notebooks.notebook_text import (
    bytes_words,
    cell_facts,
    cost_words,
    heading,
    notes,
    reason_words,
    seconds_words,
    total_words,
    verdict_counts,
)
from unchoke.reports.page import environment, page_parts
from unchoke.reports.svg import share_bar

_STYLES = ("report.css", "notebook.css")
_LONGEST_SOURCE = 400  # lines; what is longer is cut, with a word


def render_notebook_html(record: Mapping[str, Any]) -> str:
    """The whole page."""
    device = record["totals"].get("device_peak_bytes") is not None
    return (
        environment()
        .get_template("notebook.html.j2")
        .render(
            **page_parts(styles=_STYLES, scripts=()),
            name=Path(record["notebook"]).name,
            facts=heading(record).partition(": ")[2].split("; "),
            ran=record["ran"],
            has_device=device,
            highlights=record["highlights"],
            counts=verdict_counts(record),
            total=total_words(record),
            notes=notes(record),
            cells=[_cell(cell, record, device=device) for cell in record["cells"]],
            next_command=record["next_command"],
        )
    )


def _cell(cell: Mapping[str, Any], record: Mapping[str, Any], *, device: bool) -> dict[str, Any]:
    run = cell["run"] or {}
    return {
        **{name: cell[name] for name in ("cell", "does", "verdict", "command", "findings", "problem")},
        "reason": reason_words(cell),
        "costs": cost_words(cell["run"], device=device),
        "time_bar": share_bar(_share(run.get("wall_s"), record["totals"]["wall_s"]), class_="s1"),
        "memory_bar": share_bar(_share(run.get("peak_rss_bytes"), record["totals"]["peak_rss_bytes"]), class_="s4"),
        "facts": [(word, text) for word, text in cell_facts(cell) if word != "run"],
        "read": bytes_words(run.get("read_bytes")),
        "written": bytes_words(run.get("written_bytes")),
        "cpu": seconds_words(run.get("cpu_s")),
        "lines": _lines(cell),
        "cut": max(0, cell["source"].count("\n") + 1 - _LONGEST_SOURCE),
    }


def _share(value: float | None, whole: float | None) -> float:
    return value / whole if value and whole else 0.0


def _lines(cell: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The source by line, each with the codes of what was found there."""
    found: dict[int, list[str]] = {}
    for finding in cell["findings"]:
        if finding["line"] is not None:
            found.setdefault(finding["line"], []).append(finding["code"])
    failed = (cell["run"] or {}).get("line")
    return [
        {"number": number, "text": text, "codes": [*found.get(number, []), *(["raised here"] if number == failed else [])]}
        for number, text in enumerate(cell["source"].split("\n")[:_LONGEST_SOURCE], start=1)
    ]
