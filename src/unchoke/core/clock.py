"""Clocks that are always on: which stage each second of a thread went to, at well under a microsecond a mark.

In: `with clock.stage("forward"): …`, in the one thread that owns the clock; and for what runs in any number of threads at once, a
`Loading`, whose stages are marked deep inside the readers by `during`. Out: seconds and calls by stage (`timeline.py` makes a
record of them). No lock is taken, nothing is printed, and no device is waited for: work that was handed to a GPU is counted as
the time it took to hand it over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
StageTally = dict[str, tuple[float, int]]
"""Seconds and calls by stage."""
Mark = Callable[[str], AbstractContextManager[Any]]
OTHER = "other"
_END: Any = object()


class Clock:
    """Seconds and calls by stage of one thread. A stage within another takes its time from it, so that all add up to the wall.

    What is in no stage is `other`. `mark`, where there is one, is entered with each stage: the annotations of a profiler.
    """

    def __init__(self, stages: Iterable[str] = (), *, mark: Mark | None = None, now: Callable[[], float] = time.perf_counter):
        self._now, self._mark = now, mark
        self._began_s = self._since_s = now()
        self._running = _Stage(self, OTHER)
        self._stages: dict[str, _Stage] = {OTHER: self._running}
        self._outer: list[_Stage] = []
        self._told: dict[str, float] = {}
        for name in stages:
            self.stage(name)

    def stage(self, name: str) -> AbstractContextManager[None]:
        """What to enter and leave; also left when an exception passes through."""
        found = self._stages.get(name)
        if found is None:
            found = self._stages[name] = _Stage(self, name)
        return found if self._mark is None else self._marked(found, self._mark)

    @contextmanager
    def _marked(self, stage: _Stage, mark: Mark) -> Iterator[None]:
        with stage, mark(stage.name):
            yield

    def each(self, name: str, items: Iterable[T]) -> Generator[T, None, None]:
        """The same items; the time until each is there counts as `name`. Closed early, it closes a generator it was given."""
        found = iter(items)
        try:
            while True:
                with self.stage(name):
                    item = next(found, _END)
                if item is _END:
                    return
                yield item
        finally:
            if isinstance(found, Generator):
                found.close()

    @property
    def wall_s(self) -> float:
        """Seconds since the clock was made."""
        return self._now() - self._began_s

    def seconds(self, name: str) -> float:
        """What has gone to one stage by now."""
        return self.tally().get(name, (0.0, 0))[0]

    def share(self, name: str) -> float:
        """The same as a share of all."""
        return self.seconds(name) / max(self.wall_s, 1e-9)

    def tally(self) -> StageTally:
        """Every stage by now, in the order they were first entered; what was in none of them comes last."""
        now_s = self._now()
        self._running.seconds += now_s - self._since_s
        self._since_s = now_s
        named = {name: (stage.seconds, stage.calls) for name, stage in self._stages.items() if name != OTHER}
        return {**named, OTHER: (self._stages[OTHER].seconds, 0)}

    def lap(self) -> dict[str, float]:
        """Seconds by stage since the lap before."""
        now = {name: seconds for name, (seconds, _) in self.tally().items()}
        spent = {name: seconds - self._told.get(name, 0.0) for name, seconds in now.items()}
        self._told = now
        return spent


class _Stage:
    """One stage of a clock. Written out flat: this is what runs many times a step."""

    __slots__ = ("_clock", "calls", "name", "seconds")

    def __init__(self, clock: Clock, name: str) -> None:
        self._clock, self.name = clock, name
        self.seconds, self.calls = 0.0, 0

    def __enter__(self) -> None:
        clock = self._clock
        now_s = clock._now()
        clock._running.seconds += now_s - clock._since_s
        clock._since_s = now_s
        clock._outer.append(clock._running)
        clock._running = self
        self.calls += 1

    def __exit__(self, *_: object) -> None:
        clock = self._clock
        now_s = clock._now()
        self.seconds += now_s - clock._since_s
        clock._since_s = now_s
        clock._running = clock._outer.pop()


_thread = threading.local()
_NOTHING = nullcontext()


def during(stage: str) -> AbstractContextManager[None]:
    """Count what follows as `stage`, if this thread is reading for someone who keeps an account of it; else nothing happens."""
    clock: Clock | None = getattr(_thread, "clock", None)
    return _NOTHING if clock is None else clock.stage(stage)


class Loading:
    """An account of what readers do, summed over the threads they run in.

    `with loading.here(): …` in a thread makes `during` count for this account there. Only what happens within a stage counts.
    """

    def __init__(self) -> None:
        self._clocks: list[Clock] = []
        self._idle: list[Clock] = []
        self._added: StageTally = {}

    @contextmanager
    def here(self) -> Iterator[None]:
        """Have this thread count for this account, whatever it counted for before."""
        before = getattr(_thread, "clock", None)
        try:  # taking from a list and adding to one are single steps, so no lock is needed
            clock = self._idle.pop()
        except IndexError:
            clock = Clock()
            self._clocks.append(clock)
        _thread.clock = clock
        try:
            yield
        finally:
            _thread.clock = before
            self._idle.append(clock)

    @property
    def num_threads(self) -> int:
        """How many threads read at the same time, at most."""
        return len(self._clocks)

    def add_all(self, tally: StageTally) -> None:
        """Count what another process counted, by the one thread that is read for."""
        self._added = sum_tallies([self._added, tally])

    def tally(self) -> StageTally:
        """Every stage so far; what a thread is in the middle of is not in it yet."""
        stages = ([*clock._stages.items()] for clock in [*self._clocks])
        return sum_tallies([*({name: (x.seconds, x.calls) for name, x in one if name != OTHER} for one in stages), self._added])


def sum_tallies(parts: Iterable[StageTally]) -> StageTally:
    """Seconds and calls added up by stage, in the order the stages first appear."""
    total: StageTally = {}
    for part in parts:
        for name, (seconds, calls) in part.items():
            before_s, before = total.get(name, (0.0, 0))
            total[name] = (before_s + seconds, before + calls)
    return total


class LoopProfiler:
    """What loops that train ask of a profiler. This one does nothing, and costs a call a step."""

    @property
    def mark(self) -> Mark | None:
        """What a clock enters with each stage."""
        return None

    @property
    def wants_stop(self) -> bool:
        """Whether the training need not go on."""
        return False

    def on(self, device: torch.device) -> AbstractContextManager[None]:
        """Everything from before the first step to after the last happens inside."""
        return nullcontext()

    def step(self, clock: Clock, loading: Loading) -> None:
        """One more step is over; called by the thread that trains, which owns the clock. `loading` is what its readers did."""


NO_PROFILER = LoopProfiler()


class StageTimers:
    """Seconds by stage: `with timers.stage("extract"): …` adds to that stage's sum. Safe to share between threads.

    Stages may nest (each counts its own whole time, the inner one's included) and may be entered again; they are kept in the
    order they first ended.
    """

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: dict[str, float] = {}
        self._begun: list[tuple[str, float]] = []
        self._clock = clock
        self._lock = threading.Lock()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time until the block ends, also when it ends by an exception."""
        begun = (name, self._clock())
        with self._lock:
            self._begun.append(begun)
        try:
            yield
        finally:
            with self._lock:
                self._begun.remove(begun)
            self.add(name, self._clock() - begun[1])

    def add(self, name: str, seconds: float) -> None:
        """Count time that was measured elsewhere."""
        with self._lock:
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def so_far(self) -> dict[str, float]:
        """The same with the stages under way, as if each ended now."""
        with self._lock:
            found, begun = dict(self.seconds), list(self._begun)
        for name, started_s in begun:
            found[name] = found.get(name, 0.0) + self._clock() - started_s
        return found
