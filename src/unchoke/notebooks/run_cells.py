"""Run a notebook's cells in a fresh kernel, one after the other, each measured.

In come the texts of the cells, the folder to run in and the limits; out comes a `NotebookRun`. The notebook's file is neither
read nor written here. A cell that fails ends the run, unless it is to keep going; a kernel that dies, and Ctrl-C, end it in any
case. What was measured until then is kept.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from unchoke.core.errors import UsageError, missing_extra
from unchoke.notebooks.cell_record import CellRun, NotebookRun, Status, Task
from unchoke.notebooks.kernel import NATIVE, Kernel

_ENDINGS: dict[Status, str] = {
    "failed": "raised",
    "timeout": "ran over its time",
    "died": "ended the kernel",
    "interrupted": "was running when Ctrl-C came",
}


def choose_kernel(asked: str | None, named: str) -> tuple[str, str]:
    """The kernel to run (asked for, the notebook's own, or this interpreter's), and why it is not the notebook's."""
    try:
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
    except ImportError:
        raise missing_extra("jupyter_client", extra="notebook", purpose="running a notebook") from None
    manager = KernelSpecManager()
    for name in (asked, named or None, NATIVE):
        if name is None:
            continue
        try:
            language = manager.get_kernel_spec(name).language
        except NoSuchKernel:
            if name == asked:
                raise _no_kernel(name, sorted(manager.find_kernel_specs())) from None
            continue
        if "python" in (language or "python").lower():
            return name, f"the notebook's kernel {named!r} is not installed here" if named not in ("", name, asked) else ""
        if name == asked:
            raise UsageError(
                f"kernel {name!r} runs {language}", why="cells of Python are read and run", try_=f"--kernel {NATIVE}"
            )
    raise missing_extra("ipykernel", extra="notebook", purpose="running a notebook")


def _no_kernel(name: str, known: Sequence[str]) -> UsageError:
    why = f"installed are {', '.join(known)}" if known else "none is installed"
    return UsageError(f"there is no kernel {name!r}", why=why, try_="jupyter kernelspec list")


def run_cells(
    tasks: Sequence[Task],
    *,
    kernel: str,
    folder: Path,
    limit_s: float,
    keep_going: bool = False,
    on_cell: Callable[[int, CellRun], None] = lambda number, run: None,
) -> NotebookRun:
    """Run all cells in order, each for at most `limit_s`. One that fails ends the run, unless it is to keep going."""
    done: dict[int, CellRun] = {}
    ended, interrupted = "", False
    began_s = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="unchoke-") as name, Kernel(kernel, folder, Path(name)) as session:
        for task in tasks:
            run = session.run(task, limit_s)
            done[task.number] = run
            on_cell(task.number, run)
            interrupted = run.status == "interrupted"
            if interrupted or not session.alive or not (keep_going or task.may_fail or run.status in ("done", "skipped")):
                ended = f"cell {task.number} {_ENDINGS.get(run.status, 'ended the kernel')}"
                break
    rest = {task.number: CellRun("not run") for task in tasks if task.number not in done}
    reached_end = not rest and not interrupted
    return NotebookRun(kernel, {**done, **rest}, time.perf_counter() - began_s, "" if reached_end else ended, interrupted)
