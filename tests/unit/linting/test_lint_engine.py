"""Rules are run over files, the author's marks are kept to, and nothing a file holds stops the run."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from errors import refused
from unchoke.code.program import Program
from unchoke.code.source import parse_source
from unchoke.linting.lint_engine import chosen_codes, find_chokes, lint, lint_source, source_files
from unchoke.linting.rule import Hit, Rule
from unchoke.linting.rules import CODES, NAMES, LoadedRule, load_rule

BAD = """
import os
from torch.utils.data import Dataset
class Leaves(Dataset):
    def __getitem__(self, i):
        return os.path.exists(self.files[i])
"""
MARK = LoadedRule(
    Rule("input", "stat", "t", code="stat-per-sample"), lambda program: (Hit(call, "m") for call in program.calls_to("f")), ""
)


def lines(text: str, rule: LoadedRule = MARK) -> list[int | None]:
    found, problems = lint_source(parse_source("a.py", text.encode()), [rule])
    assert not problems
    return [item.finding.line for item in found]


def write_notebook(path: Path, *cells: str) -> Path:
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells], "nbformat": 4}))
    return path


def test_finding_carries_place_fix_and_command(tmp_path: Path) -> None:
    book = write_notebook(tmp_path / "a.ipynb", "x = 1", BAD)
    result = lint([book], select=["stat-per-sample"])
    (finding,) = result.findings
    assert (finding.code, finding.path, finding.cell, finding.line) == ("stat-per-sample", str(book), 2, 6)
    assert finding.stage == "stat"
    assert finding.fix
    assert finding.command == "unchoke check"
    assert (result.files, result.cells) == (1, 2)
    assert json.dumps(result.to_dict())


@pytest.mark.parametrize(
    ("gain", "claim", "said"),
    [("", "", "unmeasured"), ("half the time", "", "half the time (unmeasured)"), ("3 s to 1 s", "A", "3 s to 1 s")],
)
def test_a_gain_that_was_not_measured_says_so(gain: str, claim: str, said: str) -> None:
    rule = LoadedRule(Rule("input", "stat", "t", gain=gain, claim=claim, code="stat-per-sample"), MARK.check, "")
    ((found,), _) = lint_source(parse_source("a.py", b"f(1)"), [rule])
    assert found.finding.expected_gain == said


@pytest.mark.parametrize(
    "comment",
    ["# noqa", "#noqa", "# noqa: stat-per-sample", "# noqa: E501, stat-per-sample", "# NOQA : stat-per-sample",
     "# why not  # noqa", "# unchoke: ignore", "# unchoke: ignore[stat-per-sample]", "# unchoke: ignore[a, stat-per-sample]"],
)  # fmt: skip
def test_a_marked_line_is_left_out(comment: str) -> None:
    assert lines(f"f(1)\nf(2)  {comment}\nf(3)") == [1, 3]


@pytest.mark.parametrize("comment", ["# noqa: E501", "# unchoke: ignore[host-sync]", "# noqua", "# no qa"])
def test_a_line_marked_for_something_else_is_not(comment: str) -> None:
    assert lines(f"f(1)  {comment}") == [1]


def test_ignore_mark_at_the_end_of_a_long_call_counts() -> None:
    assert lines("f(\n  1,\n)  # noqa: stat-per-sample") == []


def test_one_rule_says_one_thing_about_a_line_once() -> None:
    assert lines("f(1); f(2)\nf(3)") == [1, 2]


def test_a_rule_that_fails_is_reported_and_the_others_go_on() -> None:
    def fails(program: Program) -> Iterator[Hit]:
        raise KeyError("oops")

    broken = LoadedRule(Rule("device", "step", "t", code="host-sync"), fails, "")
    found, problems = lint_source(parse_source("a.py", b"f(1)"), [broken, MARK])
    assert len(found) == 1
    assert problems[0].internal
    assert "host-sync" in problems[0].message


def test_findings_come_in_the_order_of_the_source() -> None:
    def backwards(program: Program) -> Iterator[Hit]:
        yield from (Hit(call, "m") for call in reversed(list(program.nodes(ast.Call))))

    assert lines("f(1)\ng(2)\nh(3)", LoadedRule(Rule("input", "stat", "t", code="a"), backwards, "")) == [1, 2, 3]


def test_folders_are_searched_for_notebooks_and_scripts(tmp_path: Path) -> None:
    for name in ("a.py", "b.ipynb", "c.txt", "sub/d.py", "__pycache__/e.py", ".hidden/f.py", "build/g.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    found = [path.relative_to(tmp_path).as_posix() for path in source_files([tmp_path, tmp_path / "a.py"])]
    assert found == ["a.py", "b.ipynb", "sub/d.py"]


def test_a_path_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with refused("no-such-file", str(tmp_path / "none")):
        lint([tmp_path / "none"])


def test_a_broken_file_is_a_problem_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_text("{")
    (tmp_path / "b.py").write_text(BAD)
    result = lint([tmp_path], select=["stat-per-sample"])
    assert len(result.findings) == 1
    assert result.problems[0].path.endswith("a.ipynb")


def test_rules_are_chosen_by_code_and_by_group() -> None:
    assert chosen_codes(["stat-per-sample,list-per-sample"], []) == [
        code for code in ("list-per-sample", "stat-per-sample") if code in chosen_codes([], [])
    ]
    assert "stat-per-sample" in chosen_codes(["input"], [])
    assert "stat-per-sample" not in chosen_codes([], ["input"])
    assert "stat-per-sample" not in chosen_codes(["input"], ["stat-per-sample"])


def test_an_unknown_rule_is_a_usage_error() -> None:
    with refused("unknown-rule", "no-such-rule"):
        chosen_codes(["no-such-rule"], [])


def test_rules_are_sorted_and_named_as_their_files() -> None:
    assert list(NAMES) == sorted(NAMES)
    for code in chosen_codes([], []):
        loaded = load_rule(code)
        assert loaded.rule.code == code
        assert "When this is fine" in loaded.page
    assert len(CODES) == 46


def test_linting_loads_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(BAD)
    heavy = ["torch", "numpy", "pandas", "tensorflow", "libcst"]
    code = f"""
