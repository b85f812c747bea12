"""A notebook's cells as Markdown: the table of `notebook_text`, for an issue, a pull request or a page of documentation.

In comes the dictionary of an analysis, out comes Markdown of the common kind (tables as on GitHub). Text from the notebook is
escaped, so that it shows as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from unchoke.notebooks.notebook_text import (
    cell_facts,
    heading,
    notes,
    reason_words,
    right_columns,
    table_header,
    table_rows,
    total_words,
    verdict_counts,
)
from unchoke.reports.layout import visible

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")


def render_notebook_markdown(record: Mapping[str, Any]) -> str:
    """Heading, table, what stands out, reasons, totals and what to run next."""
    name, _, rest = heading(record).partition(": ")
    details = [line for cell in record["cells"] if cell["verdict"] != "keep" or cell["findings"] for line in _details(cell)]
    parts = [
        f"# {escape(name)}",
        escape(rest),
        _table(record) if record["cells"] else "",
        "\n".join(f"- {escape(sentence)}" for sentence in record["highlights"]),
        *(["## Cell by cell", "\n".join(details)] if details else []),
        _tail(record),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(text: object) -> str:
    """`text` in one line that Markdown shows as it is."""
    return _SPECIAL.sub(r"\\\1", " ".join(visible(text, keep="\n\t").split()))


def code(text: object) -> str:
    """`text` as inline code, whatever backticks it holds."""
    shown = " ".join(visible(text, keep="\n\t").split())
    fence = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    return f"{fence} {shown} {fence}" if "`" in shown else f"{fence}{shown}{fence}"


def _table(record: Mapping[str, Any]) -> str:
    right = right_columns(record)
    header = table_header(record)
    rule = ["---:" if place in right else "---" for place in range(len(header))]
    rows = [[*(escape(word) for word in row[:-1]), _strong(row[-1])] for row in table_rows(record)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, rule, *rows])


def _strong(verdict: str) -> str:
    return verdict if verdict == "keep" else f"**{verdict}**"


def _details(cell: Mapping[str, Any]) -> list[str]:
    reason = escape(reason_words(cell))
    lines = [f"- **Cell {cell['cell']}, {cell['verdict']}**" + (f": {reason}" if reason else "")]
    lines += [f"  - {word}: {code(text) if word == 'run' else escape(text)}" for word, text in cell_facts(cell)]
    for finding in cell["findings"]:
        place = f"line {finding['line']}: " if finding["line"] is not None else ""
        fix = f" Instead: {escape(finding['fix'])}" if finding["fix"] else ""
        lines.append(f"  - {place}{code(finding['code'])}: {escape(finding['message'].rstrip('.'))}.{fix}")
    return lines


def _tail(record: Mapping[str, Any]) -> str:
    words = [
        ("Verdicts", escape(verdict_counts(record))),
        ("Total", escape(total_words(record))),
        *(("Note", escape(note)) for note in notes(record)),
        ("Next", code(record["next_command"]) if record["next_command"] else ""),
    ]
    return "\n".join(f"- {word}: {text}" for word, text in words if text)
