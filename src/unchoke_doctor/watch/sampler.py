"""A look at the stacks of this process, a hundred times a second: which stage runs, and which line of the user's own code.

In: the frames of the main thread and of threads that load data. Out: `samples`: rows of seconds by stage, phase and place
(main thread; other threads apart), with the piece of the line that was being worked out (`span`), the library function it had
called, the lines of the user's own that led there, and what the thread waited for. A thread can only look while it holds the
interpreter, and is let in where another one lets go, so short system calls would seem to take all the time. Whether the lock was
free when the looking thread woke (Linux counts how often it had to wait) tells running Python from waiting in C: see `stacks.py`.
The time between looks grows where they would take more than 1 % of a core: the thread that is looked at loses more time than
the look itself takes.
"""

from __future__ import annotations

import linecache
import sys
import threading
import time
from functools import lru_cache
from itertools import islice
from types import CodeType, FrameType
from typing import Any, NamedTuple

from unchoke_doctor.watch import usage
from unchoke_doctor.watch.fetching import makers
from unchoke_doctor.watch.peeks import Peeks, SameArguments
from unchoke_doctor.watch.recorder import WATCHER, Recorder
from unchoke_doctor.watch.stacks import NOWHERE, StackPlace, is_user_code, is_watcher, module_name, rule_of, stage_of

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

PERIOD_S = 0.010
_MAX_PERIOD_S = 0.100
_MAX_SHARE = 0.01
_CHECK_EVERY = 25  # looks between two looks at our own cost
_MAX_ROWS = 4_000
_SHOWN_ROWS = 400
_MAX_DEPTH = 400
_MAX_THREADS = 6
_USUAL_SWITCH_S = 0.005
_QUICK_SWITCH_S = 0.0001  # how long a thread may run on before it must let us look: what is seen is at most that late
_THREAD = getattr(resource, "RUSAGE_THREAD", None)
_IDLE = {"wait", "_wait_for_tstate_lock", "accept", "select", "_worker", "_recv_bytes", "poll", "_poll", "get"}
_LOADING = {"list", "stat", "open", "read", "decode", "transform", "collate", "handover", "copy"}
_MAX_CALLERS = 8
_CELL = ".ipynb#"
_LOOKED_INTO = 4
_SETUP, _AFTER = "setup", "after"
"""Phases that only time tells: before the first batch or step, and after the last step."""


class _Key(NamedTuple):
    """What looks are added up by; functions by their ids, as in stacks.py."""

    stage: str
    phase: str
    file: str
    line: int
    function: str
    code: int = 0
    instruction: int = 0
    library: int = 0
    callers: tuple[tuple[str, int, str], ...] = ()
    state: str = ""


class _Stack(NamedTuple):
    """One stack: the rules of its functions innermost first, and the user's own part of it."""

    rules: list[str | None]
    place: StackPlace
    code: int
    instruction: int
    library: int
    users: list[tuple[str, int, str]]
    frames: list[FrameType]


