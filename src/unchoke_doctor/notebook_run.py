"""Running a notebook or script in a process of its own, cell by cell, and what that measured. The file itself is never written.

In come a path and limits, out comes a `NotebookRun`. The process (`watch/run_cells.py`) runs under the watcher of `profile` and
writes a JSON line per cell, so that nothing measured is lost when it is killed. With `steps` it runs in a scratch copy of the
notebook's folder, with stand-ins for what is missing (`watch/stand_ins.py`).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from unchoke_doctor.code.source import SourceFile
from unchoke_doctor.errors import MachineError, UsageError
from unchoke_doctor.units import format_count

Say = Callable[[str], None]
GRACE_S = 10.0
"""How long a cell that was interrupted may take to stop before the process is ended."""
FAILED = ("failed", "timeout", "died")
_ENDINGS = {
    "failed": "raised", "timeout": "ran over its time", "died": "ended the process", "interrupted": "was running at Ctrl-C",
}  # fmt: skip
_PACKAGE = Path(__file__).parent
_COPIED_BYTES = 1_000_000
_MOST_ENTRIES = 20_000
_LONG_S = 0.5
_LEFT_OUT = frozenset({".git", "__pycache__", ".ipynb_checkpoints", "node_modules", "unchoke-out", "wandb", "mlruns"})
_ALONE = {
    "WANDB_MODE": "disabled", "COMET_MODE": "DISABLED", "NEPTUNE_MODE": "debug", "MLFLOW_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1",
}  # fmt: skip


@dataclass(frozen=True)
class CellRun:
    """How one cell ended and what it cost; `figures` as `run_cells.Meter` gives them, empty where it did not get that far."""

    status: str
    error: str = ""
    line: int | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ran(self) -> bool:
        return self.status not in ("skipped", "not run")

    @property
    def wall_s(self) -> float:
        return float(self.figures.get("wall_s") or 0.0)

    def to_dict(self) -> dict[str, Any]:
        return {"status": self.status, "error": self.error, "line": self.line, **self.figures}


@dataclass(frozen=True)
class NotebookRun:
    """Every cell's run by its number. `ended` says why the run did not reach its end; `stood_in`: what was a stand-in."""

    kernel: str
    cells: dict[int, CellRun]
    wall_s: float
    ended: str = ""
    interrupted: bool = False
    notes: tuple[str, ...] = ()
    stood_in: frozenset[str] = frozenset()
    may_fail: frozenset[int] = frozenset()
    """Cells tagged `raises-exception`."""
    recordings: Mapping[int, Any] = field(default_factory=dict)


def run_notebook(
    source: SourceFile,
    *,
    steps: int | None = None,
    timeout_s: float = 600.0,
    keep_going: bool = False,
    cwd: Path | None = None,
    kernel: str | None = None,
    say: Say = lambda _: None,
) -> NotebookRun:
    """Run the code cells in order, each for at most `timeout_s`; a script is the one cell 0."""
    path = Path(source.path)
    cells = [cell.number or 0 for cell in source.cells if cell.kind == "code"]
    folder = (cwd or path.absolute().parent).absolute()
    if not folder.is_dir():
        why = "cells run in it"
        raise UsageError(f"{folder} is not a folder", code="not-a-folder", why=why, try_=f"unchoke notebook {path} --run")
    name, python, note = choose_kernel(kernel, source.kernel)
    tagged = {tag: [cell.number for cell in source.cells if tag in cell.tags] for tag in ("skip-execution", "raises-exception")}
    with tempfile.TemporaryDirectory(prefix="unchoke-", ignore_cleanup_errors=True) as made:
        scratch = Path(os.path.realpath(made))
        work = folder
        if steps is not None:
            work = scratch / "work"
            mirror(folder, work, without=scratch)
        job: dict[str, Any] = {
            "read": str(path.absolute()), "shown": str(path.absolute()), "results": str(scratch / "cells.jsonl"),
            "records": str(scratch / "records"), "steps": steps, "timeout_s": timeout_s, "keep_going": keep_going,
            "skip": tagged["skip-execution"], "may_fail": tagged["raises-exception"],
            "scratch": str(scratch) if steps is not None else "", "folder": str(folder), "work": str(work),
        }  # fmt: skip
        (scratch / "job.json").write_text(json.dumps(job), encoding="utf-8")
        where = "a scratch copy of " if steps is not None else ""
        limit = f"{steps} optimizer steps each where they train" if steps else f"each for at most {timeout_s:g} s"
        say(f"runs {format_count(len(cells), 'cell')} with {python} in {where}{folder}, {limit}")
        began_s = time.perf_counter()
        process = _Process(python, work, scratch, job, alone=steps is not None)
        interrupted = process.follow(set(job["may_fail"]), say)
        run = _gather(name, cells, process.lines, began_s, interrupted)
        run = replace(run, may_fail=frozenset(job["may_fail"]))
        return _with_recordings(run, scratch / "records", note)


