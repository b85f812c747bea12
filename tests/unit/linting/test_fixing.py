"""Fixes change what they say and nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.linted import FIXABLE, notebook

from errors import refused
from unchoke.code.program import Program
from unchoke.code.source import CodePlace, parse_source
from unchoke.linting import fixing
from unchoke.linting.fixing import put_in_place, repair
from unchoke.linting.lint_engine import lint_source
from unchoke.linting.rule import Edit, Hit, Rule
from unchoke.linting.rules import LoadedRule


def rule(change: Callable[[str], str]) -> LoadedRule:
    """Rewrites the name of every call of `f`."""

    def check(program: Program) -> Iterator[Hit]:
        for call in program.calls_to("f"):
            place = program.place(call.func)
            yield Hit(call, "m", edit=Edit(place, change("f")))

    return LoadedRule(Rule("anomaly-mode", "compute", "step", "t"), check, "")


def fixed(path: str, data: bytes, change: Callable[[str], str] = lambda name: "better") -> fixing.FileFix | None:
    source = parse_source(path, data)
    found, _ = lint_source(source, [rule(change)])
    return fixing.fix_source(source, data, found)


@pytest.mark.parametrize(
    "text",
    [
        "x = f(1)\ny = f(2)\n",
        "x = f(1)\r\nf(2)\r\n\r\n",
        "é = 'ü'; f(1)  # ß\nf(2)",
        "\tif 1:\n\t\tf(1)\n".replace("\tif", "if"),
        "f(1)\x0c\nf(2)\n",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_only_the_piece_changes_in_a_script(text: str, encoding: str) -> None:
    data = text.encode(encoding)
    result = fixed("a.py", data)
    assert result is not None
    assert result.data == text.replace("f(", "better(").replace("ibetter(", "if(").encode(encoding)


def test_a_script_keeps_its_encoding() -> None:
    data = "# -*- coding: latin-1 -*-\nx = 'é'; f(1)".encode("latin-1")
    result = fixed("a.py", data)
    assert result is not None
    assert result.data == data.replace(b"f(", b"better(")


BOOK: dict[str, Any] = {
    "cells": [
        {"cell_type": "markdown", "source": ["f(1) is not code\n", "ü"]},
        {
            "cell_type": "code",
            "execution_count": 1,
            "source": ["!ls f(1)\n", "x = f(1)\n", "y = 'é'"],
            "outputs": [{"text": "f(1)"}],
        },
        {"cell_type": "code", "source": "x = f(1)"},
        {"cell_type": "code", "source": "x = f(1)"},
        {"cell_type": "code", "source": "z = 3", "metadata": {"source": "f(1)"}},
    ],
    "nbformat": 4,
    "metadata": {"cells": [1]},
}


@pytest.mark.parametrize("indent", [None, 1, 4])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_only_the_sources_change_in_a_notebook(indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(BOOK, indent=indent, ensure_ascii=ascii_only) + "\n"
    result = fixed("a.ipynb", text.encode())
    assert result is not None
    wanted = json.loads(text)
    wanted["cells"][1]["source"][1] = "x = better(1)\n"
    wanted["cells"][2]["source"] = wanted["cells"][3]["source"] = "x = better(1)"
    assert result.data.decode() == json.dumps(wanted, indent=indent, ensure_ascii=ascii_only) + "\n"


def test_a_notebook_of_format_3_is_rewritten_in_place() -> None:
    book = {"worksheets": [{"cells": [{"cell_type": "code", "input": ["f(1)"], "language": "python"}]}], "nbformat": 3}
    result = fixed("a.ipynb", json.dumps(book).encode())
    assert result is not None
    assert result.data == json.dumps(book).replace("f(1)", "better(1)").encode()


def test_the_difference_names_the_cell() -> None:
    result = fixed("a.ipynb", json.dumps(BOOK).encode())
    assert result is not None
    assert "a.ipynb cell 2" in result.diff
    assert "-x = f(1)\n+x = better(1)" in result.diff


def test_an_edit_that_would_not_parse_is_not_made() -> None:
    assert fixed("a.py", b"f(1)", lambda name: "1 +* ") is None


def test_edits_that_overlap_wait_for_the_next_run() -> None:
    source = parse_source("a.py", b"f(g(1))")

    def check(program: Program) -> Iterator[Hit]:
        outer = program.calls_to("f")[0]
        yield Hit(CodePlace(None, 1), "m", edit=Edit(program.place(outer), "h(1)"))
        yield Hit(CodePlace(None, 2), "m", edit=Edit(program.place(outer.args[0]), "k(1)"))

    found, _ = lint_source(source, [LoadedRule(Rule("a", "input", "stat", "t"), check, "")])
    result = fixing.fix_source(source, b"f(g(1))", found)
    assert result is not None
    assert result.data == b"h(1)"
    assert len(result.applied) == 1


def test_two_edits_of_one_finding_go_in_together() -> None:
    edits = (Edit(CodePlace(None, 1, 0, 1, 1), "a"), Edit(CodePlace(None, 2, 0, 2, 0), "new\n"))
    assert fixing.apply_edits("x\ny", edits) == "a\nnew\ny"
    assert fixing.apply_edits("x\r\ny", edits) == "a\r\nnew\r\ny"


def test_nothing_to_fix_is_none() -> None:
    assert fixed("a.py", b"g(1)") is None


def test_the_new_file_is_put_in_place_of_the_old(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_bytes(b"f(1)")
    result = fixed(str(file), b"f(1)")
    assert result is not None
    fixing.put_in_place(result)
    assert file.read_bytes() == b"better(1)"
    assert [item.name for item in tmp_path.iterdir()] == ["a.py"]


def test_every_fix_goes_in_and_one_diff_shows_them_all() -> None:
    done = repair("a.py", b"# \xc3\xa9\r\nslow(1)\r\nslow(2) ; slow(3)\r\n", [FIXABLE])
    assert done is not None
    assert done.data == b"# \xc3\xa9\r\nfast(1)\r\nfast(2) ; fast(3)\r\n"
    assert done.found == []
    assert done.diff.count("@@") == 2
    assert "+fast(2) ; fast(3)" in done.diff


def test_where_nothing_can_be_fixed_there_is_no_repair() -> None:
    assert repair("a.py", b"quick()\n", [FIXABLE]) is None
    assert repair("a.py", b"slow(:\n", [FIXABLE]) is None
    assert repair("a.py", "slow()\n".encode("utf-16"), [FIXABLE]) is None
    assert repair("a.ipynb", notebook("slow()\n").encode("utf-16"), [FIXABLE]) is None


def test_a_notebook_keeps_everything_but_the_cell() -> None:
    before = notebook("x = 1\n", "y = slow(x)\nz = 'ü'")
    done = repair("a.ipynb", before.encode(), [FIXABLE])
    assert done is not None
    assert done.data.decode() == before.replace("slow", "fast")
    assert json.loads(done.data)["cells"][2]["source"] == ["y = fast(x)\n", "z = 'ü'"]
    assert "a.ipynb cell 3 (before)" in done.diff


@pytest.mark.skipif(os.name == "nt", reason="modes and links are those of POSIX")
def test_a_link_stays_a_link_and_a_script_stays_executable(tmp_path: Path) -> None:
    script, link = tmp_path / "train.py", tmp_path / "link.py"
    script.write_text("slow()\n")
    script.chmod(0o750)
    link.symlink_to(script)
    done = repair(str(link), link.read_bytes(), [FIXABLE])
    assert done is not None
    put_in_place(done)
    assert link.is_symlink()
    assert script.read_text() == "fast()\n"
    assert script.stat().st_mode & 0o777 == 0o750


def test_a_file_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    done = repair(str(tmp_path / "gone" / "train.py"), b"slow()\n", [FIXABLE])
    assert done is not None
    with refused("output-not-writable", "train.py"):
        put_in_place(done)


def test_written_script_is_fixed_in_its_cell() -> None:
    data = json.dumps({"cells": [{"cell_type": "code", "source": "%%writefile a.py\nx = f(1)\n"}]}).encode()
    done = fixed("a.ipynb", data)
    assert done is not None
    assert json.loads(done.data)["cells"][0]["source"] == "%%writefile a.py\nx = better(1)\n"
    assert fixed("a.ipynb", data, lambda name: "(") is None


def test_finding_shows_lines_before_and_after() -> None:
    source = parse_source("a.py", b"x = 1\nif x:\n    y = f(1)\n")
    (item,), _ = lint_source(source, [rule(lambda name: "better")])
    assert fixing.line_diff(item) == ["-     y = f(1)", "+     y = better(1)"]


def test_what_is_only_suggested_is_shown_and_never_written() -> None:
    def check(program: Program) -> Iterator[Hit]:
        for call in program.calls_to("f"):
            place = program.place(call)
            yield Hit(call, "m", suggestion=(Edit(CodePlace(None, place.line, 0, place.line, 0), "begin()\n"),))

    loaded = LoadedRule(Rule("anomaly-mode", "compute", "step", "t"), check, "")
    source = parse_source("a.py", b"x = 1\nf(1)\n")
    (item,), _ = lint_source(source, [loaded])
    assert fixing.line_diff(item) == ["+ begin()", "  f(1)"]
    assert fixing.repair("a.py", b"x = 1\nf(1)\n", [loaded]) is None
