"""How fast a part of a stage is alone: the same small piece of work, again and again, for a fraction of a second.

In: what to run, which tells how many items it did, and how to wait for the device. Out: items a second. Stages too short to be
worth the time are not measured. For stages that do nothing but read, out comes their whole ceiling.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Generic, TypeVar

from unchoke.core.ceilings import Ceiling, PartRate
from unchoke.core.clock import Loading
from unchoke.machine.detect import usable_cores

T = TypeVar("T")
R = TypeVar("R")

LEAST_S = 2.0
"""A stage that took less than this is not measured: small runs pay nothing."""
_ALLOWED_S = 0.2
_ALLOWED_SHARE = 0.01
_MOST_RUNS = 64
READ_ALONE = 16
"""How many items one reader alone is shown; it begins again with the first."""


def allowed_s(wall_s: float) -> float:
    """What one measurement may take after a stage that took `wall_s`; nothing after a short one."""
    return max(_ALLOWED_S, _ALLOWED_SHARE * wall_s) if wall_s >= LEAST_S else 0.0


def measure_rate(
    run: Callable[[], int],
    *,
    limit_s: float,
    synchronize: Callable[[], None] = lambda: None,
    now: Callable[[], float] = time.perf_counter,
) -> float:
    """Items a second of `run`, which returns how many it did: once to warm up, then as often as half of `limit_s` allows.

    The device is waited for at the end alone, as it is in a run. Where warming up took all there was, it is the measurement.
    """
    began_s = now()
    num = run()
    synchronize()
    first_s = max(now() - began_s, 1e-9)
    if first_s >= limit_s:
        return num / first_s
    times = max(1, min(_MOST_RUNS, int((limit_s - first_s) / 2 / first_s)))
    began_s = now()
    num = sum(run() for _ in range(times))
    synchronize()
    return num / max(now() - began_s, 1e-9)


class LoneReader(Generic[T, R]):
    """Reads some items one after another, as one of many readers does, and keeps account of it. Call it for the next one.

    `count` says how many items there are in what was read: none in what could not be.
    """

    def __init__(self, read: Callable[[T], R], items: Sequence[T], *, count: Callable[[R], int] = lambda _: 1) -> None:
        self._read, self._items, self._count = read, cycle(items[:READ_ALONE]), count
        self._loading, self._num = Loading(), 0
        self.found: deque[R] = deque(maxlen=READ_ALONE)
        """What was read last."""

    def __call__(self) -> int:
        with self._loading.here():
            found = self._read(next(self._items))
        num = self._count(found)
        if num:
            self.found.append(found)
        self._num += num
        return num

    def seconds(self) -> dict[str, float]:
        """For an item, by stage."""
        return {stage: seconds / max(1, self._num) for stage, (seconds, _) in self._loading.tally().items()}


def measure_readers(
    read: Callable[[T], bool], items: Sequence[T], *, num_items: int, wall_s: float, readers: int
) -> Ceiling | None:
    """The ceiling of a stage that only read: so many times one reader alone, on as many cores as there are.

    `read` says whether an item could be read.
    """
    limit_s = allowed_s(wall_s)
    if not limit_s or not items:
        return None
    reader = LoneReader(read, items, count=int)
    part = PartRate("reading", measure_rate(reader, limit_s=limit_s), max(1, min(readers, usable_cores())))
    return Ceiling.of(num_items, wall_s, [part], alone_s=reader.seconds(), facts={"readers": readers})
