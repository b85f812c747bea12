"""What lint found, as annotations that GitHub Actions shows beside the changed lines. Returns text, prints nothing.

One line a finding. A cell's line is not a line of the notebook's file: a finding in a notebook is put at the file's first line,
and its message begins with the cell and the line.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from unchoke.linting.lint_engine import FileProblem, LintFinding, LintResult

_LEVELS = {"error": "error", "warning": "warning", "info": "notice"}


def render_github(result: LintResult) -> str:
    """All findings, then what could not be read as notices."""
    return "\n".join([*map(_annotation, result.found), *map(_notice, result.problems)])


def _annotation(item: LintFinding) -> str:
    finding, place = item.finding, item.place
    where: dict[str, object] = {"file": _file(finding.path or ""), "line": 1}
    spoken = f"cell {place.cell}, line {place.line}: "
    if place.cell is None:
        spoken = ""
        where |= {"line": place.line, "endLine": place.end_line or place.line}
        if place.end_line in (0, place.line):  # columns of several lines are refused there
            where |= {"col": place.column + 1, "endColumn": max(place.end_column, place.column + 1)}
    parts = [f"{spoken}{finding.message}"]
    parts += [f"gain: {finding.expected_gain}"] if finding.expected_gain else []
    parts += [f"fix: {finding.fix}"] if finding.fix else []
    parts += [f"command: {finding.command}"] if finding.command else []
    return _command(_LEVELS[finding.severity], {**where, "title": f"{finding.code}: {item.rule.title}"}, "\n".join(parts))


def _notice(problem: FileProblem) -> str:
    cell = "" if problem.cell is None else f"cell {problem.cell}"
    line = "" if problem.line is None else f"line {problem.line}"
    spoken = ", ".join(part for part in (cell, line) if part)
    where = {"file": _file(problem.path), "line": problem.line if problem.cell is None and problem.line else 1}
    title = "a bug in unchoke" if problem.internal else "not read"
    return _command("notice", {**where, "title": title}, f"{spoken}: {problem.message}" if spoken else problem.message)


def _file(path: str) -> str:
    return PurePath(path).as_posix()


def _command(level: str, properties: Mapping[str, object], message: str) -> str:
    """``::warning file=a.py,line=3,title=t::message`` with everything escaped that would end a part of it."""
    escaped = {name: _data(value).replace(":", "%3A").replace(",", "%2C") for name, value in properties.items()}
    return f"::{level} {','.join(f'{name}={value}' for name, value in escaped.items())}::{_data(message)}"


def _data(text: object) -> str:
    return str(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
