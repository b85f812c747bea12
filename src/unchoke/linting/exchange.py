"""What lint found, for other programs: SARIF 2.1.0 for code scanning and editors, annotations for GitHub Actions. Prints nothing.

In SARIF every rule that ran is described with its page. In a notebook lines are counted in the cell, which a logical location
names; fixes are given for scripts alone, where a region is a region of the file. GitHub shows a line for each finding beside the
changed lines; a cell's line is not a line of the notebook's file: such a finding is put at the file's first line, and its message
begins with the cell and the line.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from unchoke import __version__
from unchoke.code.source import CodePlace
from unchoke.linting.lint_engine import FileProblem, LintFinding, LintResult
from unchoke.linting.lint_text import source_line
from unchoke.linting.rule import SEVERITIES, Edit
from unchoke.linting.rules import LoadedRule
from unchoke.reports.json import to_jsonable

SCHEMA_URI = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_ANNOTATIONS = _LEVELS | {"info": "notice"}


def render_sarif(result: LintResult, rules: Sequence[LoadedRule]) -> str:
    """The log as text, in ASCII."""
    return json.dumps(to_jsonable(sarif_log(result, rules)), indent=2, ensure_ascii=True, allow_nan=False)


def sarif_log(result: LintResult, rules: Sequence[LoadedRule]) -> dict[str, Any]:
    """One run with its rules, its results, and a notification for everything that could not be read."""
    place_of = {loaded.rule.code: place for place, loaded in enumerate(rules)}
    driver = {"name": "unchoke", "semanticVersion": __version__, "rules": [_rule(loaded) for loaded in rules]}
    seen: Counter[str] = Counter()
    notices = [_notification(problem) for problem in result.problems]
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True, **({"toolExecutionNotifications": notices} if notices else {})}],
        "results": [_result(item, place_of, seen) for item in result.found],
    }
    return {"$schema": SCHEMA_URI, "version": "2.1.0", "runs": [run]}


def _rule(loaded: LoadedRule) -> dict[str, Any]:
    rule = loaded.rule
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.code.split("-")),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": loaded.page.partition("\n")[0] or rule.title},
        "help": {"text": loaded.page or rule.title, "markdown": loaded.page or rule.title},
        "defaultConfiguration": {"level": _LEVELS[SEVERITIES[rule.kind]]},
        "properties": {"tags": list(dict.fromkeys(["performance", rule.group, rule.stage]))},
    }


def _result(item: LintFinding, place_of: dict[str, int], seen: Counter[str]) -> dict[str, Any]:
    finding = item.finding
    fix = f"{finding.fix[:1].upper()}{finding.fix[1:]}"
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{finding.message.rstrip('.')}. {fix}" if fix else finding.message},
        "locations": [_location(item)],
        "partialFingerprints": {"chokePoint/v1": _fingerprint(item, seen)},
        "properties": {
            "kind": item.kind,
            "stage": finding.stage,
            "expectedGain": finding.expected_gain,
            "fix": finding.fix,
            "command": finding.command,
            "evidence": finding.evidence,
        },
    }
    if finding.code in place_of:
        result["ruleIndex"] = place_of[finding.code]
    if item.hit.all_edits and not item.source.is_notebook:
        replacements = [_replacement(edit) for edit in item.hit.all_edits]
        change = {"artifactLocation": {"uri": _uri(finding.path or "")}, "replacements": replacements}
        result["fixes"] = [{"description": {"text": finding.fix or item.rule.title}, "artifactChanges": [change]}]
    return result


def _location(item: LintFinding) -> dict[str, Any]:
    path, place = item.finding.path or "", item.place
    region = _region(place)
    line = source_line(item.source, place)
    if line is not None and place.end_line in (0, place.line):
        region["snippet"] = {"text": line}
    found: dict[str, Any] = {"physicalLocation": {"artifactLocation": {"uri": _uri(path)}, "region": region}}
    return found | _in_cell(path, place.cell)


def _in_cell(path: str, cell: int | None) -> dict[str, Any]:
    """The cell a line is counted in; nothing for a script."""
    if cell is None:
        return {}
    name = f"cell {cell}"
    return {"logicalLocations": [{"name": name, "fullyQualifiedName": f"{PurePath(path).as_posix()}:{name}", "kind": "cell"}]}


def _region(place: CodePlace) -> dict[str, Any]:
    """Lines and columns from 1; the end column is the one after the last character."""
    region: dict[str, Any] = {"startLine": place.line, "startColumn": place.column + 1}
    end_line = place.end_line or place.line
    if (end_line, place.end_column) > (place.line, place.column):
        region |= {"endLine": end_line, "endColumn": place.end_column + 1}
    return region


def _replacement(edit: Edit) -> dict[str, Any]:
    """An insertion deletes a region of no width: it begins where it ends."""
    end = {"endLine": edit.place.end_line or edit.place.line, "endColumn": edit.place.end_column + 1}
    return {"deletedRegion": _region(edit.place) | end, "insertedContent": {"text": edit.replacement}}


def _fingerprint(item: LintFinding, seen: Counter[str]) -> str:
    """The same finding in the next commit: by rule, file and the line's text, not by its number."""
    line = (source_line(item.source, item.place) or "").strip()
    known_by = "\0".join([item.finding.code, PurePath(item.finding.path or "").as_posix(), line])
    seen[known_by] += 1
    return sha256(f"{known_by}\0{seen[known_by]}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _notification(problem: FileProblem) -> dict[str, Any]:
    where: dict[str, Any] = {"artifactLocation": {"uri": _uri(problem.path)}}
    if problem.line is not None and problem.line > 0:
        where["region"] = {"startLine": problem.line}
    level = "error" if problem.internal else "warning"
    location = {"physicalLocation": where} | _in_cell(problem.path, problem.cell)
    return {"level": level, "message": {"text": problem.message}, "locations": [location]}


def _uri(path: str) -> str:
    """Relative paths stay relative to where lint was run; in either form everything but slashes is escaped."""
    pure = PurePath(path)
    return pure.as_uri() if pure.is_absolute() else quote(pure.as_posix(), safe="/", errors="surrogateescape")


def render_github(result: LintResult) -> str:
    """All findings, then what could not be read as notices."""
    return "\n".join([*map(_annotation, result.found), *map(_unread_notice, result.problems)])


def _annotation(item: LintFinding) -> str:
    finding, place = item.finding, item.place
    where: dict[str, object] = {"file": PurePath(finding.path or "").as_posix(), "line": 1}
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
    return _command(_ANNOTATIONS[finding.severity], {**where, "title": f"{finding.code}: {item.rule.title}"}, "\n".join(parts))


def _unread_notice(problem: FileProblem) -> str:
    cell = "" if problem.cell is None else f"cell {problem.cell}"
    line = "" if problem.line is None else f"line {problem.line}"
    spoken = ", ".join(part for part in (cell, line) if part)
    where = {"file": PurePath(problem.path).as_posix(), "line": problem.line if problem.cell is None and problem.line else 1}
    title = "a bug in unchoke" if problem.internal else "not read"
    return _command("notice", {**where, "title": title}, f"{spoken}: {problem.message}" if spoken else problem.message)


def _command(level: str, properties: Mapping[str, object], message: str) -> str:
    """``::warning file=a.py,line=3,title=t::message`` with everything escaped that would end a part of it."""
    escaped = {name: _data(value).replace(":", "%3A").replace(",", "%2C") for name, value in properties.items()}
    return f"::{level} {','.join(f'{name}={value}' for name, value in escaped.items())}::{_data(message)}"


def _data(text: object) -> str:
    return str(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
