"""Cells in a real kernel: what each cost, how each ended, and what stays behind of the run (nothing)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from errors import refused
from unchoke.notebooks import run_cells as notebook_kernel
from unchoke.notebooks.cell_record import CellRun, CellTask, NotebookRun
from unchoke.notebooks.run_cells import choose_kernel, run_cells

pytest.importorskip("ipykernel")
import books

KEEP_HOLD = "import time\nwhile True:\n    try:\n        time.sleep(1)\n    except KeyboardInterrupt:\n        pass"


@pytest.fixture(autouse=True)
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    books.own_kernel(tmp_path, monkeypatch)


def run(folder: Path, *cells: str | CellTask, limit_s: float = 60.0, keep_going: bool = False) -> NotebookRun:
    tasks = [cell if isinstance(cell, CellTask) else CellTask(number, cell) for number, cell in enumerate(cells, start=1)]
    return run_cells(tasks, kernel="python3", folder=folder, limit_s=limit_s, keep_going=keep_going)


def test_cells_of_one_kernel(tmp_path: Path) -> None:
    """Figures of its own for each cell, the notebook's own names and prompt numbers, and nothing left of it afterwards."""
    names = "sorted(name for name in globals() if 'unchoke' in name.lower() or name in ('Meter', 'watch_cells', 'PATH'))"
    done = run(
        tmp_path,
        f"assert {names} == []\nassert len(In) == 2, In",
        "assert Out == {} and In[1].startswith('assert')",
        "import time\nfrom pathlib import Path\nblock = bytearray(b'1') * 90_000_000",
        "time.sleep(0.3)",
        "print('x' * 1000)",
        "%%capture\n%time time.sleep(0.2)",
        "Path('here').write_text(str(len(block)))",
        "import subprocess\nchild = subprocess.Popen(['sleep', '300'])\nopen('child', 'w').write(str(child.pid))",
        "def f(x):\n    return x['k']",
        "a = 1\nf({})",
        "b = 2",
    )
    assert [cell.error for cell in done.cells.values()][:9] == [""] * 9
    assert [cell.status for cell in done.cells.values()] == ["done"] * 9 + ["failed", "not run"]
    assert (done.cells[10].error, done.cells[10].line) == ("KeyError: 'k'", 2)
    assert done.ended == "cell 10 raised"
    hungry, slow, nested = [done.cells[number].figures for number in (3, 4, 6)]
    assert slow.wall_s is not None
    assert 0.29 < slow.wall_s < 1.3
    assert nested.wall_s is not None
    assert 0.19 < nested.wall_s < 1.0
    assert done.cells[5].output_bytes == 1001
    if hungry.growth_bytes is not None and slow.rise_bytes is not None:
        assert 80_000_000 < hungry.growth_bytes < 130_000_000
        assert slow.rise_bytes < 20_000_000
    assert (tmp_path / "here").read_text() == "90000000"
    stat = Path("/proc", (tmp_path / "child").read_text(), "stat")
    assert not stat.exists() or stat.read_text().split()[2] == "Z"


def test_keep_going_and_expected_failures(tmp_path: Path) -> None:
    kept = run(tmp_path, "1 / 0", "%%time\na = 1\nnone", "import sys; sys.exit(3)", "if True print(1)", "'end'", keep_going=True)
    assert [cell.status for cell in kept.cells.values()] == ["failed"] * 4 + ["done"]
    assert [cell.line for cell in kept.cells.values()] == [1, 3, 1, 1, None]
    assert kept.cells[4].error == "SyntaxError: invalid syntax"
    assert kept.ended == ""
    expected = run(
        tmp_path, CellTask(1, "1 / 0", may_fail=True), CellTask(2, "1 / 0", skip=True), CellTask(3, "  "), CellTask(4, "5")
    )
    assert [cell.status for cell in expected.cells.values()] == ["failed", "skipped", "skipped", "done"]


def test_cells_over_their_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that can be interrupted leaves its names to the next; one that will not stop ends the kernel."""
    monkeypatch.setattr(notebook_kernel, "GRACE_S", 1.0)
    cells = ("a = 41", "import time\ntime.sleep(60)", "assert a == 41", KEEP_HOLD, "2")
    done = run(tmp_path, *cells, limit_s=1.0, keep_going=True)
    assert [cell.status for cell in done.cells.values()] == ["done", "timeout", "done", "timeout", "not run"]
    assert done.cells[2].error == "interrupted after 1 s"
    assert done.cells[2].figures.wall_s is not None
    assert 0.9 < done.cells[2].figures.wall_s < 10
    assert "the kernel was ended" in done.cells[4].error


def test_killed_kernel_tells_its_cell_and_figures(tmp_path: Path) -> None:
    hungry = (
        "import os, signal, time\nblock = bytearray(b'1') * 90_000_000\ntime.sleep(1.2)\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    done = run(tmp_path, "a = 1", hungry, "b = 2", keep_going=True)
    assert [cell.status for cell in done.cells.values()] == ["done", "died", "not run"]
    assert done.ended == "cell 2 ended the kernel"
    assert "memory ran out" in done.cells[2].error
    figures = done.cells[2].figures
    assert figures.wall_s is not None
    assert figures.wall_s > 0.4
    assert figures.rise_bytes is None or figures.rise_bytes > 80_000_000


def test_notebooks_kernel_or_this_interpreter() -> None:
    assert choose_kernel(None, "python3") == ("python3", "")
    assert choose_kernel(None, "") == ("python3", "")
    assert choose_kernel(None, "conda-env-leaves") == (
        "python3",
        "the notebook's kernel 'conda-env-leaves' is not installed here",
    )
    with refused("no-such-kernel", "fortran"):
        choose_kernel("fortran", "python3")


def test_a_run_is_plain_data() -> None:
    record = CellRun("done").to_dict()
    assert record["status"] == "done"
    assert {"wall_s", "cpu_s", "peak_rss_bytes", "growth_bytes", "device_peak_bytes", "output_bytes"} <= set(record)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jupyter_client.kernelspec", None)
    with refused("missing-extra", "pip install 'unchoke[notebook]'"):
        choose_kernel(None, "python3")