class Sampler:
    """Counts of one process. `take` is one look; from `start` to `stop` a thread keeps looking."""

    def __init__(self, recorder: Recorder, *, period_s: float = PERIOD_S) -> None:
        self._recorder = recorder
        self._asked_period_s = period_s
        self._known: dict[int, tuple[str | None, bool, CodeType, bool]] = {}  # by id, as in stacks.py
        self._ending = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Forget everything, as after a fork."""
        self._main = threading.main_thread().ident
        self._waiting = usage.ThreadState(threading.get_native_id())
        self._known.clear()
        self._rows: dict[_Key, float] = {}
        self._peeks = Peeks()
        self._same = SameArguments()
        self._since_step: dict[_Key, float] = {}
        self._num_steps = 0
        self._other_rows: dict[_Key, float] = {}
        self._total = 0
        self._looking_s = 0.0
        self._checked_s = 0.0
        self._elapsed_s = 0.0
        self._period_s = self._asked_period_s

    def start(self) -> None:
        self._ending = threading.Lock()
        self._ending.acquire()
        threading.Thread(target=self._run, args=(self._ending,), name="unchoke-sampler", daemon=True).start()

    def stop(self) -> None:
        _switch_after(_QUICK_SWITCH_S, _USUAL_SWITCH_S)
        if self._ending.locked():
            self._ending.release()

    def _run(self, ending: threading.Lock) -> None:
        self._recorder.phase = WATCHER
        try:
            self._keep_looking(ending)
        except Exception as error:
            self._recorder.note(f"stopped sampling: {type(error).__name__}: {error}")

    def _keep_looking(self, ending: threading.Lock) -> None:
        own = threading.get_ident()
        _switch_after(_USUAL_SWITCH_S, _QUICK_SWITCH_S)
        began_s, own_began_s = time.perf_counter(), time.thread_time()
        due_s = began_s + self._period_s
        waits = _num_waits()
        looked_s = began_s
        while not ending.acquire(timeout=max(0.0005, due_s - time.perf_counter())):
            now_s = time.perf_counter()
            # a look that comes late was kept waiting by the line it finds: it stands for all the time since the last one
            self.take(own, now_s - looked_s, runs_python=_num_waits() - waits > 1)
            looked_s = now_s
            self._elapsed_s = now_s - began_s
            if self._total % _CHECK_EVERY == 0:
                self._spare(now_s - began_s, time.thread_time() - own_began_s)
            due_s = max(due_s + self._period_s, now_s)
            waits = _num_waits()

    def _spare(self, elapsed_s: float, looking_s: float) -> None:
        """Look less often where looking has cost too much since the last time, and as often as asked for where it has not."""
        share = (looking_s - self._looking_s) / max(elapsed_s - self._checked_s, 1e-9)
        self._checked_s, self._looking_s = elapsed_s, looking_s
        self._period_s = min(_MAX_PERIOD_S, max(self._asked_period_s, self._period_s * share / _MAX_SHARE))

    def take(self, own: int, seconds: float, *, runs_python: bool) -> None:
        """One look at every thread but our own, which stands for `seconds`; who runs Python is the main thread, presumably."""
        frames = sys._current_frames()
        main = frames.pop(self._main or 0, None)
        frames.pop(own, None)
        self._total += 1
        if main is not None:
            self._count_main(main, seconds, runs_python=runs_python)
        busy = [thread for thread, frame in frames.items() if frame.f_code.co_name not in _IDLE]
        others = [thread for thread in busy if self._recorder.phase_of(thread) != WATCHER]
        for thread in others[:_MAX_THREADS]:
            self._count_other(thread, frames[thread], seconds)
        if others:  # threads that share the interpreter would change places too often
            _switch_after(_QUICK_SWITCH_S, _USUAL_SWITCH_S)

    def _count_main(self, frame: FrameType, seconds: float, *, runs_python: bool) -> None:
        phase = self._phase()
        stack = self._read(frame)
        stage = stage_of(stack.rules, phase, runs_python=runs_python)
        state = "python" if runs_python else self._waiting.read()
        key = _Key(stage, phase, *stack.place, stack.code, stack.instruction, stack.library, tuple(stack.users[1:]), state)
        _add(self._since_step if phase in ("outside", "step") else self._rows, key, seconds)
        if phase != _SETUP and stack.frames:
            now = (self._num_steps, makers.now.fetches)
            self._same.look(stack.frames[:_LOOKED_INTO], now)
            self._peeks.look(stack.frames[0])

    def _phase(self) -> str:
        """The main thread's. What is neither loading, evaluating nor saving belongs to the training if a step follows."""
        account = self._recorder.account
        if account.num_steps != self._num_steps:
            self._num_steps = account.num_steps
            for key, seconds in self._since_step.items():
                _add(self._rows, key, seconds)
            self._since_step.clear()
        phase = self._recorder.phase_of(self._main or 0)
        return _SETUP if phase == "outside" and account.began_s is None and self._recorder.role != "loader" else phase

    def _count_other(self, thread: int, frame: FrameType, seconds: float) -> None:
        """Threads that neither run the user's code nor load data are not of interest."""
        phase = self._recorder.phase_of(thread)
        stack = self._read(frame)
        stage = stage_of(stack.rules, phase, runs_python=False)
        if stack.place is not NOWHERE or stage in _LOADING:
            _add(self._other_rows, _Key(stage, phase, *stack.place), seconds)

    def _read(self, innermost: FrameType) -> _Stack:
        """A stack from its innermost frame outwards; `library` is what the user's innermost line called, if it is Python."""
        known, place = self._known, NOWHERE
        rules: list[str | None] = []
        users: list[tuple[str, int, str]] = []
        frames: list[FrameType] = []
        at = library = below = instruction = 0
        frame: FrameType | None = innermost
        while frame is not None and len(rules) < _MAX_DEPTH:
            code = frame.f_code
            facts = known.get(id(code))
            if facts is None:
                facts = known[id(code)] = (rule_of(code), is_user_code(code), code, is_watcher(code))
            rules.append(facts[0])
            if facts[1]:
                here = (code.co_filename, frame.f_lineno or _line_before(code, frame.f_lasti), code.co_qualname)
                if place is NOWHERE:
                    place, at, instruction, library = here, id(code), frame.f_lasti, below
                if len(users) < _MAX_CALLERS:
                    users.append(here)
                    frames.append(frame)
            elif not facts[3]:
                below = id(code)
            frame = frame.f_back
        return _Stack(rules, place, at, instruction, library, users, frames)

    def to_dict(self) -> dict[str, Any]:
        """`own_s` is what looking cost this process."""
        rows = self._rows.copy()
        for key, seconds in self._since_step.copy().items():
            key = key._replace(phase=_AFTER)
            rows[key] = rows.get(key, 0.0) + seconds
        return {
            "total_s": self._elapsed_s,
            "rows": self._shown(rows),
            "threads": self._shown(self._other_rows),
            "peeks": self._peeks.to_list(),
            "same_arguments": self._same.to_list(),
            "cells": self._cells(),
            "own_s": self._looking_s,
        }

    def _cells(self) -> dict[str, str]:
        """The text of user code that stands in no file: cells of a notebook."""
        files = {key.file for key in list(self._rows) if _CELL in key.file}
        return {file: "".join(linecache.getlines(file)) for file in files}

    def _shown(self, counts: dict[_Key, float]) -> list[dict[str, Any]]:
        """The rows with the most seconds; the others are summed up by stage and phase, without a place."""
        most = sorted(counts.copy().items(), key=lambda item: -item[1])
        shown = dict(most[:_SHOWN_ROWS])
        for key, seconds in most[_SHOWN_ROWS:]:
            rest = _Key(key.stage, key.phase, *NOWHERE)
            shown[rest] = shown.get(rest, 0.0) + seconds
        return [{**self._row(key), "seconds": round(seconds, 4)} for key, seconds in shown.items()]

    def _row(self, key: _Key) -> dict[str, Any]:
        row: dict[str, Any] = {name: getattr(key, name) for name in ("stage", "phase", "file", "line", "function")}
        if key.code:
            row["span"] = _span(self._known[key.code][2], key.instruction)
        if key.library:
            library = self._known[key.library][2]
            row["library"] = f"{module_name(library.co_filename)}:{library.co_qualname}"
        if key.callers:
            row["callers"] = key.callers
        if key.state:
            row["state"] = key.state
        return row


