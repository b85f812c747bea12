"""Annotations for GitHub: one line each, whatever the message holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.linted import BAD, CODE, FIXABLE, folder_of_three

from unchoke.code.source import parse_source
from unchoke.core.findings import Finding
from unchoke.linting.exchange import render_github
from unchoke.linting.lint_engine import LintFinding, LintResult, lint_source
from unchoke.linting.lint_session import run_lint

ANNOTATION = re.compile(r"::(error|warning|notice) ((?:\w+=[^,:\r\n]*)(?:,\w+=[^,:\r\n]*)*)::([^\r\n]+)")


def unescaped(text: str) -> str:
    for escape, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(escape, character)
    return text


def parsed(line: str) -> tuple[str, dict[str, str], str]:
    match = ANNOTATION.fullmatch(line)
    assert match is not None, line
    return match[1], {key: unescaped(value) for key, _, value in (part.partition("=") for part in match[2].split(","))}, match[3]


def test_annotations_of_script_notebook_and_unread_file(tmp_path: Path) -> None:
    result = run_lint([str(folder_of_three(tmp_path))], select=[CODE]).result
    book, script, broken = (parsed(line) for line in render_github(result).splitlines())
    title = f"{CODE}: table parsed again for each sample"
    where = {"line": "10", "endLine": "10", "col": "12", "endColumn": "40"}
    assert script[:2] == ("warning", {"file": (tmp_path / "train.py").as_posix(), **where, "title": title})
    assert book[:2] == ("warning", {"file": (tmp_path / "leaves.ipynb").as_posix(), "line": "1", "title": title})
    assert book[2].startswith("cell 3, line 10: `pandas.read_csv` parses")
    assert (broken[0], broken[1]["title"], broken[1]["line"]) == ("notice", "not read", "1")


@pytest.mark.parametrize("awkward", ["50 % of a,b: c\nnext", "a\r\nb", "::error::x", "%0A"])
def test_nothing_in_a_message_or_a_name_ends_a_part(awkward: str) -> None:
    (item,), _ = lint_source(parse_source("a.py", b"slow()\n"), [FIXABLE])
    finding = Finding(code="x", message=awkward, path=f"dir,{awkward}.py", line=1, severity="info")
    line = render_github(LintResult([LintFinding(finding, item.hit, item.place, item.rule, item.source)]))
    level, properties, message = parsed(line)
    assert level == "notice"
    assert unescaped(message) == awkward
    assert properties["file"] == f"dir,{awkward}.py"


def test_columns_are_given_for_one_line_alone() -> None:
    text = BAD.replace('"leaves.csv"', '\n        "leaves.csv"\n    ')
    from unchoke.linting.rules import rule_named

    found, problems = lint_source(parse_source("a.py", text.encode()), [rule_named(CODE)])
    _, properties, _ = parsed(render_github(LintResult(found, problems)))
    assert (properties["line"], properties["endLine"]) == ("10", "12")
    assert "col" not in properties


def test_nothing_found_is_nothing_said() -> None:
    assert render_github(LintResult()) == ""
