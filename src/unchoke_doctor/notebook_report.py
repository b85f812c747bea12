"""The table of a notebook as text, Markdown and HTML. In comes the dictionary of a `NotebookReport`; what the notebook holds
is escaped.
"""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from unchoke_doctor.units import format_bytes, format_count, format_seconds

_WIDTH = 110
_MOST_FINDINGS = 6
_HEADER = ("cell", "what it does", "time", "memory", "findings", "action")
_ENDINGS = {"failed": "failed", "timeout": "timed out", "died": "died", "interrupted": "stopped", "not run": "not run"}
_STYLE = """body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;color-scheme:light dark}
table{border-collapse:collapse}td,th{border-bottom:1px solid #8884;padding:.3rem .6rem;text-align:left;vertical-align:top}
pre{background:#8881;padding:.6rem;overflow:auto}"""


def render_text(record: Mapping[str, Any]) -> str:
    rows = [_HEADER, *map(_row, record["cells"])]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEADER))]
    rows.insert(1, tuple("-" * width for width in widths))
    lines = ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    parts = [_heading(record), "\n".join(lines) if record["cells"] else ""]
    for title, reason, items, codes in map(_details, record["cells"]):
        if reason or items or codes:
            wrapped = [_wrapped(f"{title}: {reason}" if reason else title, 0), *(_wrapped(item, 2) for item in items)]
            parts.append("\n".join([*wrapped, *(textwrap.indent(text, "    ") for text in codes)]))
    parts.append("\n".join(f"{word:<8}{text}" for word, text in _tail(record)))
    return "\n\n".join(part for part in parts if part)


def render_markdown(record: Mapping[str, Any]) -> str:
    name, _, rest = _heading(record).partition(": ")
    lines = [f"# {_escaped(name)}", "", rest, "", f"| {' | '.join(_HEADER)} |", f"|{'---|' * len(_HEADER)}"]
    lines += [f"| {' | '.join(map(_escaped, _row(cell)))} |" for cell in record["cells"]]
    for title, reason, items, codes in map(_details, record["cells"]):
        if reason or items or codes:
            lines += ["", f"**{title}.** {_escaped(reason)}", "", *(f"- {_escaped(item)}" for item in items)]
            lines += [f"\n```\n{text}\n```" for text in codes]
    return "\n".join([*lines, "", *(f"- {word}: {_escaped(text)}" for word, text in _tail(record))])


def render_html(record: Mapping[str, Any]) -> str:
    def row(cells: tuple[str, ...], tag: str = "td") -> str:
        return f"<tr>{''.join(f'<{tag}>{html.escape(text)}</{tag}>' for text in cells)}</tr>"

    def listed(items: list[str]) -> str:
        return f"<ul>{''.join(f'<li>{html.escape(item)}</li>' for item in items)}</ul>"

    title = html.escape(record["notebook"])
    parts = [f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>']
    parts += [f"<h1>{title}</h1><p>{html.escape(_heading(record))}</p>"]
    parts += [f"<table>{row(_HEADER, 'th')}{''.join(row(_row(cell)) for cell in record['cells'])}</table>"]
    for cell in record["cells"]:
        name, reason, items, codes = _details(cell)
        if reason or items or codes:
            parts.append(f"<h2>{name}</h2><p>{html.escape(reason)}</p>{listed(items)}")
            parts += [f"<pre>{html.escape(text)}</pre>" for text in codes]
            parts.append(f"<details><summary>source</summary><pre>{html.escape(cell['source'])}</pre></details>")
    return "".join([*parts, listed([f"{word}: {text}" for word, text in _tail(record)]), "</html>"])


def _heading(record: Mapping[str, Any]) -> str:
    totals = record["totals"]
    ran = f"run with kernel {record['kernel']}" if record["ran"] else "not run"
    cells = f"{format_count(totals['cells'], 'code cell')}, {totals['text_cells']} of text"
    return f"{record['notebook']}: {cells}; {format_count(totals['findings'], 'finding')}; {ran}"


def _row(cell: Mapping[str, Any]) -> tuple[str, ...]:
    run, seconds = cell["run"] or {}, cell["seconds"]
    codes = list(dict.fromkeys(one["code"] for one in cell["findings"] if one["status"] != "refuted"))
    more = f" +{len(codes) - 2}" if len(codes) > 2 else ""
    if run.get("status") == "cut" and run.get("steps"):
        time = f"{format_seconds(run['wall_s'])} for {run['steps']} steps"
    else:
        saved = " (saved)" if cell["seconds_from"] == "outputs" else ""
        shown = format_seconds(seconds) + saved if seconds is not None else ""
        time = " ".join(filter(None, (_ENDINGS.get(run.get("status", ""), ""), shown))) or "?"
    memory = format_bytes(run["peak_rss_bytes"]) if run.get("peak_rss_bytes") else "?"
    return str(cell["cell"]), cell["does"][:44], time, memory, ", ".join(codes[:2]) + more, cell["action"]


def _details(cell: Mapping[str, Any]) -> tuple[str, str, list[str], list[str]]:
    """Title, why, what was found and what the plan makes, and its code; only the title for a cell that is kept and went well."""
    run, plan = cell["run"] or {}, cell["plan"] or {}
    title = f"cell {cell['cell']}  {cell['action']}"
    if cell["action"] == "keep" and not cell["findings"] and not run.get("error"):
        return title, "", [], []
    items = []
    if run.get("error"):
        where = f"line {run['line']}: " if run.get("line") else ""
        items.append(f"error   {where}{run['error']}")
    for one in cell["findings"][:_MOST_FINDINGS]:
        status = f" [{one['status']}]" if one["status"] else ""
        place = f"line {one['line']}: " if one["line"] else ""
        items.append(f"{place}{one['code']}{status}: {one['message']}. {one['fix']}".replace("..", "."))
    items += [f"run     {plan['command']}"] if plan.get("command") else []
    items += [f"makes   {step}" for step in plan.get("steps", ())]
    items += [f"no command: {plan['why_not']}"] if plan.get("why_not") else []
    items += ["or in your own loop:"] if plan.get("code") else []
    told = any(cell["reason"] == one["message"] for one in cell["findings"])
    return title, "" if told else cell["reason"], items, [plan["code"]] if plan.get("code") else []


def _wrapped(text: str, indent: int) -> str:
    first, rest = " " * indent, " " * (indent + 8)
    if text.startswith("run  "):  # a command is copied whole
        return first + text
    return textwrap.fill(text, _WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)


def _tail(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    totals = record["totals"]
    for note in (f"{record['ended']}: the cells after it were not run" if record["ended"] else "", *record["notes"]):
        if note:
            yield "note", note
    if totals["cells"]:
        yield "actions", ", ".join(f"{number} to {action}" for action, number in totals["actions"].items() if number)
    if record["ran"]:
        memory = f", peak {format_bytes(totals['peak_rss_bytes'])}" if totals["peak_rss_bytes"] else ""
        device = f", {format_bytes(totals['device_peak_bytes'])} on the GPU" if totals["device_peak_bytes"] else ""
        yield "total", f"{format_seconds(totals['wall_s'])}, {format_seconds(totals['cpu_s'])} of CPU{memory}{device}"
    for word, key in (("saved", "file"), ("look", "html"), ("next", "next_command")):
        if record[key]:
            yield word, record[key]


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>#|~])", r"\\\1", text.replace("\n", " "))
