"""How far a run of jobs is: counts and a measured rate, told as `Progress` events a few times a second."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from unchoke.core.events import OnEvent, Progress

_TELL_EVERY_S = 0.2
_WINDOW_S = 20.0


class ProgressMeter:
    """Counts jobs and items. The rate is that of the last 20 seconds, so it follows the machine's mood."""

    def __init__(
        self,
        on_event: OnEvent,
        *,
        stage: str,
        unit: str,
        num_jobs: int,
        num_items: int,
        jobs_before: int = 0,
        items_before: int = 0,
        extra: Callable[[], Mapping[str, Any]] = dict,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_event, self._stage, self._unit, self._extra, self._clock = on_event, stage, unit, extra, clock
        self._jobs_done, self._jobs_total = jobs_before, jobs_before + num_jobs
        self._items_done, self._items_total = items_before, items_before + num_items
        self._failed = 0
        self._recent: deque[tuple[float, int]] = deque([(clock(), 0)])
        self._told_at = float("-inf")

    def count(self, num_items: int, *, failed: int = 0) -> None:
        """One more job is over, with so many items, of which some failed."""
        now = self._clock()
        self._jobs_done += 1
        self._items_done += num_items
        self._failed += failed
        self._recent.append((now, num_items))
        while len(self._recent) > 2 and now - self._recent[0][0] > _WINDOW_S:
            self._recent.popleft()
        if now - self._told_at >= _TELL_EVERY_S or self._jobs_done == self._jobs_total:
            self._tell(now)

    def _tell(self, now: float) -> None:
        self._told_at = now
        rate_per_s = self._rate_per_s(now)
        left_items = self._items_total - self._items_done
        self._on_event(
            Progress(
                stage=self._stage,
                done=self._items_done,
                total=self._items_total,
                unit=self._unit,
                rate_per_s=rate_per_s,
                left_s=left_items / rate_per_s if rate_per_s else None,
                failed=self._failed,
                extra={"jobs_done": self._jobs_done, "jobs_total": self._jobs_total, **self._extra()},
            )
        )

    def _rate_per_s(self, now: float) -> float | None:
        """Items since the oldest moment remembered; those counted at that very moment came before it."""
        began, first_items = self._recent[0]
        num_items = sum(items for _, items in self._recent) - first_items
        return num_items / (now - began) if num_items and now > began else None
