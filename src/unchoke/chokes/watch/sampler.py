"""A look at the stacks of this process, a hundred times a second: which stage runs, and which line of the user's own code.

In: the frames of the main thread and of threads that load data. Out: `samples`: rows that count looks by stage, phase and place
(main thread; other threads apart), and the most frequent stacks of user functions. A thread can only look while it holds the
interpreter, and is let in where another one lets go, so short system calls would seem to take all the time. Whether the lock was
free when the looking thread woke (Linux counts how often it had to wait) tells running Python from waiting in C: see `stacks.py`.
The time between looks grows where they would take more than 0.5 % of a core: the thread that is looked at loses more time than
the look itself takes.
"""

from __future__ import annotations

import sys
import threading
import time
from types import CodeType, FrameType
from typing import Any

from unchoke.chokes.watch.recorder import WATCHER, Recorder
from unchoke.chokes.watch.stacks import NOWHERE, StackPlace, is_user_code, rule_of, stage_of

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

PERIOD_S = 0.010
_MAX_PERIOD_S = 0.100
_MAX_SHARE = 0.005
_CHECK_EVERY = 25  # looks between two looks at our own cost
_MAX_ROWS = 4_000
_SHOWN_ROWS = 400
_MAX_STACKS = 1_000
_SHOWN_STACKS = 200
_MAX_DEPTH = 400
_MAX_THREADS = 6
_USUAL_SWITCH_S = 0.005
_QUICK_SWITCH_S = 0.001  # how long a thread may run on before it must let us look: what is seen is at most that late
_THREAD = getattr(resource, "RUSAGE_THREAD", None)
_IDLE = {"wait", "_wait_for_tstate_lock", "accept", "select", "_worker", "_recv_bytes", "poll", "_poll", "get"}
_LOADING = {"list", "stat", "open", "read", "decode", "transform", "collate", "handover", "copy"}

_Key = tuple[str, str, str, int, str]


class Sampler:
    """Counts of one process. `take` is one look; from `start` to `stop` a thread keeps looking."""

    def __init__(self, recorder: Recorder, *, period_s: float = PERIOD_S) -> None:
        self._recorder = recorder
        self._asked_period_s = period_s
        self._known: dict[int, tuple[str | None, bool, CodeType]] = {}  # by id, as in stacks.py
        self._ending = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Forget everything, as after a fork."""
        self._main = threading.main_thread().ident
        self._known.clear()
        self._rows: dict[_Key, int] = {}
        self._other_rows: dict[_Key, int] = {}
        self._stacks: dict[str, int] = {}
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
        while not ending.acquire(timeout=max(0.0005, due_s - time.perf_counter())):
            self.take(own, runs_python=_num_waits() - waits > 1)
            now_s = time.perf_counter()
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

    def take(self, own: int, *, runs_python: bool) -> None:
        """One look at every thread but our own; who runs Python is the main thread, as far as can be told."""
        frames = sys._current_frames()
        main = frames.pop(self._main or 0, None)
        frames.pop(own, None)
        self._total += 1
        if main is not None:
            self._count_main(main, runs_python=runs_python)
        busy = [thread for thread, frame in frames.items() if frame.f_code.co_name not in _IDLE]
        others = [thread for thread in busy if self._recorder.phase_of(thread) != WATCHER]
        for thread in others[:_MAX_THREADS]:
            self._count_other(thread, frames[thread])
        if others:  # threads that share the interpreter would change places too often
            _switch_after(_QUICK_SWITCH_S, _USUAL_SWITCH_S)

    def _count_main(self, frame: FrameType, *, runs_python: bool) -> None:
        phase = self._recorder.phase_of(self._main or 0)
        rules, place, stack = self._read(frame)
        stage = stage_of(rules, phase, runs_python=runs_python)
        _add(self._rows, (stage, phase, *place), _MAX_ROWS)
        if stack:
            _add(self._stacks, ";".join(reversed(stack)), _MAX_STACKS)

    def _count_other(self, thread: int, frame: FrameType) -> None:
        """Threads that neither run the user's code nor load data are not of interest."""
        phase = self._recorder.phase_of(thread)
        rules, place, _ = self._read(frame)
        stage = stage_of(rules, phase, runs_python=False)
        if place is not NOWHERE or stage in _LOADING:
            _add(self._other_rows, (stage, phase, *place), _MAX_ROWS)

    def _read(self, innermost: FrameType) -> tuple[list[str | None], StackPlace, list[str]]:
        """The rules of a stack's functions, its nearest user place, and its user functions, all innermost first."""
        known, place = self._known, NOWHERE
        rules: list[str | None] = []
        stack: list[str] = []
        frame: FrameType | None = innermost
        while frame is not None and len(rules) < _MAX_DEPTH:
            code = frame.f_code
            facts = known.get(id(code))
            if facts is None:
                facts = known[id(code)] = (rule_of(code), is_user_code(code), code)
            rules.append(facts[0])
            if facts[1]:
                if place is NOWHERE:
                    place = (code.co_filename, frame.f_lineno, code.co_qualname)
                stack.append(f"{code.co_filename}:{code.co_qualname}")
            frame = frame.f_back
        return rules, place, stack

    def to_dict(self) -> dict[str, Any]:
        """`period_s` is the time between looks as it came out; `own_s` what looking cost this process."""
        most = sorted(self._stacks.copy().items(), key=lambda item: -item[1])[:_SHOWN_STACKS]
        return {
            "period_s": self._elapsed_s / self._total if self._total else self._period_s,
            "total": self._total,
            "rows": _rows(self._rows),
            "threads": _rows(self._other_rows),
            "stacks": [{"stack": stack, "count": count} for stack, count in most],
            "own_s": self._looking_s,
        }


def _add(counts: dict[Any, int], key: Any, limit: int) -> None:
    """Count; a table that has grown too large drops what was seen once."""
    counts[key] = counts.get(key, 0) + 1
    if len(counts) > limit:
        for rare in [found for found, count in counts.items() if count == 1]:
            del counts[rare]


def _rows(counts: dict[_Key, int]) -> list[dict[str, Any]]:
    """The rows with the most looks; the others are summed up by stage and phase, without a place."""
    most = sorted(counts.copy().items(), key=lambda item: -item[1])
    shown = dict(most[:_SHOWN_ROWS])
    for (stage, phase, *_), count in most[_SHOWN_ROWS:]:
        shown[(stage, phase, *NOWHERE)] = shown.get((stage, phase, *NOWHERE), 0) + count
    names = ("stage", "phase", "file", "line", "function")
    return [{**dict(zip(names, key, strict=True)), "count": count} for key, count in shown.items()]


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