def _add(rows: dict[_Key, float], key: _Key, seconds: float) -> None:
    """Add up; a table that has grown too large drops what was seen once or twice."""
    rows[key] = rows.get(key, 0.0) + seconds
    if len(rows) > _MAX_ROWS:
        for rare in [found for found, spent_s in rows.items() if spent_s < 2 * _MAX_PERIOD_S]:
            del rows[rare]


@lru_cache(maxsize=4_000)
def _span(code: CodeType, instruction: int) -> tuple[int, ...] | None:
    """First line, last line, first column and last of the piece of source that an instruction was made from."""
    found = next(islice(code.co_positions(), instruction // 2, None), (None,))
    return tuple(found) if all(isinstance(number, int) for number in found) else None  # type: ignore[arg-type]


@lru_cache(maxsize=1_000)
def _line_before(code: CodeType, instruction: int) -> int:
    """Where an instruction has no line (the way back to the head of a loop): that of the nearest one before it."""
    lines = [line for start, _, line in code.co_lines() if line and start <= instruction]
    return lines[-1] if lines else code.co_firstlineno


def _switch_after(was_s: float, seconds: float) -> None:
    """Change how long a thread keeps the interpreter, unless the script has chosen that itself."""
    if abs(sys.getswitchinterval() - was_s) < 1e-6:
        sys.setswitchinterval(seconds)


def _num_waits() -> int:
    """How often this thread has given up its core to wait: once for each sleep, more where another one held the interpreter."""
    return 0 if _THREAD is None else int(resource.getrusage(_THREAD).ru_nvcsw)


def install(recorder: Recorder) -> None:
    """Look from now on, and in every forked child anew."""
    sampler = Sampler(recorder)

    def begin_again() -> None:
        sampler.clear()
        sampler.start()

    recorder.register("samples", sampler.to_dict)
    recorder.after_fork(begin_again)
    sampler.start()