def _with_recordings(run: NotebookRun, records: Path, note: str) -> NotebookRun:
    """What the watcher recorded of each cell that trained, or that took long enough to tell where its time went."""
    from unchoke_doctor.recording import load_recording

    found = {}
    for number, cell in run.cells.items():
        folder = records / f"cell{number}"
        if folder.is_dir() and (cell.figures.get("steps") or cell.wall_s >= _LONG_S):
            found[number] = load_recording(folder, command=(), exit_code=0, wall_s=cell.wall_s)
    return replace(run, recordings=found, notes=(*([note] if note else []), *run.notes))


class _Process:
    """The process that runs the cells, and the lines it wrote so far."""

    def __init__(self, python: str, work: Path, scratch: Path, job: Mapping[str, Any], *, alone: bool) -> None:
        self._job, self._log = job, scratch / "output.log"
        self._results = Path(job["results"])
        self._results.touch()
        self.lines: list[dict[str, Any]] = []
        (scratch / "tmp").mkdir()
        inject = str(_PACKAGE / "watch" / "inject")
        path = os.pathsep.join(filter(None, (inject, os.environ.get("PYTHONPATH"))))
        watched = {"PYTHONPATH": path, "UNCHOKE_WATCH_DIR": str(scratch / "records"), "UNCHOKE_WATCH_PARENT": str(os.getpid())}
        (scratch / "records").mkdir()
        apart = {**_ALONE, "TMPDIR": str(scratch / "tmp"), "MPLCONFIGDIR": str(scratch / "tmp")} if alone else {}
        command = [python, str(_PACKAGE / "watch" / "run_cells.py"), str(scratch / "job.json")]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=work, env={**os.environ, "MPLBACKEND": "Agg", **watched, **apart}, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def follow(self, may_fail: set[int], say: Say) -> bool:
        """Wait for its end and say how each cell ended; whether it was interrupted. Over its time, it is ended."""
        interrupted = False
        with self._results.open(encoding="utf-8") as results, _termination_as_interrupt():
            try:
                while self._process.poll() is None:
                    self._read(results, may_fail, say)
                    running = self.lines[-1] if self.lines and self.lines[-1].get("status") == "begun" else None
                    if running and time.time() - running["at"] > self._job["timeout_s"] + GRACE_S:
                        self.lines.append(
                            {"cell": running["cell"], "status": "timeout", "error": "it did not stop and was ended"}
                        )
                        break
                    with suppress(subprocess.TimeoutExpired):
                        self._process.wait(0.05)
            except KeyboardInterrupt:
                interrupted = True
                with suppress(ProcessLookupError, subprocess.TimeoutExpired, KeyboardInterrupt):
                    self._process.send_signal(signal.SIGINT)
                    self._process.wait(GRACE_S / 2)
            finally:
                self._end()
            self._read(results, may_fail, say)
        last: dict[str, Any] = self.lines[-1] if self.lines else {"cell": 0, "status": "begun", "at": time.time()}
        if not self.lines and not interrupted:
            raise self._no_start()
        if last.get("status") == "begun":
            spent = {"wall_s": time.time() - last["at"]}
            status = "interrupted" if interrupted else "died"
            self.lines.append({"cell": last["cell"], "status": status, "error": self._last_words(), **spent})
        return interrupted

    def _read(self, results: Any, may_fail: set[int], say: Say) -> None:
        for line in iter(results.readline, ""):
            if not line.endswith("\n"):  # cut by a kill
                return
            self.lines.append(json.loads(line))
            last = self.lines[-1]
            if last.get("status") in FAILED and last["cell"] not in may_fail:
                say(f"cell {last['cell']}: {last['error']}" if last["cell"] else str(last["error"]))

    def _end(self) -> None:
        """End the process and all that it started."""
        if hasattr(os, "killpg"):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait()

    def _last_words(self) -> str:
        code = self._process.returncode
        if code == -9:
            return "the process was killed (signal 9), most likely because memory ran out"
        return f"the process ended with code {code} while this cell ran"

    def _no_start(self) -> MachineError:
        said = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        why = said[-1][:300] if said else f"it ended with code {self._process.returncode}"
        what = f"cells cannot be run with {self._process.args[0]}"  # type: ignore[index,str-bytes-safe]
        return MachineError(what, code="kernel-did-not-start", why=why, try_="--kernel NAME, of a Python 3.11 or newer")


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """Let a request to end us end the cells as well: they are in a group of their own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _gather(
    name: str, cells: Sequence[int], lines: Sequence[Mapping[str, Any]], began_s: float, interrupted: bool
) -> NotebookRun:
    done: dict[int, CellRun] = {}
    for line in lines:
        if "cell" in line and line["status"] != "begun":
            figures = {key: value for key, value in line.items() if key not in ("cell", "status", "error", "line", "at")}
            done[line["cell"]] = CellRun(line["status"], line.get("error", ""), line.get("line"), figures)
    rest = [number for number in cells if number not in done]
    last = max(done, default=None)
    ended = f"cell {last} {_ENDINGS.get(done[last].status, 'ended the process')}" if last is not None and rest else ""
    done |= {number: CellRun("not run") for number in rest}
    notes = tuple(dict.fromkeys(str(line["note"]) for line in lines if "note" in line))
    stood_in = frozenset(str(line["stand_in"]) for line in lines if "stand_in" in line)
    return NotebookRun(name, done, time.perf_counter() - began_s, ended, interrupted, notes, stood_in)


def choose_kernel(asked: str | None, named: str) -> tuple[str, str, str]:
    """A kernel's name, its interpreter, and a note where that is not the notebook's own kernel."""
    known = dict(_kernels())
    if asked is not None and asked not in known:
        why = f"installed are {', '.join(sorted(known))}" if known else "none is installed"
        raise UsageError(f"there is no kernel {asked!r}", code="no-such-kernel", why=why, try_="jupyter kernelspec list")
    name = asked or (named if named in known else "")
    if not name:
        note = f"the notebook's kernel {named!r} is not installed here: run with {sys.executable}" if named else ""
        return "python3", sys.executable, "" if named == "python3" else note
    spec = known[name]
    if "python" not in str(spec.get("language", "python")).lower():
        if asked is None:
            return "python3", sys.executable, f"the notebook's kernel {named!r} is not Python: run with {sys.executable}"
        why = "cells of Python are read and run"
        raise UsageError(f"kernel {name!r} runs {spec['language']}", code="kernel-not-python", why=why, try_="--kernel python3")
    return name, _interpreter(name, spec), ""


def _interpreter(name: str, spec: Mapping[str, Any]) -> str:
    first = str((spec.get("argv") or [sys.executable])[0])
    if first in ("python", "python3") and spec["folder"].is_relative_to(sys.prefix):
        return sys.executable  # a spec that came with this interpreter names it by its short name
    found = shutil.which(first)
    if found is None:
        why = f"its kernel.json names {first}"
        raise MachineError(f"kernel {name!r} has no interpreter", code="kernel-did-not-start", why=why, try_="--kernel python3")
    return found


def _kernels() -> Iterator[tuple[str, dict[str, Any]]]:
    """Kernel specifications in Jupyter's data folders; of two with one name the first folder's counts, as for Jupyter."""
    home = Path.home()
    folders = [*os.environ.get("JUPYTER_PATH", "").split(os.pathsep), os.environ.get("JUPYTER_DATA_DIR", "")]
    folders += [str(home / ".local/share/jupyter"), str(home / "Library/Jupyter"), f"{os.environ.get('APPDATA', '')}/jupyter"]
    folders += [f"{sys.prefix}/share/jupyter", "/usr/local/share/jupyter", "/usr/share/jupyter"]
    for folder in reversed([Path(folder) for folder in folders if folder]):
        for file in sorted(folder.glob("kernels/*/kernel.json")):
            try:
                spec = json.loads(file.read_text(encoding="utf-8"))
            except (OSError, ValueError):  # a broken specification is none
                continue
            yield file.parent.name, {**spec, "folder": file.parent}


def mirror(folder: Path, target: Path, *, without: Path | None = None) -> None:
    """A copy of a folder to work in: small files are copied, large ones and very full folders are links."""
    left = _MOST_ENTRIES
    target.mkdir(parents=True)
    todo = [(folder, target)]
    while todo:
        source, copy = todo.pop()
        entries = [entry for entry in os.scandir(source) if entry.name not in _LEFT_OUT and entry.path != str(without)]
        for entry in entries:
            place, left = copy / entry.name, left - 1
            if entry.is_dir(follow_symlinks=False) and left > 0 and not (Path(entry.path) / "pyvenv.cfg").exists():
                place.mkdir()
                todo.append((Path(entry.path), place))
            elif entry.is_file() and entry.stat().st_size <= _COPIED_BYTES and left > 0:
                shutil.copy2(entry.path, place)
            elif entry.is_file() or entry.is_dir():
                place.symlink_to(os.path.realpath(entry.path))
