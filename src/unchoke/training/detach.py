"""A command that goes on when its terminal or notebook is closed, and following it from anywhere.

In: a command with its options. Out: a process in a session of its own, which writes what it says to `logs/` of the workspace: one
JSON line for each event, the last one its result (`.jsonl`), whatever went to stderr (`.log`), and which process it is (`.json`).
Watching reads those files and looks whether the process is there; it never touches the run.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from unchoke.core import atomic, checksums, listing
from unchoke.core.errors import DataError, Interrupted, MachineError, UnchokeError, UsageError
from unchoke.core.events import OnEvent
from unchoke.core.input_file import parse_json
from unchoke.core.record import Interval, RunRecord
from unchoke.core.remembered import resolve_settings
from unchoke.core.remote import locate
from unchoke.core.settings import typed_options
from unchoke.core.workspace import DEFAULT_ROOT, Workspace, out_option
from unchoke.data.scan import refuse_missing
from unchoke.runs.report.json import load_record, parse_event
from unchoke.runs.report.text import render_fit_result
from unchoke.runs.session import default_listener, refuse_inside_data, refuse_missing_weights
from unchoke.training.results import FitResult

COMMANDS = ("fit", "train")
_STARTED = ".json"
_POLL_S = 0.2
_SETTLE_S = 6.0
_SAME_PROCESS_S = 5.0
_ERRORS: dict[int, type[UnchokeError]] = {kind.exit_code: kind for kind in (DataError, UsageError, MachineError, Interrupted)}


@dataclass(frozen=True)
class BackgroundRun:
    """A command in the background: the words that started it, its process, and where it writes."""

    command: str
    """The words that started it."""
    pid: int
    """The number of its process."""
    created_s: float
    """When the process began, in seconds since 1970."""
    log: Path
    """Where it writes its events, one JSON line each."""
    workspace: Path
    """The folder it belongs to."""

    @property
    def stderr(self) -> Path:
        """Where it writes everything else."""
        return self.log.with_suffix(".log")

    @property
    def alive(self) -> bool:
        """Whether that very process is there: a number may have gone to another one since."""
        import psutil

        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.created_s) < _SAME_PROCESS_S
            return same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    def to_dict(self) -> dict[str, Any]:
        return {"detached": True, "stderr": str(self.stderr), **asdict(self), "watch": self._watch}

    def to_text(self) -> str:
        stop = f"kill {self.pid}" if os.name == "posix" else f"taskkill /PID {self.pid}"
        lines = [
            f"process {self.pid} works in the background; this terminal may be closed",
            f"log       {self.log}",
            f"stop      {stop}   (it can go on from there later)",
            f"next      {self._watch}",
        ]
        return "\n".join(lines)

    @property
    def _watch(self) -> str:
        return f"unchoke runs watch{out_option(self.workspace)}"


@dataclass(frozen=True)
class BackgroundResult:
    """How a detached command ended."""

    ok: bool
    """Whether it ended well."""
    result: dict[str, Any]
    """What it ended with, as `--json` shows it."""
    workspace: Path
    """The folder it belongs to."""

    @property
    def exit_code(self) -> int:
        """What the command exits with."""
        return 0 if self.ok else 1

    def to_dict(self) -> dict[str, Any]:
        return self.result

    def to_text(self) -> str:
        """The text the command would have ended with in the foreground, from the run's record where there is one."""
        run, already_done = str(self.result.get("run", "")), bool(self.result.get("already_done"))
        file = Workspace(self.workspace).run_folder(run) / "record.json"
        if run and file.is_file():
            return FitResult(load_record(file), self.workspace, already_done).to_text()
        files = self.result.get("reports") or [self.result.get("report") or ""]
        limits = self.result.get("intervals", {})
        metrics = {
            split: {name: Interval(value, *(limits.get(split, {}).get(name) or ())) for name, value in found.items()}
            for split, found in self.result.get("metrics", {}).items()
        }
        record = RunRecord(run=run, metrics=metrics, timings=self.result.get("timings", {}))
        return render_fit_result(record, report=", ".join(files))


def detach(
    command: Literal["fit", "train"], data: str | Path | None = None, *, out: str | Path | None = None, **options: Any
) -> BackgroundRun:
    """Start `fit` or `train` in the background: it goes on when this terminal or notebook is closed. `watch_run` follows it.

    Args:
        command: Which of the two. What is wrong from the start is raised here.
        data: Class folders, or a CSV or Parquet table. Left out, what this workspace was made for.
        out: Workspace folder (default unchoke-out).

    Returns:
        The process, and where it writes what it says.

    Example:
        >>> started = unchoke.detach("train", out="work", head="mlp", epochs=2)
        >>> unchoke.watch_run(out="work").ok
        True
    """
    import psutil

    if command not in COMMANDS:
        raise UsageError(
            f"{command!r} cannot be detached",
            code="cannot-detach",
            why=f"only {' and '.join(COMMANDS)} take long",
            try_="detach('fit', DATA)",
        )
    workspace = Workspace(Path(out) if out is not None else DEFAULT_ROOT)
    typed = {"data": data, **options}
    settings = resolve_settings(workspace, typed)[0]
    refuse_inside_data(workspace, settings)
    refuse_missing(locate(settings.data))
    refuse_missing_weights(options.get("weights"))
    absent = workspace.absent_folders()
    with workspace.own():
        workspace.logs.mkdir(parents=True, exist_ok=True)
        log = workspace.logs / f"{datetime.now(UTC).strftime('%Y%m%dT%H%M%S.%f')}-{command}.jsonl"  # names sort by time
        log.touch(exist_ok=False)
    words = [command, *typed_options(typed), *([] if out is None else ["--out", os.fspath(out)])]
    process = _start([*words, "--json"], log)
    created_s = time.time()
    with suppress(psutil.Error):  # it may be gone already
        created_s = float(psutil.Process(process.pid).create_time())
    detached = BackgroundRun(shlex.join(["unchoke", *words]), process.pid, created_s, log, workspace.root)
    started = {"command": detached.command, "pid": process.pid, "created_s": created_s}
    atomic.write_json(log.with_suffix(".json"), started)
    settled_at = time.monotonic() + _SETTLE_S
    try:  # a mistake in the command is an error here and not a line in a file
        for _, found in _follow(detached, until=lambda: time.monotonic() > settled_at):
            if "ok" in found or found.get("event") == "stage_done":
                break
    except UsageError:  # nothing stays of a command that could not begin
        for file in (log, detached.stderr, log.with_suffix(".json")):
            file.unlink(missing_ok=True)
        with suppress(OSError):  # logs of other commands are there
            workspace.logs.rmdir()
        workspace.leave_nothing(absent)
        raise
    return detached


