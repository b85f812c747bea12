"""Findings as text: the place, the line, a caret under what is meant, what to do, and the sum."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.linted import BAD, BROKEN, CODE, FIXABLE, GOOD, folder_of_three, notebook

from unchoke.code.source import parse_source
from unchoke.linting.fixing import repair
from unchoke.linting.lint_engine import LintResult, lint_source
from unchoke.linting.lint_session import LintSession, run_lint
from unchoke.linting.lint_text import render_finding, render_lint, render_rule, render_rules, render_statistics, render_sum
from unchoke.linting.rules import all_rules, rule_named


def linted(path: Path, text: str) -> LintSession:
    path.write_text(text)
    return run_lint([str(path)], select=[CODE])


def shown(line: str, *, name: str = "train.py") -> list[str]:
    """The finding of the rule with a fix in this line, as text."""
    source = parse_source(name, line.encode())
    (item,), _ = lint_source(source, [FIXABLE])
    return render_finding(item).splitlines()


def test_finding_has_place_line_caret_and_fix(tmp_path: Path) -> None:
    result = linted(tmp_path / "train.py", BAD)
    lines = render_finding(result.result.found[0]).splitlines()
    assert lines[0] == f"{tmp_path / 'train.py'}:10:12: {CODE}: table parsed again for each sample"
    assert lines[1] == '   10 |     return pandas.read_csv("leaves.csv").loc[name]'
    assert lines[2] == "      |            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^"
    assert "pandas.read_csv" in lines[3]
    assert [line.split()[0] for line in lines[4:] if line[2] != " "] == ["gain", "fix"]
    assert "measured" in lines[4] + lines[5]


def test_a_notebook_counts_lines_in_its_cell(tmp_path: Path) -> None:
    result = linted(tmp_path / "leaves.ipynb", notebook("import os\n", BAD))
    assert render_lint(result).startswith(f"{tmp_path / 'leaves.ipynb'}:cell 3:10:12: {CODE}: ")


@pytest.mark.parametrize("before", ["", "\tif 1: ", 'x = "日本"; ', 'x = "é"; ', 'x = "\x7f"; ', f'x = "{"long " * 60}"; '])
def test_caret_stands_under_the_column(before: str) -> None:
    from unchoke.reports.layout import width

    source = f"if 1:\n{before}slow()\n" if before.startswith("\t") else f"{before}slow()\n"
    lines = shown(source)
    begin = lines[1].index("slow", 8 if "long" not in before else lines[1].index("; "))
    assert width(lines[1][:begin]) == lines[2].index("^")
    assert lines[2].count("^") == len("slow")
    assert width(lines[1]) < 120


def test_what_a_line_holds_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in "\n".join(shown('x = "\x1b[31m"; slow()\n', name="a\x1b.py"))


def test_gain_names_its_claim_and_fixable_is_marked() -> None:
    text = "\n".join(shown("slow()\n"))
    assert "10 × (measured: docs/claims.md, Planted chokes)" in text
    assert "write fast (--fix does it)" in text


def test_summary_counts_and_names_next_command(tmp_path: Path) -> None:
    text = render_lint(run_lint([str(folder_of_three(tmp_path))], select=[CODE]))
    assert f"{tmp_path / 'broken.py'}:1: not read: " in text
    lines = {line.split()[0]: line.partition(" ")[2].strip() for line in text.splitlines()[-4:]}
    assert lines["found"] == "2 choke points in 2 files"
    assert lines["rules"] == f"2 {CODE}"
    assert lines["read"].startswith("3 files, 5 cells, 1 of them could not be read, in ")
    assert lines["next"] == f"unchoke notebook {tmp_path / 'leaves.ipynb'}"


def test_where_nothing_is_found_there_is_nothing_to_do_next(tmp_path: Path) -> None:
    text = render_lint(linted(tmp_path / "a.py", GOOD))
    assert text.startswith("found    nothing\nread     1 file, 1 cell, in ")
    assert "next" not in text


def test_a_mistake_of_ours_is_called_one(tmp_path: Path) -> None:
    def fails(program: object) -> object:
        raise ValueError("a slip")

    failing = type(FIXABLE)(FIXABLE.rule, fails, "")  # type: ignore[arg-type]
    found, problems = lint_source(parse_source("a.py", b"x = 1\n"), [failing])
    text = render_lint(LintSession(["a.py"], LintResult(found, problems, 1, 1), [failing], 0.1))
    assert "a.py: a bug in unchoke, please report it: internal: " in text
    assert "could not be read" not in text


def test_fixes_that_are_only_shown_stand_for_their_findings() -> None:
    data = b"x = 1\nslow(x)\n"
    found, problems = lint_source(parse_source("a.py", data), [FIXABLE])
    file = repair("a.py", data, [FIXABLE])
    assert file is not None
    text = render_lint(LintSession(["a.py"], LintResult(found, problems, 1, 1), [FIXABLE], 0.1, [file]))
    assert "-slow(x)\n+fast(x)" in text
    assert "^" not in text
    assert "fixable  1 choke point in 1 file" in text
    assert text.endswith("next     unchoke lint a.py --fix")
    written = render_sum(LintSession(["a.py"], LintResult([], [], 1, 1), [FIXABLE], 0.1, [file], True))
    assert written.startswith("fixed    1 choke point in 1 file\nfound    nothing\n")


def test_statistics_has_a_line_a_rule(tmp_path: Path) -> None:
    text = render_statistics(run_lint([str(folder_of_three(tmp_path))], select=[CODE]))
    assert text.splitlines()[2].split(maxsplit=4) == ["2", "2", "-", CODE, "table parsed again for each sample"]
    assert "^" not in text
    assert render_statistics(linted(tmp_path / "none.py", BROKEN)).startswith("found    nothing")


def test_rules_are_listed_and_explained() -> None:
    listed = render_rules(all_rules())
    assert all(loaded.rule.code in listed for loaded in all_rules())
    page = render_rule(rule_named(CODE))
    assert page.startswith(f"{CODE}: table parsed again for each sample\n")
    assert "When this is fine" in page
    assert "gain      10 × (measured: docs/claims.md, Planted chokes)" in render_rule(FIXABLE)


def test_unreadable_file_is_not_called_clean(tmp_path: Path) -> None:
    path = tmp_path / "old.py"
    path.write_text('import torch\nprint "hello"\n')
    text = render_lint(run_lint([str(path)]))
    assert "old.py:2: not read: Python 2: print statement at line 2; convert it with `2to3 -w" in text
    assert "nothing could be read" in text


def test_nits_are_counted_and_chokes_come_first(tmp_path: Path) -> None:
    nit = BAD.replace("import pandas", "import json").replace("pandas.read_csv", "json.loads")
    (tmp_path / "a.py").write_text(nit)
    text = render_lint(run_lint([str(tmp_path)]))
    assert text.startswith("found    nothing\nnits     1 that hardly matters left out: --nits shows it\n")
    (tmp_path / "b.py").write_text(nit)
    (tmp_path / "c.py").write_text(BAD)
    risky = "import torch\nx = torch.hub.download_url_to_file(url, 'a')\nnet.load_state_dict(torch.load(x, weights_only=False))\n"
    (tmp_path / "d.py").write_text(risky)
    shown = render_lint(run_lint([str(tmp_path)], nits=True))
    assert "found    1 choke point, 1 risk, 2 nits in 4 files\nrules    3 parsed-per-sample, 1 unsafe-load\n" in shown
    assert "unsafe-load: loading may run code from the file (risk)" in shown
    assert f"{CODE}: table parsed again for each sample (nit)" in shown
    assert "left out" not in shown


def test_edit_stands_under_the_fix_once(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("import torch\n\nmodel.load_state_dict(torch.load('a.pt'))\n")
    linted = run_lint([str(path)], select=["unsafe-load"], nits=True)
    lines = render_lint(linted).splitlines()
    assert "           + model.load_state_dict(torch.load('a.pt', weights_only=True))" in lines
    assert not any(line.strip().startswith("- ") for line in lines)
    (finding,) = linted.to_dict()["findings"]
    assert finding["diff"].splitlines()[0] == "- model.load_state_dict(torch.load('a.pt'))"
    assert finding["fixable"] is False
