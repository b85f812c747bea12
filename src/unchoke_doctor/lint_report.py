"""A lint result as text for people, as JSON, as SARIF 2.1.0 for code scanning, and as annotations for GitHub Actions.

Lines of a notebook are counted in their cell. SARIF names the cell as a logical location; GitHub knows lines of the file only, so
there a finding of a notebook stands at line 1 and its message begins with cell and line.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from hashlib import sha256
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from unchoke_doctor.causes import catalogue
from unchoke_doctor.code.source import CodePlace
from unchoke_doctor.finding import Finding
from unchoke_doctor.lint import Found, LintResult, Problem
from unchoke_doctor.units import format_count, format_seconds

_WIDEST = 110  # characters of a source line that are shown
_LONGEST_DIFF = 6  # lines; `--diff` shows what is longer
_TIMES = {"epoch_s": "per epoch", "training_s": "of training"}
_SARIF_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_GITHUB_LEVELS = {"error": "error", "warning": "warning", "info": "notice"}


def render(result: LintResult, form: str) -> str:
    """`form` is text, json, sarif, github, statistics or summary."""
    match form:
        case "json":
            return json.dumps({"schema": 1, "command": "lint", "ok": result.exit_code == 0, "result": result.to_dict()})
        case "sarif":
            return json.dumps(_sarif(result), indent=2)
        case "github":
            return "\n".join([*map(_annotation, result.found), *map(_notice, result.problems)])
        case "statistics":
            rows = [f"{count:>6}  {code:<22}{catalogue()[code].title}" for code, count in result.counts("code").items()]
            return "\n".join([*rows, _summary(result)])
        case "summary":
            return _summary(result)
    blocks = [file.diff for file in result.fixed]
    if not result.fixed or result.written:
        blocks += map(_block, result.found)
    blocks += ["\n".join(map(_problem, result.problems))] if result.problems else []
    return "\n\n".join([*blocks, _summary(result)])


# Text ---------------------------------------------------------------------------------------------------------------------


def _block(item: Found) -> str:
    """A finding: place, code and message; its line with a mark under it; the fix; what it rests on."""
    finding, place = item.finding, item.place
    kind = "" if finding.kind == "choke" else f" ({finding.kind})"
    lines = [f"{_where(finding.path or '', place.cell, place.line)}:{place.column + 1}  {finding.code}{kind}  {finding.message}"]
    text = item.source_line
    if text.strip():
        end = place.end_column if place.end_line in (0, place.line) and place.end_column > place.column else len(text.rstrip())
        shift = max(0, place.column - _WIDEST // 2) if len(text) > _WIDEST else 0
        width = min(max(1, end - place.column), _WIDEST)
        under = "".join("\t" if letter == "\t" else " " for letter in text[shift : place.column])
        lines += [f"{place.line:>5} | {text[shift : shift + _WIDEST].rstrip()}", f"      | {under}{'^' * width}"]
    lines.append(f"  fix: {finding.fix}{' (--fix does it)' if item.edits else ''}")
    lines += [f"       {line[:_WIDEST]}" for line in item.diff[:_LONGEST_DIFF]]
    lines += [f"  gain: {finding.expected_gain}"] if finding.expected_gain else []
    lines.append(f"  {_basis(finding)}")
    for other in finding.evidence.get("also", ()):
        lines.append(f"  also: {other['code']}: {other['message']}; {other['fix']}")
    if further := finding.evidence.get("further"):
        lines.append(f"  also at: {'; '.join(_in_words(one['cell'], one['line']) for one in further)}")
    return "\n".join(lines)


def _where(path: str, cell: int | None, line: int | None) -> str:
    return ":".join([path, *([f"cell {cell}"] if cell is not None else []), *([str(line)] if line is not None else [])])


def _in_words(cell: int | None, line: int | None) -> str:
    parts = [f"cell {cell}" if cell is not None else "", f"line {line}" if line is not None else ""]
    return ", ".join(part for part in parts if part)


def _basis(finding: Finding) -> str:
    """What a finding rests on, with its figures."""
    seen = finding.evidence
    status = f"{finding.status}: " if finding.status else ""
    if finding.status or finding.basis == "measured":  # `lint_run` says in `run` what it saw
        share = f"{seen['share']:.0%} of a step" if isinstance(seen.get("share"), float) else "by running this code"
        return f"{status or 'measured: '}{seen.get('run') or share}"
    if finding.basis != "outputs":
        return f"{status}from the code alone"
    figures = [f"{format_seconds(seen[key])} {what}" for key, what in _TIMES.items() if seen.get(key)]
    figures += [f"{seen['images']:,} images"] if seen.get("images") else []
    figures += [str(seen["device"])] if seen.get("device") else []
    return f"{status}from the saved outputs: {seen.get('why_note') or ', '.join(figures) or 'see the message'}"


def _problem(problem: Problem) -> str:
    word = "a bug in unchoke, please report it" if problem.internal else "not read"
    return f"{_where(problem.path, problem.cell, problem.line)}  {word}: {problem.message}"


def _summary(result: LintResult) -> str:
    """How much was found in how much code, and the next command."""
    found = ", ".join(format_count(count, kind) for kind, count in result.counts("kind").items()) or "nothing found"
    parts = ["nothing could be read, so nothing was looked for" if result.nothing_read else found]
    num_fixed = sum(file.num_fixed for file in result.fixed)
    parts += [f"{num_fixed} {'fixed' if result.written else 'of them can be fixed'}"] if num_fixed else []
    parts += [f"{format_count(result.num_hidden_notes, 'note')} hidden (--notes)"] if result.num_hidden_notes else []
    parts += [f"{format_count(result.num_files, 'file')} read in {format_seconds(result.seconds)}"]
    if not result.found:
        return "; ".join(parts)
    if any(item.edits for item in result.found) and not result.written:
        then = [*result.words, "--fix" if result.fixed else "--diff"]
    elif any(finding.status for finding in result.findings) or "-" in result.words:
        then = ["--explain", next(iter(result.counts("code")))]
    else:
        then = [Counter(str(finding.path) for finding in result.findings).most_common(1)[0][0], "--run"]
    return f"{'; '.join(parts)}\nnext  {shlex.join(['unchoke', 'lint', *then])}"


# SARIF --------------------------------------------------------------------------------------------------------------------


def _sarif(result: LintResult) -> dict[str, Any]:
    """One run with its rules, its results, and a notification for everything that could not be read."""
    codes = list(dict.fromkeys([*result.codes, *(finding.code for finding in result.findings)]))
    rules = [
        {
            "id": cause.code,
            "shortDescription": {"text": cause.title},
            "help": {"text": cause.page, "markdown": cause.page},
            "defaultConfiguration": {"level": "note" if cause.kind == "note" else "warning"},
            "properties": {"tags": ["performance", cause.stage]},
        }
        for cause in map(catalogue().__getitem__, codes)
    ]
    notices = [
        {
            "level": "error" if problem.internal else "warning",
            "message": {"text": problem.message},
            "locations": [_location(problem.path, problem.cell, {"startLine": problem.line or 1})],
        }
        for problem in result.problems
    ]
    seen: Counter[str] = Counter()
    run = {
        "tool": {"driver": {"name": "unchoke", "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notices}],
        "results": [_sarif_result(item, codes.index(item.code), seen) for item in result.found],
    }
    return {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}


def _sarif_result(item: Found, rule: int, seen: Counter[str]) -> dict[str, Any]:
    finding = item.finding
    path = PurePath(finding.path or "")
    # The same finding in the next commit is known by its line's text, not by its number.
    key = "\0".join([finding.code, path.as_posix(), item.source_line.strip()])
    seen[key] += 1
    told: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": _SARIF_LEVELS[finding.severity],
        "message": {"text": f"{finding.message.rstrip('.')}. {finding.fix[:1].upper()}{finding.fix[1:]}"},
        "locations": [_location(str(path), finding.cell, _region(item.place))],
        "partialFingerprints": {"chokePoint/v1": sha256(f"{key}\0{seen[key]}".encode("utf-8", "replace")).hexdigest()[:32]},
        "properties": {name: getattr(finding, name) for name in ("kind", "basis", "status", "stage", "evidence")},
    }
    if item.edits and finding.cell is None:
        pieces = [{"deletedRegion": _region(edit.place), "insertedContent": {"text": edit.text}} for edit in item.edits]
        change = {"artifactLocation": {"uri": _uri(str(path))}, "replacements": pieces}
        told["fixes"] = [{"description": {"text": finding.fix}, "artifactChanges": [change]}]
    return told


def _region(place: CodePlace) -> dict[str, Any]:
    """Lines and columns from 1; the end column is the one after the last character."""
    begin = {"startLine": place.line, "startColumn": place.column + 1}
    return begin | {"endLine": place.end_line, "endColumn": place.end_column + 1} if place.end_line else begin


def _location(path: str, cell: int | None, region: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"physicalLocation": {"artifactLocation": {"uri": _uri(path)}, "region": region}}
    name = f"cell {cell}"
    return found if cell is None else {**found, "logicalLocations": [{"name": name, "fullyQualifiedName": f"{path}:{name}"}]}


def _uri(path: str) -> str:
    """Relative paths stay relative to the folder in which lint was run."""
    pure = PurePath(path)
    return pure.as_uri() if pure.is_absolute() else quote(pure.as_posix(), safe="/", errors="surrogateescape")


# GitHub -------------------------------------------------------------------------------------------------------------------


def _annotation(item: Found) -> str:
    finding, place = item.finding, item.place
    where: dict[str, object] = {"file": PurePath(finding.path or "").as_posix(), "line": place.line if place.cell is None else 1}
    if place.cell is None and place.end_line in (0, place.line):  # GitHub refuses columns of several lines
        where |= {"col": place.column + 1, "endColumn": max(place.end_column, place.column + 1)}
    spoken = "" if place.cell is None else f"{_in_words(place.cell, place.line)}: "
    text = f"{spoken}{finding.message}\nfix: {finding.fix}\n{_basis(finding)}"
    return _workflow_command(_GITHUB_LEVELS[finding.severity], {**where, "title": finding.code}, text)


def _notice(problem: Problem) -> str:
    where = {"file": PurePath(problem.path).as_posix(), "line": problem.line if problem.cell is None and problem.line else 1}
    spoken = _in_words(problem.cell, problem.line)
    title = "a bug in unchoke" if problem.internal else "not read"
    return _workflow_command("notice", {**where, "title": title}, f"{spoken}: {problem.message}" if spoken else problem.message)


def _workflow_command(level: str, properties: dict[str, object], message: str) -> str:
    """``::warning file=a.py,line=3::message``, with everything escaped that would end a part of it."""

    def escape(text: object) -> str:
        return str(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    escaped = [f"{name}={escape(value).replace(':', '%3A').replace(',', '%2C')}" for name, value in properties.items()]
    return f"::{level} {','.join(escaped)}::{escape(message)}"