def _start(words: list[str], log: Path) -> subprocess.Popen[bytes]:
    """The same command as a process that no terminal and no parent takes along: a session of its own, nothing to read from.

    `-P` keeps the current folder off the import path, as it is for the `unchoke` script.
    """
    apart: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        apart = {"creationflags": subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP}
    with log.open("ab") as lines, log.with_suffix(".log").open("ab") as errors:
        command = [sys.executable, "-P", "-m", "unchoke", *words]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=lines, stderr=errors, **apart)
    threading.Thread(target=process.wait, daemon=True).start()  # or a notebook would keep it as a zombie
    return process


def find_detached(workspace: Workspace) -> BackgroundRun:
    """The command that was detached last in this workspace."""
    started = listing.names(workspace.logs, suffix=_STARTED)
    if not started:
        raise UsageError(
            f"nothing was detached in {workspace.root}",
            code="nothing-detached",
            why=f"there is no log in {workspace.logs}",
            try_="unchoke fit DATA --detach, or name the folder with --out",
        )
    file = workspace.logs / started[-1]
    logs = f"read {file.with_suffix('.jsonl')}, which holds what the command said, or start it again"
    with checksums.making_sense(file, try_=logs):
        told = checksums.load_checked_json(file, try_=logs)
        return BackgroundRun(
            str(told["command"]), int(told["pid"]), float(told["created_s"]), file.with_suffix(".jsonl"), workspace.root
        )


def watch_run(
    *, out: str | Path | None = None, on_event: OnEvent | None = None, on_line: Callable[[str], None] | None = None
) -> BackgroundResult:
    """Follow the newest detached command to its end, or tell how it ended; its error is raised as if it had run here.

    Interrupting stops the watching, not the run.

    Args:
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.
        on_line: Called with the lines as they were written, in the place of `on_event`.

    Returns:
        The result the command would have ended with.

    Example:
        >>> started = unchoke.detach("fit", "photos/", out="work", head="linear", epochs=3)
        >>> unchoke.watch_run(out="work").result["run"]
        'exp_2'
    """
    detached = find_detached(Workspace(Path(out) if out is not None else DEFAULT_ROOT))
    listener = on_event or default_listener()
    try:
        for line, found in _follow(detached):
            if "ok" in found:
                return BackgroundResult(bool(found["ok"]), dict(found["result"]), detached.workspace)
            event = parse_event(found)
            if on_line is not None and found:
                on_line(line)
            elif event is not None:
                listener(event)
    except KeyboardInterrupt:
        raise Interrupted(
            "no longer watching, on request",
            code="interrupted",
            why=f"the run itself goes on as process {detached.pid}",
            try_=f"unchoke runs watch{out_option(detached.workspace)}",
        ) from None
    try:
        lines = detached.stderr.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        lines = []
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    raise Interrupted(
        f"process {detached.pid} is gone without a result",
        code="detached-run-gone",
        why="it was ended from outside, by a kill, a lack of memory or a restart" + (f"; its last line: {last}" if last else ""),
        try_=f"{detached.command} --detach, which goes on from where it was",
    )


def _follow(detached: BackgroundRun, *, until: Callable[[], bool] = lambda: False) -> Iterator[tuple[str, dict[str, Any]]]:
    """Whole lines as they are written, until the process is gone and everything is read; what a library printed holds nothing.
    The error that a line tells of is raised.
    """
    rest = ""
    with detached.log.open(encoding="utf-8", errors="replace") as file:
        while not until():
            alive = detached.alive
            text = file.read()  # after the look at the process: what it wrote last is there by now
            *lines, rest = (rest + text).split("\n")
            for line in lines:
                found = _parsed(line)
                if "ok" in found and "error" in found:
                    raise _told_error(found["error"], detached)
                yield line, found
            if not text:
                if not alive:
                    return
                time.sleep(_POLL_S)


def _parsed(line: str) -> dict[str, Any]:
    """A line of ours as a dictionary; anything a library printed is nothing."""
    try:
        found = parse_json(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) and "schema" in found else {}


def _told_error(told: dict[str, Any], detached: BackgroundRun) -> UnchokeError:
    exit_code = int(told.get("exit_code", 1))
    kind = _ERRORS.get(exit_code, UnchokeError)
    why = str(told["why"]) if exit_code in _ERRORS else f"{told['why']}; the traceback is in {detached.stderr}"
    error = kind(str(told["what"]), code=str(told.get("code", "bug")), why=why, try_=str(told["try"]))
    error.exit_code = exit_code
    return error
