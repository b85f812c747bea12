"""The record of one watched process: counts and sums by kind and place, facts, notes, and what other modules add.

In come calls from hooks, in any thread; out goes the whole record so far as one line of JSON, every second and at the end, so
that a kill loses a second. Lines go to `<pid>.jsonl` and `<pid>.next.jsonl` in turn, each of which holds one line: a kill at
any moment leaves a whole line in the other one.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from unchoke_doctor.watch import PARENT, SCRATCH, usage
from unchoke_doctor.watch.account import Account, Iteration
from unchoke_doctor.watch.stacks import user_place

WATCHER = "watcher"
"""The phase of our own threads: what they do is not counted."""
_FLUSH_EVERY_S = 1.0
_FLUSH_SHARE = 0.004  # a long record is written more seldom: this much of the time at most
_MAX_KEYS = 4_096
_COLD = 4.0  # a hook in a script runs with cold caches and a function around it: measured against a tight loop
_ROUNDS = 50
_sleep, _open = time.sleep, os.open  # ours stay what they were when others are replaced


class _Calls:
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


class Recorder:
    """What one process did. Without a folder it is kept in memory alone."""

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
        self._snapshots: dict[str, Callable[[], Any]] = {}
        self._after_fork: list[Callable[[], None]] = []
        self._step_cost_s: float | None = None
        self._clear("outside")

    def _clear(self, phase: str) -> None:
        self._threads: dict[int, dict[str, Any]] = {}
        self._local = _Local(self._threads)
        self._local.phase = phase
        self.role = "other"
        self.device = ""
        self.flush_s = 0.0
        self.memory = usage.Memory()
        self.account = Account(rss_bytes=self.memory.rss_bytes)
        self._machine = usage.Machine()
        self._calls: dict[tuple[str, str, str, int], _Calls] = {}
        self._facts: dict[str, Any] = {}
        self._notes: dict[str, None] = {}
        self._lock = threading.Lock()
        self._turn = 0
        self._started_s, self._started_at = time.perf_counter(), time.time()

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

    def call(
        self, kind: str, seconds: float, *, amount: float = 0.0, key: str | None = None, detail: dict[str, Any] | None = None
    ) -> None:
        """One event at the nearest line of the user's own code; `key`: what it was about, counted once each."""
        phase = self._local.phase
        if phase is WATCHER:
            return
        file, line, function = user_place(2)
        row = self._calls.setdefault((kind, phase, file, line), _Calls(function))
        row.count += 1
        row.seconds += seconds
        row.amount += amount
        if key is not None:
            if len(row.keys) < _MAX_KEYS:
                row.keys.add(hash(key))
            row.example = row.example or key
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
        self.memory.close()
        self._clear(self._local.phase)
        for callback in self._after_fork:
            try:
                callback()
            except Exception as error:
                self.note(f"after a fork: {type(error).__name__}: {error}")

    def to_dict(self) -> dict[str, Any]:
        """The whole record so far."""
        taken: dict[str, Any] = {}
        for name, snapshot in list(self._snapshots.items()):
            try:
                taken[name] = snapshot()
            except Exception as error:
                self.note(f"{name} could not be recorded: {type(error).__name__}: {error}")
        return {
            "pid": os.getpid(),
            "role": self.role,
            "python": ".".join(map(str, sys.version_info[:3])),
            "device": self.device,
            **self._machine.to_dict(self.account.began_s is not None),
            "started_at": self._started_at,
            "elapsed_s": time.perf_counter() - self._started_s,
            "usage": usage.of_process()._asdict(),
            "calls": [_call_dict(key, row) for key, row in list(self._calls.items())],
            **taken,
            "facts": dict(self._facts),
            "watcher": {"hooks_s": self._hooks_s(), "flush_s": self.flush_s},
            "notes": list(self._notes),
        }

    def _hooks_s(self) -> float:
        """What hooks have cost so far: steps and calls, times what the bookkeeping of one step costs on this machine."""
        if self._step_cost_s is None:
            account, iteration = Account(rss_bytes=self.memory.rss_bytes), Iteration()
            iteration.trained = True
            began_s = time.thread_time()
            for _ in range(_ROUNDS):
                account.ask(iteration, gradients=True)
                account.leave()
                account.enter("backward_s")
                account.leave()
                account.step(0)
            self._step_cost_s = _COLD * (time.thread_time() - began_s) / _ROUNDS
        events = max(self.account.num_steps, self.account.num_asked) + sum(row.count for row in list(self._calls.values())) / 4
        return self._step_cost_s * events

    def flush(self) -> float:
        """Write the record so far; how long that took."""
        if self._folder is None:
            return 0.0
        phase, self._local.phase = self._local.phase, WATCHER
        began_s = time.thread_time()
        try:
            with self._lock:
                line = json.dumps(self.to_dict(), separators=(",", ":"), default=str).encode() + b"\n"
                self._turn = 1 - self._turn
                name = f"{os.getpid()}{('', '.next')[self._turn]}.jsonl"
                descriptor = _open(os.path.join(self._folder, name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                try:
                    os.write(descriptor, line)
                finally:
                    os.close(descriptor)
        finally:
            self._local.phase = phase
            took_s = time.thread_time() - began_s
            self.flush_s += took_s
        return took_s


def _call_dict(key: tuple[str, str, str, int], row: _Calls) -> dict[str, Any]:
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


def note(text: str) -> None:
    """A note for the record of this process, if there is one."""
    if _current is not None:
        _current.note(text)


def run(recorder: Recorder) -> None:
    """Write the record every second from now on, at exit, and in each forked child."""

    def start_thread() -> None:
        threading.Thread(target=_keep_flushing, args=(recorder,), name="unchoke-record", daemon=True).start()

    start_thread()
    atexit.register(recorder.flush)
    recorder.after_fork(start_thread)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=recorder.begin_again)


def _keep_flushing(recorder: Recorder) -> None:
    recorder.phase = WATCHER
    pause_s = _FLUSH_EVERY_S
    parent = os.getppid() if recorder.role == "main" and not os.environ.get(SCRATCH) else None
    while True:
        _sleep(pause_s)
        if parent is not None and os.getppid() != parent and os.environ.get(PARENT) == str(parent):
            # the command that runs us was killed with its group, to which this process does not belong
            os.kill(os.getpid(), signal.SIGTERM)
            parent = None
        try:
            took_s = recorder.flush()
        except (OSError, RuntimeError) as error:  # no room, or the script changed a list under our eyes: try again
            recorder.note(f"the record could not be written: {error}")
            took_s = 0.0
        pause_s = max(_FLUSH_EVERY_S, took_s / _FLUSH_SHARE)
