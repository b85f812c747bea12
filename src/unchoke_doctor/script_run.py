"""Running somebody else's command under the watcher, and again in a sandbox: processes, signals, environment.

In comes a command, out come its exit code, its seconds and a folder of records. The command's own streams pass through
untouched; a request to stop reaches it once, and what was recorded so far is kept. A replay (on one batch) and trials (with a
remedy switched on) write to a scratch folder and to a log file alone.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from unchoke_doctor import watch
from unchoke_doctor.errors import UsageError
from unchoke_doctor.recording import Recording, Replay, read_records
from unchoke_doctor.watch import rerun, stepping

REPLAY_STEPS = 20
_STDERR = 2
_INJECT = Path(watch.__file__).parent / "inject"
_ASIDE_SLOWER, _ASIDE_LONGEST_S = 3.0, 60.0
_OTHERS_STAY_SILENT = {
    "WANDB_MODE": "disabled",
    "COMET_MODE": "DISABLED",
    "NEPTUNE_MODE": "debug",
    "MLFLOW_DISABLE_TELEMETRY": "1",
}


@dataclass(frozen=True)
class CommandEnd:
    """How a command ended; `exit_code` as a shell would say it: 128 and the signal's number for a killed one."""

    exit_code: int
    wall_s: float


def run_watched(
    command: Sequence[str],
    records: Path,
    *,
    steps: int | None = None,
    seconds: float | None = None,
    stdout_to_stderr: bool = False,
    **started: Any,
) -> CommandEnd:
    """Run `command` to its end, every Python process of it leaving a record in `records`. `started`: options of Popen."""
    limits = {stepping.STEPS: steps, stepping.SECONDS: seconds}
    asked = {name: str(value) for name, value in limits.items() if value is not None}
    options: dict[str, Any] = {"stdout": _STDERR if stdout_to_stderr else None, **started}
    options["env"] = _environment(records, {**asked, **(started.get("env") or {})})
    # In a terminal the command stays in our group, so that it can read the keyboard and Ctrl-C reaches it directly.
    # Elsewhere it gets a group of its own: a signal to ours reaches us alone, and is handed on once.
    own_group = not _has_terminal()
    began_s = time.perf_counter()
    try:
        process = subprocess.Popen(command, process_group=0 if own_group else None, **options)
    except (FileNotFoundError, PermissionError) as error:
        script = f"python {command[0]}" if command[0].endswith(".py") else "python train.py"
        why = "there is no such program" if isinstance(error, FileNotFoundError) else "it is no program that may be run"
        raise UsageError(
            f"cannot run {command[0]!r}", code="command-not-runnable", why=why, try_=f"unchoke profile -- {script}"
        ) from None
    with _signals_passed_to(process, own_group=own_group):
        code = process.wait()
    return CommandEnd(128 - code if code < 0 else code, time.perf_counter() - began_s)


@contextmanager
def _signals_passed_to(process: subprocess.Popen[bytes], *, own_group: bool) -> Iterator[None]:
    """While the command runs, a request to stop is handed on and we wait for its end."""

    def hand_on(number: int, _frame: FrameType | None) -> None:
        if number != signal.SIGINT or own_group:  # a Ctrl-C in a terminal has reached it already
            process.send_signal(number)

    if threading.current_thread() is not threading.main_thread():  # only the main one may ask for signals
        yield
        return
    before = {number: signal.signal(number, hand_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _has_terminal() -> bool:
    """Whether a terminal's Ctrl-C goes to our whole group."""
    try:
        return os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()
    except (OSError, AttributeError):
        return False


def replay(recording: Recording, folder: Path) -> Replay:
    """Run the recorded command again, each loader that was trained on repeating its first batch; seconds of such a step."""
    numbers = [loader.number for loader in recording.trained_loaders]
    whole = REPLAY_STEPS if recording.facts.get("stopped") else len(recording.steps) - rerun.WARM_UP_STEPS
    steps = max(1, min(REPLAY_STEPS, whole))
    asked = {rerun.REPLAY: str(steps), rerun.LOADERS: ",".join(map(str, numbers))}
    try:
        records, why = run_aside(recording, folder, "replay", asked)
    except KeyboardInterrupt:  # what was recorded before is still to be shown
        return Replay(note="it was interrupted")
    for record in records:
        found = (record.get("facts") or {}).get("replay")
        if found:
            return Replay(step_s=found["step_s"], steps=found["steps"], loader=numbers[0], note="; ".join(record["notes"]))
    return Replay(note=why)


def run_aside(recording: Recording, folder: Path, name: str, more: Mapping[str, str]) -> tuple[list[dict[str, Any]], str]:
    """Run the recorded command once more, its files protected and its output in a log, with `more` in its environment.

    Gives the records, and what to say if they hold nothing.
    """
    records, scratch, log_file = folder / name, folder / f"{name}_scratch", folder / f"{name}.log"
    for made in (records, scratch / "tmp"):
        made.mkdir(parents=True)
    aside = {**more, watch.SCRATCH: str(scratch), "TMPDIR": str(scratch / "tmp"), **_OTHERS_STAY_SILENT}
    limit_s = _ASIDE_LONGEST_S + _ASIDE_SLOWER * recording.wall_s
    try:
        with log_file.open("wb") as log:
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            subprocess.run(recording.command, env=_environment(records, aside), timeout=limit_s, check=False, **streams)
    except subprocess.TimeoutExpired:
        return [], f"it had not reached enough steps after {limit_s:.0f} s"
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    lines = log_file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last_words = f"; it ended with: {lines[-1][:160]}" if lines else ""
    return read_records(records), f"the script did not come to train again{last_words}"


def _environment(records: Path, asked: Mapping[str, str]) -> dict[str, str]:
    before = asked.get("PYTHONPATH", os.environ.get("PYTHONPATH"))
    path = os.pathsep.join([str(_INJECT), *([before] if before else [])])
    return {**os.environ, **asked, "PYTHONPATH": path, watch.FOLDER: str(records), watch.PARENT: str(os.getpid())}
