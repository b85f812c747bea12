"""The record of one watched process: counts and sums by kind and place, facts, notes, and what other modules add.

In come calls from hooks, in any thread; out goes the whole record so far as one line of JSON, every second and at the end, so
that a kill loses a second. Lines go to `<pid>.jsonl` and, once that is large, to `<pid>.next.jsonl` in turn: the other one begins
anew, so that neither grows without end and a kill at any moment leaves a whole line. Nothing is measured here.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from unchoke.chokes.watch import usage
from unchoke.chokes.watch.account import Account
from unchoke.chokes.watch.duty import Duty, EventCosts, measure_costs
from unchoke.chokes.watch.stacks import StackPlace, user_place

SCHEMA = 1
WATCHER = "watcher"
"""The phase of our own threads: what they do is not counted."""

RESTING_KINDS = frozenset({"item", "stat", "to_device"})
"""Calls that are counted only while hooks do not rest (`duty.py`)."""
_FLUSH_EVERY_S = 1.0
_FLUSH_SHARE = 0.004  # a long record is written more seldom: this much of the time at most
_MAX_KEYS = 4_096
_MAX_BYTES = 8_000_000
_sleep, _open = time.sleep, os.open  # ours stay what they were when others are replaced


class _Row:
    """The sums of one kind of call at one place in one phase."""

    __slots__ = ("amount", "count", "detail", "example", "function", "keys", "seconds")

    def __init__(self, function: str) -> None:
        self.function = function
        self.count = 0
        self.seconds = 0.0
        self.amount = 0.0
        self.keys: set[int] = set()
        self.example = ""
        self.detail: dict[str, Any] | None = None


class _Local(threading.local):
    """Each thread's phase; `threads` holds every thread's own attributes, for the sampler to look into."""

    phase = "outside"

    def __init__(self, threads: dict[int, dict[str, Any]]) -> None:
        threads[threading.get_ident()] = self.__dict__


class RecordFiles:
    """The two files of one process, written in turn; to be made anew after a fork. The reader takes the newest line of both."""

    def __init__(self, folder: str, *, max_bytes: int = _MAX_BYTES) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._turn = 0
        self._written_bytes = 0

    def write(self, line: bytes) -> None:
        """Append a line, or begin the other file with it."""
        begins = not self._written_bytes
        if self._written_bytes > self._max_bytes:
            self._turn, self._written_bytes, begins = 1 - self._turn, 0, True
        name = f"{os.getpid()}{('', '.next')[self._turn]}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if begins else os.O_APPEND)
        descriptor = _open(os.path.join(self._folder, name), flags, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
        self._written_bytes += len(line)


class Recorder:
    """What one process did. Without a folder it is kept in memory alone."""

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
        self._threads: dict[int, dict[str, Any]] = {}
        self._local = _Local(self._threads)
        self._snapshots: dict[str, Callable[[], Any]] = {}
        self._after_fork: list[Callable[[], None]] = []
        self._costs: EventCosts | None = None
        self.duty = Duty(self._hooks_s)
        self.duty.may_rest(self)
        self._clear()

    def _clear(self) -> None:
        self.role = "other"
        self.worker_id: int | None = None
        self.device = ""
        self.flush_s = 0.0
        self.num_let_pass = 0
        self.num_fetches = 0
        self.proc = usage.ProcFiles()
        self.account = Account(rss_bytes=self.proc.rss_bytes)
        self._calls: dict[tuple[str, str, str, int], _Row] = {}
        self._facts: dict[str, Any] = {}
        self._notes: dict[str, None] = {}
        self._lock = threading.Lock()
        self._files = RecordFiles(self._folder) if self._folder is not None else None
        self._started_s = time.perf_counter()
        self._started_at = time.time()

    @property
    def phase(self) -> str:
        """What this thread is busy with: outside, getitem, collate, step, evaluate or checkpoint."""
        return self._local.phase

    @phase.setter
    def phase(self, phase: str) -> None:
        self._local.phase = phase

    def phase_of(self, thread_id: int) -> str:
        """What another thread is busy with."""
        return str(self._threads.get(thread_id, {}).get("phase", "outside"))

    def rest(self) -> None:
        """Hooks rest, and so does the account, whichever it is now."""
        self.account.rest()

    def wake(self) -> None:
        self.account.wake()

    @property
    def num_calls(self) -> int:
        """How many events hooks have told so far."""
        return sum(row.count for row in list(self._calls.values())) - self.num_let_pass

    @property
    def elapsed_s(self) -> float:
        return time.perf_counter() - self._started_s

    def call(
        self,
        kind: str,
        seconds: float,
        *,
        amount: float = 0.0,
        key: str | None = None,
        place: StackPlace | None = None,
        detail: dict[str, Any] | None = None,
        times: int = 1,
    ) -> None:
        """One event. `place` None: the nearest line of the user's own code; `key`: what it was about, counted once each.

        `times`: how many events it stands for, itself and others that were let pass; seconds and amount are theirs together.
        """
        phase = self._local.phase
        if phase is WATCHER:
            return
        file, line, function = user_place(2) if place is None else place
        row = self._calls.get((kind, phase, file, line))
        if row is None:
            row = self._calls.setdefault((kind, phase, file, line), _Row(function))
        row.count += times
        row.seconds += seconds
        if amount:
            row.amount += amount
        if key is not None:
            if len(row.keys) < _MAX_KEYS:
                row.keys.add(hash(key))
            if not row.example:
                row.example = str(key)
        if detail is not None:
            row.detail = detail

    def fact(self, name: str, value: Any) -> None:
        """A JSON value; the last one wins."""
        self._facts[name] = value

    def note(self, text: str) -> None:
        """Something the reader must know, once."""
        self._notes[text] = None

    def register(self, name: str, snapshot: Callable[[], Any]) -> None:
        """`snapshot()` gives the value of the field `name` for each line."""
        self._snapshots[name] = snapshot

    def after_fork(self, callback: Callable[[], None]) -> None:
        """Run `callback` in each forked child, after this record was emptied: forget, and start threads again."""
        self._after_fork.append(callback)

    def begin_again(self) -> None:
        """In a forked child: an empty record under its own process id, with the hooks that are in place."""
        self.proc.close()
        phase = self._local.phase
        self._threads = {}
        self._local = _Local(self._threads)
        self._local.phase = phase
        self._clear()
        self.duty.begin_again()
        for callback in self._after_fork:
            try:
                callback()
            except Exception as error:
                self.note(f"after a fork: {type(error).__name__}: {error}")

    def to_dict(self) -> dict[str, Any]:
        """The whole record so far."""
        return {
            "schema": SCHEMA,
            "pid": os.getpid(),
            "parent_pid": os.getppid(),
            "role": self.role,
            "worker_id": self.worker_id,
            "loader": None,
            "argv": list(getattr(sys, "orig_argv", sys.argv)),
            "python": ".".join(map(str, sys.version_info[:3])),
            "device": self.device,
            "cores": usage.num_cores(),
            "memory_bytes": usage.memory_bytes(),
            "started_at": self._started_at,
            "elapsed_s": self.elapsed_s,
            "usage": usage.snapshot(self.proc),
            "calls": self._calls_counted(),
            "torch": None,
            "torch_threads": None,
            **self._snapshots_taken(),
            "facts": dict(self._facts),
            "watcher": {"hooks_s": self._hooks_s(), "flush_s": self.flush_s},
            "notes": list(self._notes),
        }

    def _calls_counted(self) -> list[dict[str, Any]]:
        """One for each place; what was counted only part of the time stands for all of it."""
        factor = self.duty.factor
        found = [_call_dict(key, row) for key, row in list(self._calls.items())]
        for row in found:
            if factor > 1 and row["kind"] in RESTING_KINDS and row["phase"] != "outside":
                row |= {
                    "seconds": row["seconds"] * factor,
                    "amount": row["amount"] * factor,
                    "count": round(row["count"] * factor),
                }
        return found

    def _snapshots_taken(self) -> dict[str, Any]:
        taken: dict[str, Any] = {}
        for name, snapshot in list(self._snapshots.items()):
            try:
                taken[name] = snapshot()
            except Exception as error:
                self.note(f"{name} could not be recorded: {type(error).__name__}: {error}")
        return taken

    def _hooks_s(self) -> float:
        """What hooks have cost so far: how often each kind of them ran, times what one run costs on this machine.

        A batch that is evaluated costs about what a step does.
        """
        if self._costs is None:
            told = Recorder()
            self._costs = measure_costs(lambda: told.call("cost", 0.0, key="cost"), told.proc)
            told.proc.close()
        account = self.account
        steps = max(account.num_watched, account.num_asked)
        return self._costs.of(calls=self.num_calls, steps=steps, fetches=self.num_fetches, within=account.within)

    def flush(self) -> float:
        """Write the record so far; how long that took."""
        if self._files is None:
            return 0.0
        phase, self._local.phase = self._local.phase, WATCHER
        started_s = time.thread_time()
        try:
            with self._lock:
                self._files.write(json.dumps(self.to_dict(), separators=(",", ":"), default=str).encode() + b"\n")
        finally:
            self._local.phase = phase
            took_s = time.thread_time() - started_s
            self.flush_s += took_s
        return took_s


def _call_dict(key: tuple[str, str, str, int], row: _Row) -> dict[str, Any]:
    kind, phase, file, line = key
    found = {"kind": kind, "phase": phase, "file": file, "line": line, "function": row.function, "count": row.count}
    found |= {"seconds": row.seconds, "amount": row.amount, "distinct": len(row.keys), "example": row.example}
    return found if row.detail is None else {**found, "detail": dict(row.detail)}


_current: Recorder | None = None


def begin(folder: str, role: str) -> Recorder:
    """The record of this process, from now on."""
    global _current
    _current = Recorder(folder)
    _current.role = role
    return _current


def current() -> Recorder:
    """The record of this process; one that is kept nowhere, if it is not watched."""
    global _current
    if _current is None:
        _current = Recorder()
    return _current


def note(text: str) -> None:
    """A note for the record of this process, if there is one."""
    if _current is not None:
        _current.note(text)


def run(recorder: Recorder) -> None:
    """Write the record every second from now on, at exit, and in each forked child."""

    def start_thread() -> None:
        threading.Thread(target=_keep_flushing, args=(recorder,), name="unchoke-record", daemon=True).start()

    start_thread()
    atexit.register(_last_flush, recorder)
    recorder.after_fork(start_thread)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=recorder.begin_again)


def _last_flush(recorder: Recorder) -> None:
    try:
        recorder.flush()
    except OSError as error:
        recorder.note(f"the record could not be written: {error}")


def _keep_flushing(recorder: Recorder) -> None:
    recorder.phase = WATCHER
    pause_s = _FLUSH_EVERY_S
    while True:
        _sleep(pause_s)
        try:
            took_s = recorder.flush()
        except (OSError, RuntimeError) as error:  # no room, or the script changed a list under our eyes: try again
            recorder.note(f"the record could not be written: {error}")
            took_s = 0.0
        pause_s = max(_FLUSH_EVERY_S, took_s / _FLUSH_SHARE)
