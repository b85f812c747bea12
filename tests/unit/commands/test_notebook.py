"""A notebook cell by cell: read alone, and run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import books
from errors import refused
from unchoke.commands.notebook import notebook

DATASET = """import os
from torch.utils.data import Dataset
class Leaves(Dataset):
    def __getitem__(self, number):
        if os.listdir(self.folder):
            return read(self.names[number])
"""
SIX = [
    "import time",
    "a = [n for n in range(1000)]",
    "time.sleep(1.5)",
    "b = sum(a)",
    "pictures = bytearray(b'1') * 300_000_000",
    "len(pictures)",
]


def test_it_is_read_and_not_written_and_nothing_else_is(tmp_path: Path) -> None:
    path = books.write_book(tmp_path / "leaves.ipynb", ["#: Leaves", "!pip install timm", DATASET])
    before = path.read_bytes()
    report = notebook(path)
    assert [(cell.reading.number, cell.verdict.word) for cell in report.cells] == [(2, "eliminate"), (3, "optimise")]
    assert [finding.code for finding in report.cells[1].findings] == ["list-per-sample"]
    assert report.cells[1].findings[0].line == 5
    assert (report.text_cells, report.run, report.exit_code) == (1, None, 0)
    assert report.next_command == f"unchoke notebook {path} --run"
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["leaves.ipynb"]


def test_run_names_the_slow_and_the_hungry_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ipykernel")
    books.own_kernel(tmp_path, monkeypatch)
    path = books.write_book(tmp_path / "six.ipynb", SIX)
    before = path.read_bytes()
    report = notebook(path, run=True, out=tmp_path / "out", html=tmp_path / "six.html")
    slow, hungry = report.highlights
    assert slow.startswith("cell 3 ")
    assert hungry.startswith("cell 5 ") and " 300." in hungry
    assert [cell.verdict.word for cell in report.cells] == ["keep", "keep", "optimise", "keep", "optimise", "keep"]
    assert path.read_bytes() == before
    assert report.file is not None
    assert json.loads(report.file.read_text())["totals"]["cells"] == 6
    assert (tmp_path / "six.html").read_text().startswith("<!doctype html>")
    assert report.exit_code == 0


def test_failing_cell_gives_exit_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ipykernel")
    books.own_kernel(tmp_path, monkeypatch)
    path = books.write_book(tmp_path / "a.ipynb", [("1 / 0", "raises-exception"), "a = 1", "b = missing", "c = 3"])
    report = notebook(path, run=True, out=tmp_path / "out", cwd=tmp_path)
    assert [cell.run.status for cell in report.cells if cell.run] == ["failed", "done", "failed", "not run"]
    assert [cell.failed for cell in report.cells] == [False, False, True, False]
    assert report.highlights == ["cell 3, line 1: NameError: name 'missing' is not defined"]
    assert report.exit_code == 1


def test_what_is_no_notebook_is_refused(tmp_path: Path) -> None:
    with refused("not-a-notebook", "train.py"):
        notebook(tmp_path / "train.py")
    (tmp_path / "half.ipynb").write_text('{"cells": [')
    for name, exit_code in (("none.ipynb", 2), ("half.ipynb", 1)):
        with refused("unreadable-file", name) as caught:
            notebook(tmp_path / name)
        assert caught.value.exit_code == exit_code


def test_the_page_never_replaces_a_notebook(tmp_path: Path) -> None:
    path = books.write_book(tmp_path / "a.ipynb", ["a = 1"])
    with refused("output-is-input", str(path)):
        notebook(path, html=path)


@pytest.mark.parametrize(
    "content",
    [
        {"cells": [], "nbformat": 4, "metadata": {}},
        {"cells": [{"cell_type": "code", "source": ["a = 1\n", "b"]}, 7, {"cell_type": "raw", "source": "x"}], "metadata": None},
        {"worksheets": [{"cells": [{"cell_type": "code", "input": "a = 1", "prompt_number": 1}]}], "nbformat": 3, "metadata": {}},
        {"cells": [{"cell_type": "code", "source": "def f(:"}], "metadata": {"kernelspec": 3}, "nbformat": 4},
    ],
)
def test_odd_notebooks_are_read_all_the_same(content: object, tmp_path: Path) -> None:
    path = tmp_path / "odd.ipynb"
    path.write_text(json.dumps(content))
    report = notebook(path)
    assert report.to_text()
    assert report.to_markdown()
    assert json.dumps(report.to_dict())
