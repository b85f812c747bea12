"""A notebook's cells as plain text: a table with what each does, its choke points, its cost and the verdict; then the reasons.

In comes the dictionary of an analysis, out comes text. The words of one cell are made here for Markdown and HTML as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from unchoke.core.units import format_bytes, format_count, format_seconds
from unchoke.reports.layout import columns, shorten, visible, wrap

_INDENT = " " * 9
_ENDINGS = {"failed": "raised", "timeout": "stopped", "died": "died", "interrupted": "stopped"}
_MOST_FINDINGS = 6
_MOST_CODES = 3
_NOISE_BYTES = 1_000_000


def render_notebook(record: Mapping[str, Any]) -> str:
    """Everything: the heading, the table, what stands out, a reason for each cell that is not simply kept, totals, what next."""
    details = [block for cell in record["cells"] if (block := _details(cell))]
    parts = [
        heading(record),
        columns(table_rows(record), header=table_header(record), right=right_columns(record)) if record["cells"] else "",
        "\n".join(wrap(sentence, indent="") for sentence in record["highlights"]),
        *details,
        _tail(record),
    ]
    return "\n\n".join(part for part in parts if part)


def heading(record: Mapping[str, Any]) -> str:
    """``leaves.ipynb: 12 cells of code, 5 of text; 9 choke points``."""
    totals = record["totals"]
    cells = f"{format_count(totals['cells'], 'cell')} of code, {totals['text_cells']} of text"
    ran = f"; run in kernel {visible(record['kernel'])}" if record["ran"] else "; not run"
    return f"{visible(record['notebook'])}: {cells}; {format_count(totals['findings'], 'choke point')}{ran}"


def table_header(record: Mapping[str, Any]) -> tuple[str, ...]:
    device = ("device",) if _has_device(record) else ()
    costs = ("time", "CPU", "peak memory", "stays", *device, "output") if record["ran"] else ()
    return ("cell", "what it does", "choke points", *costs, "verdict")


def right_columns(record: Mapping[str, Any]) -> tuple[int, ...]:
    """The columns of numbers."""
    return (0, *range(3, len(table_header(record)) - 1))


def table_rows(record: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return [_row(cell, record) for cell in record["cells"]]


def _row(cell: Mapping[str, Any], record: Mapping[str, Any]) -> tuple[str, ...]:
    costs = cost_words(cell["run"], device=_has_device(record)) if record["ran"] else ()
    return (str(cell["cell"]), shorten(cell["does"], 48), codes_words(cell["findings"]), *costs, cell["verdict"])


def _has_device(record: Mapping[str, Any]) -> bool:
    return record["totals"].get("device_peak_bytes") is not None


def codes_words(findings: Sequence[Mapping[str, Any]]) -> str:
    """``host-sync :12 :14, eval-batch :3``: each code once, with its lines."""
    lines: dict[str, list[str]] = {}
    for finding in findings:
        lines.setdefault(visible(finding["code"]), []).append("" if finding["line"] is None else f":{finding['line']}")
    words = [" ".join([code, *dict.fromkeys(filter(None, places))]) for code, places in lines.items()]
    left = len(words) - _MOST_CODES
    return ", ".join(words[:_MOST_CODES]) + (f" and {left} more" if left > 0 else "")


def cost_words(run: Mapping[str, Any] | None, *, device: bool) -> tuple[str, ...]:
    """Time, CPU, peak, growth, the device's peak, output; a dash where nothing was measured."""
    if run is None or run["status"] in ("not run", "skipped"):
        state = "-" if run is None else run["status"]
        return (state, *("-" for _ in range(5 if device else 4)))
    ending = _ENDINGS.get(run["status"], "")
    time = " ".join(word for word in (ending, seconds_words(run["wall_s"])) if word)
    own = (bytes_words(run["device_peak_bytes"]),) if device else ()
    return (
        time,
        seconds_words(run["cpu_s"]),
        bytes_words(run["peak_rss_bytes"]),
        _growth_words(run["growth_bytes"]),
        *own,
        bytes_words(run["output_bytes"]),
    )


def _growth_words(growth: int | None) -> str:
    """``+1.2 GB``; what an interpreter gains and loses by itself is nothing."""
    if growth is None:
        return "-"
    return "0" if abs(growth) < _NOISE_BYTES else f"{'+' if growth > 0 else '-'}{format_bytes(abs(growth))}"


def seconds_words(seconds: float | None) -> str:
    return "-" if seconds is None else format_seconds(seconds)


def bytes_words(size: float | None) -> str:
    return "-" if size is None else format_bytes(size)