import sys
from unchoke.linting.lint_engine import lint
assert lint([sys.argv[1]], nits=True).findings
assert not [name for name in {heavy} if name in sys.modules]
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_written_script_is_a_program_of_its_own() -> None:
    book = {"cells": [{"cell_type": "code", "source": text} for text in ("f()", "%%writefile a.py\nf()", "x = 1")]}
    source = parse_source("a.ipynb", json.dumps(book).encode())
    found, problems = lint_source(source, [MARK])
    assert [(item.place.cell, item.place.line, item.finding.path) for item in found] == [(1, 1, "a.ipynb"), (2, 2, "a.ipynb")]
    assert all(item.source is source for item in found)
    assert not problems


def test_names_of_a_written_script_are_not_the_notebooks() -> None:
    cells = ("%%writefile a.py\nimport os as system", "system.f()")
    source = parse_source("a.ipynb", json.dumps({"cells": [{"cell_type": "code", "source": text} for text in cells]}).encode())
    assert Program(source).name(next(iter(Program(source).nodes(ast.Call)))) == "?.f"


def test_nits_are_counted_unless_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(BAD)
    plain = lint([tmp_path])
    assert (plain.findings, plain.nits_left_out) == ([], 1)
    for asked in (lint([tmp_path], nits=True), lint([tmp_path], select=["stat-per-sample"])):
        assert [(finding.kind, finding.severity) for finding in asked.findings] == [("nit", "info")]
        assert asked.nits_left_out == 0
    assert lint([tmp_path], select=["input"]).nits_left_out == 1


def test_a_hit_may_be_of_another_kind_than_its_rule() -> None:
    source = parse_source("a.py", b"f()\n")
    for kind, severity in (("choke", "warning"), ("risk", "warning"), ("nit", "info")):
        loaded = replace(MARK, check=lambda program, kind=kind: (Hit(call, "m", kind=kind) for call in program.calls_to("f")))
        (item,), _ = lint_source(source, [loaded])
        assert (item.kind, item.finding.kind, item.finding.severity) == (kind, kind, severity)


