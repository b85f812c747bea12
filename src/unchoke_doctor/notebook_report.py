"""The table of a notebook as text, Markdown and HTML. In comes the dictionary of a `NotebookReport`; what the notebook holds
is escaped.
"""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from unchoke_doctor.units import format_bytes, format_count, format_seconds

_WIDTH = 110
_MOST_FINDINGS = 6
_ENDINGS = {
    "failed": "failed",
    "timeout": "timed out",
    "died": "died",
    "interrupted": "stopped",
    "not run": "not run",
    "skipped": "skipped",
}
_STYLE = """body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;color-scheme:light dark}
table{border-collapse:collapse}td,th{border-bottom:1px solid #8884;padding:.3rem .6rem;text-align:left;vertical-align:top}
td.num{text-align:right;white-space:nowrap}pre{background:#8881;padding:.6rem;overflow:auto}"""


def render_text(record: Mapping[str, Any]) -> str:
    header, rows = _table(record)
    widths = [max(len(row[at]) for row in (header, *rows)) for at in range(len(header))]
    lines = ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in (header, *rows)]
    parts = [_heading(record), "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]]) if rows else ""]
    parts += ["\n".join(_details(cell)) for cell in record["cells"]]
    parts.append("\n".join(f"{word:<8}{text}" for word, text in _tail(record)))
    return "\n\n".join(part for part in parts if part)


def render_markdown(record: Mapping[str, Any]) -> str:
    header, rows = _table(record)
    name, _, rest = _heading(record).partition(": ")
    lines = [f"# {_escaped(name)}", "", rest, "", f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    lines += [f"| {' | '.join(map(_escaped, row))} |" for row in rows]
    for cell in record["cells"]:
        if cell["action"] != "keep":
            lines += ["", f"**Cell {cell['cell']}: {cell['action']}.** {_escaped(cell['reason'])}", ""]
            lines += [f"- {_escaped(_finding(one))}" for one in _shown(cell)]
            lines += [f"- {_escaped(step)}" for step in (cell["plan"] or {}).get("steps", ())]
            lines += [f"\n```\n{text}\n```" for text in _codes(cell)]
    lines += ["", *(f"- {word}: {_escaped(text)}" for word, text in _tail(record))]
    return "\n".join(lines)


def render_html(record: Mapping[str, Any]) -> str:
    header, rows = _table(record)
    head = "".join(f"<th>{word}</th>" for word in header)
    numbers = {header.index(name) for name in ("time", "memory")}
    body = "".join(f"<tr>{''.join(_html_cell(text, at in numbers) for at, text in enumerate(row))}</tr>" for row in rows)
    parts = [
        f"<h1>{html.escape(record['notebook'])}</h1><p>{html.escape(_heading(record))}</p><table><tr>{head}</tr>{body}</table>"
    ]
    for cell in record["cells"]:
        if cell["action"] != "keep":
            items = "".join(
                f"<li>{html.escape(text)}</li>"
                for text in (*map(_finding, _shown(cell)), *((cell["plan"] or {}).get("steps", ())))
            )
            codes = "".join(f"<pre>{html.escape(text)}</pre>" for text in _codes(cell))
            parts.append(
                f"<h2>Cell {cell['cell']}: {cell['action']}</h2><p>{html.escape(cell['reason'])}</p><ul>{items}</ul>{codes}"
            )
            parts.append(f"<details><summary>source</summary><pre>{html.escape(cell['source'])}</pre></details>")
    parts.append("<ul>" + "".join(f"<li>{word}: {html.escape(text)}</li>" for word, text in _tail(record)) + "</ul>")
    title = html.escape(record["notebook"])
    head = f'<meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en">{head}{"".join(parts)}</html>'


def _html_cell(text: str, is_number: bool) -> str:
    return f"<td{' class=num' if is_number else ''}>{html.escape(text)}</td>"


def _heading(record: Mapping[str, Any]) -> str:
    totals = record["totals"]
    ran = f"run with kernel {record['kernel']}" if record["ran"] else "not run"
    cells = f"{format_count(totals['cells'], 'code cell')}, {totals['text_cells']} of text"
    return f"{record['notebook']}: {cells}; {format_count(totals['findings'], 'finding')}; {ran}"


def _table(record: Mapping[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    header = ("cell", "what it does", "time", "memory", "findings", "action")
    return header, [_row(cell) for cell in record["cells"]]


def _row(cell: Mapping[str, Any]) -> tuple[str, ...]:
    codes = list(dict.fromkeys(one["code"] for one in cell["findings"] if one["status"] != "refuted"))
    more = f" +{len(codes) - 2}" if len(codes) > 2 else ""
    return (str(cell["cell"]), cell["does"][:44], _time(cell), _memory(cell["run"]), ", ".join(codes[:2]) + more, cell["action"])


def _time(cell: Mapping[str, Any]) -> str:
    run = cell["run"] or {}
    if run.get("status") == "cut" and run.get("steps"):
        return f"{format_seconds(run['wall_s'])} for {run['steps']} steps"
    ending = _ENDINGS.get(run.get("status", ""), "")
    shown = format_seconds(cell["seconds"]) if cell["seconds"] is not None else ""
    saved = " (saved)" if cell["seconds_from"] == "outputs" else ""
    return " ".join(filter(None, (ending, shown + saved))) or "?"


def _memory(run: Mapping[str, Any] | None) -> str:
    peak = (run or {}).get("peak_rss_bytes")
    return format_bytes(peak) if peak else "?"


def _shown(cell: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = cell["findings"][:_MOST_FINDINGS]
    return found


def _finding(one: Mapping[str, Any]) -> str:
    status = f" [{one['status']}]" if one["status"] else ""
    place = f"line {one['line']}: " if one["line"] else ""
    return f"{place}{one['code']}{status}: {one['message']}. {one['fix']}".replace("..", ".")


def _codes(cell: Mapping[str, Any]) -> list[str]:
    """The command and the lines of a plan."""
    plan = cell["plan"] or {}
    return [text for text in (plan.get("command"), plan.get("code")) if text]


def _details(cell: Mapping[str, Any]) -> Iterator[str]:
    """Why, the findings, and the plan; nothing for a cell that is kept and went well."""
    run, plan = cell["run"] or {}, cell["plan"] or {}
    if cell["action"] == "keep" and not cell["findings"] and not run.get("error"):
        return
    told = any(cell["reason"] == one["message"] for one in cell["findings"])
    yield from _wrapped(
        f"cell {cell['cell']}  {cell['action']}" + ("" if told or not cell["reason"] else f": {cell['reason']}"), 0
    )
    if run.get("error"):
        where = f"line {run['line']}: " if run.get("line") else ""
        yield from _wrapped(f"error   {where}{run['error']}", 2)
    for one in _shown(cell):
        yield from _wrapped(_finding(one), 2)
    if plan.get("command"):
        yield f"  run     {plan['command']}"
    for step in plan.get("steps", ()):
        yield from _wrapped(f"makes   {step}", 2)
    if plan.get("why_not"):
        yield from _wrapped(f"no command: {plan['why_not']}", 2)
    if plan.get("code"):
        yield "  or in your own loop:"
        yield textwrap.indent(plan["code"], "    ")


def _wrapped(text: str, indent: int) -> list[str]:
    return textwrap.wrap(
        " ".join(text.split(" ")),
        _WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 8),
        break_on_hyphens=False,
    )


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
