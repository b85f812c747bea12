"""Counting that costs too much is rationed: where batches ask the system very often, most of them are let pass uncounted.

In: each counted call, and where each fetch of a batch begins and ends. Out: how many calls the next one stands for, and functions
that are put back while a fetch is let pass, so that it costs nothing. A counted fetch stands for half of those let pass before it
and half of those after it. Calls outside of fetches always count one by one. What is counted is not known here.
"""

from __future__ import annotations

import threading
from time import perf_counter
from typing import Any

from unchoke.chokes.watch.recorder import Recorder

_COST_S = 1.5e-6  # of counting one call
_MAX_SHARE = 0.02
_FEW = 1_000  # calls in one fetch that are counted whatever they cost
_MOST = 63


class Ration:
    """Decides for each fetch whether its calls are counted.

    Whoever counts adds 1 to `counted` for each call, which stands for `times` of them. These are plain attributes because every
    call pays for them.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.counted = 0
        self.times = 1
        self._recorder = recorder
        self._functions: list[tuple[Any, str, Any, Any]] = []
        self._thread = 0
        self._depth = 0
        self._began_s = 0.0
        self._share = 0.0
        self._to_pass = 0
        self._owed = 0

    def switch(self, owner: Any, name: str) -> None:
        """`owner.name` is a counting function: what it wraps stands in its place while a fetch is let pass."""
        counting = getattr(owner, name)
        self._functions.append((owner, name, counting, getattr(counting, "__wrapped__", counting)))

    def begin(self) -> None:
        """A fetch begins. Fetches in other threads, and inside one another, go along with the first."""
        if self._depth and self._thread != threading.get_ident():
            return
        self._thread = threading.get_ident()
        self._depth += 1
        if self._depth > 1 or self._recorder.duty.resting:
            return
        if self._to_pass:
            self._put(counting=False)
        else:
            self._begin_counting()

    def _begin_counting(self) -> None:
        following = min(_MOST, int(self._share / _MAX_SHARE))
        self.times = self._owed + 1 + following // 2
        self._owed = following - following // 2
        self._to_pass = following + 1  # this one ends the counted way
        self._began_s, self.counted = perf_counter(), 0

    def end(self) -> None:
        """The fetch has ended."""
        if self._thread != threading.get_ident():
            return
        self._depth -= 1
        if self._depth or self._recorder.duty.resting:
            return
        self._to_pass -= 1
        if self._began_s:
            took_s = perf_counter() - self._began_s
            self._share = self.counted * _COST_S / took_s if self.counted >= _FEW else 0.0
            self._recorder.num_let_pass += self.counted * (self.times - 1)
            self.times, self._began_s = 1, 0.0
        else:
            self._put(counting=True)

    def _put(self, *, counting: bool) -> None:
        """Only where nobody else has put something of his own there."""
        for owner, name, counts, plain in self._functions:
            if getattr(owner, name) is (plain if counting else counts):
                setattr(owner, name, counts if counting else plain)