def test_a_notebook_is_told_no_nits() -> None:
    assert find_chokes(parse_source("a.py", BAD.encode())) == ([], [])


def test_hit_with_its_own_gain_cites_no_claim() -> None:
    rule = replace(MARK.rule, gain="10 x", claim="Planted chokes")
    for gain, told, cited in (("", "10 x", "Planted chokes"), ("less", "less (unmeasured)", None)):
        loaded = LoadedRule(rule, lambda program, gain=gain: (Hit(call, "m", gain=gain) for call in program.calls_to("f")), "")
        (item,), _ = lint_source(parse_source("a.py", b"f()\n"), [loaded])
        assert (item.finding.expected_gain, item.finding.evidence.get("claim")) == (told, cited)


RISKY = """import torch
def fetch(net, url):
    torch.hub.download_url_to_file(url, "a.pt")
    net.load_state_dict(torch.load("a.pt", weights_only=False))
"""
TEST = "def test_a():\n    pass\n"


@pytest.mark.parametrize(
    ("below", "head", "nit"),
    [("tests/a.py", "", True), ("pkg/testing/a.py", "", True), ("test_utils/a.py", "", True), ("conftest.py", "", True),
     ("pkg/inference-benchmark.py", "", True), ("bench_a.py", "", True), ("workbench.py", "", False),
     ("test_a.py", TEST, True), ("a_test.py", TEST, True), ("test/a.py", TEST, True),
     ("test_a.py", "", False), ("test/a.py", "", False), ("latest/a.py", TEST, False), ("a.py", TEST, False)],
)  # fmt: skip
def test_what_is_found_in_test_code_is_a_nit(tmp_path: Path, below: str, head: str, nit: bool) -> None:
    path = tmp_path / below
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(head + RISKY)
    result = lint([tmp_path])
    assert (len(result.findings), result.nits_left_out) == ((0, 1) if nit else (1, 0))
    (finding,) = lint([tmp_path], nits=True).findings
    assert (finding.kind, finding.severity) == (("nit", "info") if nit else ("risk", "warning"))
    assert [item.kind for item in lint([path]).findings] == ["risk"], "a file that is named itself was asked for"


@pytest.mark.parametrize(
    "head", ["pytest.raises(OSError)", "self.assertRaisesRegex(OSError, 'a') as b", "a(), warns(UserWarning)"]
)
def test_what_stands_in_a_block_that_must_fail_is_left_out(head: str) -> None:
    assert lines(f"f(1)\nwith {head}:\n    g()\n    f(2)\nf(3)") == [1, 5]
    assert lines("with raised(1):\n    f(2)") == [2]


def test_rules_on_one_pipeline_are_one_finding(tmp_path: Path) -> None:
    source = """\
import cv2, keras
class Photos(keras.utils.Sequence):
    def __getitem__(self, i):
        return cv2.resize(cv2.imread(self.names[i]), (64, 64))
model.fit(Photos(), epochs=40, callbacks=[keras.callbacks.ModelCheckpoint('a')])
"""
    (tmp_path / "a.py").write_text(source)
    (finding,) = lint([tmp_path]).findings
    assert (finding.code, finding.line) == ("no-workers", 5)
    assert finding.fix.endswith("; then, on the same pipeline: repeated-decode (line 4)")
    assert finding.evidence["also"] == [{"code": "repeated-decode", "cell": None, "line": 4}]
    assert {item.code: item.kind for item in lint([tmp_path], nits=True).findings}["repeated-decode"] == "nit"
    assert [item.kind for item in lint([tmp_path], select=["repeated-decode"]).findings] == ["choke"], "asked for alone"


def test_what_nothing_reaches_is_a_nit(tmp_path: Path) -> None:
    text = "import torch\ndef old(net, path):\n    net.load_state_dict(torch.load(path, weights_only=False))\n"
    (tmp_path / "a.py").write_text(text + "if __name__ == '__main__':\n    print('new')\n")
    assert [item.kind for item in lint([tmp_path], nits=True).findings] == ["nit"]
