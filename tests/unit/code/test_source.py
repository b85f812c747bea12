"""Notebooks and scripts of every kind are read, and what cannot be read is named and passed over."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from errors import refused
from unchoke.code.source import LONGEST_CELL, SourceFile, language_name, parse_source, read_source


def notebook(*sources: Any, **top: Any) -> bytes:
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": 3, "source": source} for source in sources]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5, **top}).encode()


def read(*sources: Any, **top: Any) -> SourceFile:
    return parse_source("a.ipynb", notebook(*sources, **top))


def test_cells_keep_their_number_and_text() -> None:
    book = {
        "cells": [
            {"cell_type": "markdown", "source": ["# Title\n", "words"]},
            {"cell_type": "code", "source": "x = 1", "execution_count": 7},
            {"cell_type": "raw", "source": "as it is"},
        ],
        "nbformat": 4,
    }
    title, code, raw = parse_source("a.ipynb", json.dumps(book).encode()).cells
    assert (title.number, title.kind, title.text) == (1, "markdown", "# Title\nwords")
    assert (code.number, code.kind, code.count, code.executed) == (2, "code", 7, True)
    assert (raw.number, raw.kind) == (3, "raw")


def test_format_3_has_worksheets_and_input() -> None:
    cells = [
        {"cell_type": "heading", "level": 1, "source": "Title"},
        {"cell_type": "code", "input": ["x = 1\n", "y = 2"], "language": "python", "prompt_number": 4, "outputs": []},
    ]
    source = parse_source("a.ipynb", json.dumps({"nbformat": 3, "worksheets": [{"cells": cells}, {"cells": cells}]}).encode())
    assert [cell.kind for cell in source.cells] == ["markdown", "code"] * 2
    assert source.cells[1].text == "x = 1\ny = 2"
    assert source.cells[1].count == 4
    assert source.cells[3].number == 4


def test_unparsed_cell_is_named_and_others_are_read() -> None:
    source = read("x = 1", "def f(:\n  pass", "y = 2")
    assert [cell.executed for cell in source.cells] == [True, False, True]
    (problem,) = source.problems
    assert (problem.cell, problem.line) == (2, 1)
    assert "does not parse" in problem.message


def test_cell_in_another_language_is_no_problem() -> None:
    source = read("%%bash\nfor f in *; do echo $f; done", "%%writefile a.py\nimport os", "%%html\n<b>x</b>")
    assert not any(cell.executed for cell in source.cells)
    assert source.problems == ()
    assert [cell.language for cell in source.cells] == ["bash", "writefile", "html"]


def test_a_notebook_of_another_language_is_not_read() -> None:
    source = read("x <- 1", metadata={"kernelspec": {"language": "R", "name": "ir"}})
    assert not source.cells[0].executed
    assert "not Python" in source.problems[0].message


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b"3", b'{"cells": 5}', b'{"cells": {}}', b"\x00\x01", b'{"worksheets": [3, null]}', b"{]" * 50],
)
def test_what_is_no_notebook_is_one_problem(data: bytes) -> None:
    source = parse_source("a.ipynb", data)
    assert source.cells == ()
    assert len(source.problems) == 1 or data == b'{"cells": 5}' or b"worksheets" in data or data == b'{"cells": {}}'


@pytest.mark.parametrize(
    "cell", [None, 3, "x", [], {}, {"cell_type": 4}, {"cell_type": "code"}, {"cell_type": "code", "source": 4}]
)
def test_odd_cells_are_passed_over(cell: Any) -> None:
    source = parse_source("a.ipynb", json.dumps({"cells": [cell, {"cell_type": "code", "source": "x = 1"}]}).encode())
    assert source.cells[1].executed


def test_deep_json_and_deep_python_are_problems() -> None:
    assert parse_source("a.ipynb", b'{"cells":' + b"[" * 100_000).problems
    deep = parse_source("a.py", ("(" * 5000 + "1" + ")" * 5000).encode())
    assert deep.problems
    chained = parse_source("a.py", ("x = " + "1 + " * 50_000 + "1").encode())
    assert chained.problems or chained.cells[0].tree is not None


def test_null_characters_and_lone_surrogates_are_problems() -> None:
    assert parse_source("a.py", b"x = 1\x00").problems
    assert read("x = '\ud800'").cells[0].number == 1


def test_a_huge_cell_is_taken_as_data() -> None:
    source = read("x = '" + "a" * (LONGEST_CELL + 1) + "'")
    assert not source.cells[0].executed
    assert "data" in source.problems[0].message


@pytest.mark.parametrize(
    "data",
    [
        "x = 'é'".encode(),
        b"\xef\xbb\xbfx = '\xc3\xa9'",
        "# -*- coding: latin-1 -*-\nx = 'é'".encode("latin-1"),
        "x = 'é'".encode("latin-1"),
        "x = 'é'".encode("utf-16"),
        "# -*- coding: no-such-code -*-\nx = 'é'".encode("latin-1"),
    ],
)
def test_a_script_is_read_in_any_encoding(data: bytes) -> None:
    (cell,) = parse_source("a.py", data).cells
    assert cell.tree is not None
    assert any(node.value == "é" for node in ast.walk(cell.tree) if isinstance(node, ast.Constant))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_a_notebook_is_read_in_any_encoding(encoding: str) -> None:
    text = json.dumps({"cells": [{"cell_type": "code", "source": "x = 'é'"}]}, ensure_ascii=False)
    assert parse_source("a.ipynb", text.encode(encoding)).cells[0].text == "x = 'é'"


def test_a_script_with_magics_left_in_it_is_read() -> None:
    source = parse_source("a.py", b"%matplotlib inline\nx = 1\n")
    assert source.problems == ()
    assert source.cells[0].executed


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with refused("unreadable-file", "none.py"):
        read_source(tmp_path / "none.py")


def test_script_written_by_cells_is_its_own_source() -> None:
    source = read("%%writefile train.py\nimport os", "x = 1", "%%writefile -a train.py\nos.getcwd()", "%%writefile a.yaml\nk: 1")
    (script,) = source.scripts
    assert (script.name, script.path, script.is_notebook) == ("train.py", "a.ipynb", False)
    assert [(cell.number, cell.executed) for cell in script.cells] == [(1, True), (3, True)]
    assert script.cells[0].tree is not None and script.cells[0].tree.body[0].lineno == 2
    assert [cell.executed for cell in source.cells] == [False, True, False, False]


def test_a_script_written_twice_is_what_was_written_last() -> None:
    (script,) = read("%%writefile a.py\nx = 1", "%%writefile a.py\ny = 2").scripts
    assert [cell.number for cell in script.cells] == [2]


def test_unparsed_written_script_is_a_problem_at_its_cell() -> None:
    (problem,) = read("x = 1", "%%writefile a.py\ndef f(:").problems
    assert (problem.cell, problem.line) == (2, 2)


@pytest.mark.parametrize(
    ("text", "line", "sign"),
    [
        ('import torch\nprint "hello"\n', 2, "print statement"),
        ("print 'a %d' % x, y", 1, "print statement"),
        ("try:\n    x()\nexcept ValueError, e:\n    pass", 3, "except E, e"),
        ("os.chmod(path, 0755)", 1, "0777"),
        ("raise ValueError, 'text'", 1, "raise E, text"),
    ],
)
def test_python_2_is_named_with_line_and_converter(text: str, line: int, sign: str) -> None:
    (problem,) = parse_source("old file.py", text.encode()).problems
    assert problem.line == line
    assert problem.message.startswith("Python 2: ")
    assert sign in problem.message
    assert "2to3 -w 'old file.py'" in problem.message


@pytest.mark.parametrize(
    "text", ["def f(:\n  pass", "x = = 1", "print(1", "for x in y\n    pass", "print = 3 3", "text = '''print \"a\""]
)
def test_what_is_merely_broken_is_not_called_python_2(text: str) -> None:
    (problem,) = parse_source("a.py", text.encode()).problems
    assert "Python 2" not in problem.message


@pytest.mark.parametrize(
    ("language", "name"), [("ir", "R"), ("js", "JavaScript"), ("cython", "Cython"), ("bash", "bash"), ("sql", "SQL")]
)
def test_languages_are_spelled_as_people_do(language: str, name: str) -> None:
    assert language_name(language) == name