def _details(cell: Mapping[str, Any]) -> str:
    """Why, what to type instead, and each choke point with its fix; nothing for a cell that is kept and did well."""
    run = cell["run"] or {}
    if cell["verdict"] == "keep" and not cell["findings"] and not run.get("error") and not cell["problem"]:
        return ""
    verdict = ": ".join(word for word in (cell["verdict"], reason_words(cell)) if word)
    lines = [f"cell {cell['cell']:<3} {wrap(verdict, indent=_INDENT).lstrip()}"]
    lines += [f"{_INDENT}{word:<6}{visible(text)}" for word, text in cell_facts(cell)]
    lines += [line for finding in cell["findings"][:_MOST_FINDINGS] for line in _finding_lines(finding)]
    left = len(cell["findings"]) - _MOST_FINDINGS
    return "\n".join([*lines, *([f"{_INDENT}and {format_count(left, 'more choke point')}"] if left > 0 else [])])


def reason_words(cell: Mapping[str, Any]) -> str:
    """Why; nothing where that is a choke point which is told below anyway."""
    return "" if any(finding["message"] in cell["reason"] for finding in cell["findings"]) else str(cell["reason"])


def cell_facts(cell: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is to be said of a cell beside its verdict: how it failed, what training it did, the command."""
    run = cell["run"] or {}
    if run.get("error"):
        where = f"line {run['line']}: " if run.get("line") else ""
        yield "error", f"{where}{run['error']}"
    if run.get("steps"):
        waited = run["wait_s"] or 0.0
        share = f", {waited / run['wall_s']:.0%} of the time waiting for data" if run["wall_s"] else ""
        yield (
            "steps",
            f"{format_count(run['steps'], 'optimizer step')}, {format_count(run['batches'], 'batch', 'batches')}{share}",
        )
    if (run.get("children_peak_bytes") or 0) > 0:
        yield "also", f"{format_bytes(run['children_peak_bytes'])} in processes that it started, at their peak"
    if cell["command"]:
        yield "run", cell["command"]


def _finding_lines(finding: Mapping[str, Any]) -> Iterator[str]:
    place = f"line {finding['line']}" if finding["line"] is not None else ""
    yield wrap(f"{place}  {finding['code']}: {finding['message']}".strip(), indent=_INDENT)
    if finding["fix"]:
        yield wrap(f"fix: {finding['fix']}", indent=_INDENT + "  ")
    if finding["expected_gain"] not in ("", "unmeasured"):
        yield wrap(f"gain: {finding['expected_gain']}", indent=_INDENT + "  ")


def verdict_counts(record: Mapping[str, Any]) -> str:
    """``2 to segment, 1 to eliminate, 3 to optimise, 6 to keep``."""
    return ", ".join(f"{number} to {word}" for word, number in record["totals"]["verdicts"].items() if number)


def total_words(record: Mapping[str, Any]) -> str:
    """``8.2 s, 6.0 s of CPU, peak 1.4 GB, 12 kB of output``; empty if nothing ran."""
    totals = record["totals"]
    if not record["ran"]:
        return ""
    parts = [
        seconds_words(totals["wall_s"]),
        f"{seconds_words(totals['cpu_s'])} of CPU",
        f"peak {bytes_words(totals['peak_rss_bytes'])}",
        f"{bytes_words(totals['device_peak_bytes'])} on the device" if _has_device(record) else "",
        f"{bytes_words(totals['output_bytes'])} of output",
    ]
    return ", ".join(part for part in parts if part)


def notes(record: Mapping[str, Any]) -> list[str]:
    """What a reader must know to trust the table."""
    numbering = "cells are numbered as in the file, those of text counted" if record["totals"]["text_cells"] else ""
    ended = f"{record['ended']}: the cells after it were not run" if record["ended"] else ""
    return [note for note in (numbering, ended, *record["notes"]) if note]


def _tail(record: Mapping[str, Any]) -> str:
    rows = [
        *(("note", note) for note in notes(record)),
        ("verdict", verdict_counts(record)),
        ("total", total_words(record)),
        ("saved", record["file"] or ""),
        ("look", record["html"] or ""),
        ("next", record["next_command"]),
    ]
    return "\n".join(f"{word:<9}{visible(text)}" for word, text in rows if text)


def render_choke(figures: Mapping[str, Any], findings: Sequence[Mapping[str, Any]]) -> str:
    """What one cell cost and where it chokes, for the magic `%%choke`."""
    rise = (figures["peak_rss_bytes"] or 0) - (figures["rss_before_bytes"] or 0)
    costs = [
        f"{format_seconds(figures['wall_s'])}, {format_seconds(figures['cpu_s'])} of CPU",
        f"peak {bytes_words(figures['peak_rss_bytes'])} ({format_bytes(max(0, rise))} above the start)",
        f"{bytes_words(figures['device_peak_bytes'])} on the device" if figures["device_peak_bytes"] is not None else "",
    ]
    cell = {"run": {**figures, "error": ""}, "command": ""}
    lines = [f"choke    {', '.join(part for part in costs if part)}"]
    lines += [f"{word:<9}{text}" for word, text in cell_facts(cell)]
    lines += [line for finding in findings for line in _finding_lines(finding)]
    if figures["steps"]:
        lines.append("look     unchoke profile -- python train.py, with this cell as a script: where each step's time goes")
    return "\n".join([*lines, *([] if findings else ["found    no choke point in this cell"])])
