"""Seconds by stage: `with timers.stage("extract"): …` adds to that stage's sum.

Stages may nest (each counts its own whole time, the inner one's included) and may be entered again. Nothing is printed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StageTimers:
    """Accumulates seconds under names, in the order the stages first ended. Safe to share between threads."""

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock
        self._lock = threading.Lock()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time until the block ends, also when it ends by an exception."""
        started_s = self._clock()
        try:
            yield
        finally:
            self.add(name, self._clock() - started_s)

    def add(self, name: str, seconds: float) -> None:
        """Count time that was measured elsewhere."""
        with self._lock:
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds
