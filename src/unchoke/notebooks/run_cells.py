"""Run a notebook's cells in a fresh kernel, one after the other, each measured.

In come the texts of the cells, the folder to run in and the limits; out comes a `NotebookRun`. The notebook's file is neither
read nor written here. A cell that fails ends the run, unless it is to keep going; a kernel that dies, and Ctrl-C, end it in any
case. What was measured until then is kept.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from unchoke.core.errors import MachineError, UsageError, missing_extra
from unchoke.core.temporary_folders import scratch_folder
from unchoke.notebooks.cell_record import CellFigures, CellRun, CellTask, NotebookRun, Status

_ENDINGS: dict[Status, str] = {
    "failed": "raised",
    "timeout": "ran over its time",
    "died": "ended the kernel",
    "interrupted": "was running when Ctrl-C came",
}
NATIVE = "python3"
GRACE_S = 10.0
_STARTUP_S = 120
_TIDY_S = 2.0
_LOOK_EVERY_S = 0.2
_METER = Path(__file__).with_name("cell_meter.py")
_OUTPUTS = {"stream", "display_data", "execute_result", "update_display_data", "error"}


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
                f"kernel {name!r} runs {language}",
                code="kernel-not-python",
                why="cells of Python are read and run",
                try_=f"--kernel {NATIVE}",
            )
    raise missing_extra("ipykernel", extra="notebook", purpose="running a notebook")


def _no_kernel(name: str, known: Sequence[str]) -> UsageError:
    why = f"installed are {', '.join(known)}" if known else "none is installed"
    return UsageError(f"there is no kernel {name!r}", code="no-such-kernel", why=why, try_="jupyter kernelspec list")


def run_cells(
    tasks: Sequence[CellTask],
    *,
    kernel: str,
    folder: Path,
    limit_s: float,
    keep_going: bool = False,
    on_cell: Callable[[int, CellRun], None] = lambda _number, _run: None,
) -> NotebookRun:
    """Run all cells in order, each for at most `limit_s`. One that fails ends the run, unless it is to keep going."""
    done: dict[int, CellRun] = {}
    ended, interrupted = "", False
    began_s = time.perf_counter()
    with scratch_folder("notebook") as scratch, NotebookKernel(kernel, folder, scratch) as session:
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


class NotebookKernel:
    """A kernel of its own for one run, with its measuring file below `scratch`."""

    def __init__(self, name: str, folder: Path, scratch: Path) -> None:
        self._name, self._folder, self._scratch = name, folder, scratch
        self._measured = scratch / "cells.jsonl"
        self._manager: Any = None
        self._client: Any = None
        self.alive = False

    def __enter__(self) -> NotebookKernel:
        from jupyter_client.manager import KernelManager

        said = self._scratch / "kernel.log"
        self._manager = KernelManager(kernel_name=self._name, shutdown_wait_time=_TIDY_S)
        try:
            with said.open("wb") as log:
                quiet = ["--HistoryManager.hist_file=:memory:"]
                self._manager.start_kernel(
                    extra_arguments=quiet, cwd=str(self._folder), stdout=subprocess.DEVNULL, stderr=log, stdin=subprocess.DEVNULL
                )
            self._client = self._manager.client()
            self._client.start_channels()
            self._client.wait_for_ready(timeout=_STARTUP_S)
            self._inject()
        except (RuntimeError, OSError) as error:
            self.close()
            raise _no_start(self._name, said, error) from None
        except BaseException:
            self.close()
            raise
        self.alive = True
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(at_once=kind is not None or not self.alive)

    def close(self, *, at_once: bool = True) -> None:
        """End the kernel and the processes it started; nothing is left of it. Not `at_once`, it may tidy up first."""
        self.alive = False
        group = getattr(getattr(self._manager, "provisioner", None), "pgid", None)
        if self._manager is not None and self._manager.has_kernel:
            self._manager.shutdown_kernel(now=at_once)
        if self._client is not None:
            self._client.stop_channels()
        if group and group != os.getpgrp():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)

    def _inject(self) -> None:
        """Hand the kernel its meter: one silent expression that leaves no name behind."""
        names = {"__name__": "unchoke_cell", "__doc__": None}
        code = (
            f"exec(compile({_METER.read_text(encoding='utf-8')!r} + '\\nwatch_cells(get_ipython(), PATH)', '<unchoke>', 'exec'), "
        )
        names_text = f"{{**{names!r}, 'PATH': {str(self._measured)!r}, 'get_ipython': get_ipython}})"
        reply = self._client.execute(code + names_text, silent=True, store_history=False, reply=True, timeout=_STARTUP_S)
        if reply["content"]["status"] != "ok":
            content = reply["content"]
            why = f"{content.get('ename')}: {content.get('evalue')}"
            raise MachineError(
                f"cells cannot be measured in kernel {self._name!r}",
                code="kernel-not-measurable",
                why=why,
                try_=f"--kernel {NATIVE}",
            )

    def run(self, task: CellTask, limit_s: float) -> CellRun:
        """One cell, to its end or to `limit_s`."""
        if task.skip or not task.text.strip():
            return CellRun("skipped")
        text = task.text.encode("utf-8", "replace").decode("utf-8")  # half a character cannot be sent
        request = self._client.execute(text, store_history=True, allow_stdin=False, stop_on_error=False)
        answer = _Answer()
        try:
            status = self._wait(request, answer, limit_s)
        except KeyboardInterrupt:
            status = "interrupted"
            answer.error = "stopped on request"
        figures, line = self._figures(request)
        if status == "timeout":
            answer.error = f"interrupted after {limit_s:g} s" + (
                "" if self.alive else "; it did not stop, so the kernel was ended"
            )
        run = CellRun(status, figures, answer.output_bytes, answer.error, line if status == "failed" else None)
        return run if figures.wall_s is not None else replace(run, figures=CellFigures(wall_s=answer.seconds))

    def _wait(self, request: str, answer: _Answer, limit_s: float) -> Status:
        """Read what the kernel says until it is idle again. Over its time it is interrupted, then ended."""
        end_s, over = time.monotonic() + limit_s, False
        while True:
            self._read(request, answer)
            if answer.idle:
                break
            if not self._manager.is_alive():
                self.alive = False
                answer.error = self._last_words()
                return "died"
            if time.monotonic() <= end_s:
                continue
            if over:
                self.close()
                break
            over, end_s = True, end_s + GRACE_S
            self._manager.interrupt_kernel()
        if over:
            return "timeout"
        self._read_reply(request, answer)
        return "failed" if answer.error else "done"

    def _read(self, request: str, answer: _Answer) -> None:
        try:
            message = self._client.get_iopub_msg(timeout=_LOOK_EVERY_S)
        except queue.Empty:
            return
        if message["parent_header"].get("msg_id") == request:
            answer.take(message)

    def _read_reply(self, request: str, answer: _Answer) -> None:
        """The reply knows of errors that are shown nowhere, such as `sys.exit()`."""
        end_s = time.monotonic() + GRACE_S
        while time.monotonic() < end_s:
            try:
                message = self._client.get_shell_msg(timeout=_LOOK_EVERY_S)
            except queue.Empty:
                if not self._manager.is_alive():
                    self.alive = False
                    return
                continue
            if message["parent_header"].get("msg_id") == request:
                content = message["content"]
                if content.get("status") == "error" and not answer.error:
                    answer.error = _one_line(content)
                return

    def _figures(self, request: str) -> tuple[CellFigures, int | None]:
        """The last that the kernel wrote of this cell, and the line at which it failed."""
        known = set(CellFigures.__dataclass_fields__)
        last: dict[str, Any] = {}
        for entry in _entries(self._measured):
            if entry.get("request") == request and last.get("state") != "ended":
                last = entry
        return CellFigures(**{name: value for name, value in last.items() if name in known}), last.get("line")

    def _last_words(self) -> str:
        process = getattr(self._manager.provisioner, "process", None)
        code = process.poll() if process is not None else None
        if code == -9:
            return "the kernel was killed (signal 9), most likely because memory ran out"
        return f"the kernel ended{'' if code is None else f' with code {code}'} while this cell ran"


@dataclass
class _Answer:
    """What the kernel has said so far about one cell."""

    idle: bool = False
    output_bytes: int = 0
    error: str = ""
    began_s: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began_s

    def take(self, message: dict[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind == "status" and content["execution_state"] == "idle":
            self.idle = True
        if kind == "error":
            self.error = _one_line(content)
        if kind in _OUTPUTS:
            self.output_bytes += _size(content)


def _size(content: dict[str, Any]) -> int:
    """Bytes this output would take in the notebook's file, but for the file's own syntax."""
    parts = [content.get("text", ""), *content.get("data", {}).values(), *content.get("traceback", ())]
    return sum(len((part if isinstance(part, str) else json.dumps(part)).encode("utf-8", "replace")) for part in parts)


def _one_line(content: dict[str, Any]) -> str:
    """`ValueError: no`; the file name that a kernel gives a cell says nothing to anybody."""
    name = str(content.get("ename", "error"))
    first = re.sub(r" \(\d+\.py, line \d+\)$", "", str(content.get("evalue", "")).strip()).splitlines()
    return f"{name}: {first[0][:200]}" if first else name


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    """Whole lines alone: a kernel that was killed may have left half of one."""
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def _no_start(name: str, log: Path, error: Exception) -> MachineError:
    said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.is_file() else []
    why = said[-1][:300] if said else str(error)
    return MachineError(
        f"the kernel {name!r} did not start",
        code="kernel-did-not-start",
        why=why,
        try_="pip install 'unchoke[notebook]', or --kernel NAME",
    )
