"""`%%choke` in a real IPython: the cell runs as always, then shows its cost and what slows it down."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("IPython")

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


def test_value_and_cost(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    done = shell.run_cell("%%choke\nimport time\ntime.sleep(0.2)\nfound = 41\nfound + 1", store_history=True)
    assert (done.success, shell.user_ns["found"]) == (True, 41)
    out = capsys.readouterr().out
    assert "42" in out
    assert "choke    2" in out


def test_semicolon_and_other_magics(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.run_cell("%%choke\nnames = !echo leaf\n%time a = 3\n4242;", store_history=True).success
    assert list(shell.user_ns["names"]) == ["leaf"]
    assert "4242" not in capsys.readouterr().out


def test_cell_that_fails(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    done = shell.run_cell("%%choke\na = 1\nraise ValueError('no')", store_history=True)
    assert isinstance(done.error_in_exec, ValueError)
    out = capsys.readouterr().out
    assert "choke    " in out
    assert "magic.py" not in out
    assert isinstance(shell.run_cell("%%choke\nif True print(1)").error_in_exec, SyntaxError)


def test_finding_needs_the_cells_before(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell("import os\nfrom torch.utils.data import Dataset\nclass Leaves(Dataset): names = []", store_history=True)
    assert shell.run_cell(CHECKED, store_history=True).success
    out = capsys.readouterr().out
    assert "line 4  per-sample-scan: " in out
    assert "fix: " in out
    assert shell.run_cell("%%choke\nb = 1", store_history=True).success
    assert "per-sample-scan" not in capsys.readouterr().out
