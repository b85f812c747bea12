"""`%%choke` in a real IPython: the cell runs as always, and is told what it cost and where it chokes."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("IPython")

import books

CHECKED = """%%choke
class Checked(Leaves):
    def __getitem__(self, number):
        return os.listdir(self.folder)[number]
"""


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # a shell puts its own there; workers need ours
    config = Config({"HistoryManager": {"hist_file": ":memory:"}, "InteractiveShell": {"colors": "nocolor"}})
    made = InteractiveShell(config=config)
    made.run_line_magic("load_ext", "unchoke")
    yield made
    made.atexit_operations()
    atexit.unregister(made.atexit_operations)


def test_value_and_cost_of_a_cell(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    done = shell.run_cell("%%choke\nimport time\ntime.sleep(0.2)\nfound = 41\nfound + 1", store_history=True)
    assert done.success
    assert shell.user_ns["found"] == 41
    out = capsys.readouterr().out
    assert "42" in out
    assert "choke    2" in out


def test_semicolon_and_other_magics(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.run_cell("%%choke\nnames = !echo leaf\n%time a = 3\n4242;", store_history=True).success
    assert list(shell.user_ns["names"]) == ["leaf"]
    assert "4242" not in capsys.readouterr().out


def test_cost_of_a_cell_that_fails(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    done = shell.run_cell("%%choke\na = 1\nraise ValueError('no')", store_history=True)
    assert isinstance(done.error_in_exec, ValueError)
    out = capsys.readouterr().out
    assert "choke    " in out
    assert "magic.py" not in out
    assert isinstance(shell.run_cell("%%choke\nif True print(1)").error_in_exec, SyntaxError)


def test_choke_point_that_needs_the_cells_before(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell("import os\nclass Dataset: pass\nclass Leaves(Dataset): names = []", store_history=True)
    assert shell.run_cell(CHECKED, store_history=True).success
    out = capsys.readouterr().out
    assert "line 4  list-per-sample: " in out
    assert "fix: " in out
    assert shell.run_cell("%%choke\nb = 1", store_history=True).success
    assert "list-per-sample" not in capsys.readouterr().out


def test_it_works_in_a_real_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ipykernel")
    from unchoke.notebooks.cell_record import CellTask
    from unchoke.notebooks.run_cells import run_cells

    books.own_kernel(tmp_path, monkeypatch)
    tasks = [CellTask(1, "%load_ext unchoke"), CellTask(2, "%%choke\na = 1\n'shown'"), CellTask(3, "%%choke\na = 1\nmissing")]
    done = run_cells(tasks, kernel="python3", folder=tmp_path, limit_s=60)
    assert [cell.error for cell in done.cells.values()] == ["", "", "NameError: name 'missing' is not defined"]
    assert done.cells[2].output_bytes > 60
    assert done.cells[3].line == 3
