"""What watching costs, measured on the machine and in the process at hand: seconds of one event of each kind.

In comes a way to tell the record of one call; out come four numbers, to be multiplied by how often each happened. What is
measured is our own bookkeeping in a tight loop. In a script there are functions around it and the caches are cold, so the numbers
are raised by factors found once by running a loop of 0.29 ms a step, which takes 0.38 ms watched.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from unchoke.chokes.watch import usage
from unchoke.chokes.watch.account import Account, Iteration

_GOES, _ROUNDS = 5, 20
_AROUND_CALL = 2.0
_AROUND_STEP = 5.5
_clock = time.thread_time


class Costs(NamedTuple):
    """CPU seconds of one call told, one step, one batch made, and one network passed through inside another."""

    call_s: float
    step_s: float
    fetch_s: float
    within_s: float

    def of(self, *, calls: int, steps: int, fetches: int, within: int) -> float:
        """Seconds of so many of each."""
        return calls * self.call_s + steps * self.step_s + fetches * self.fetch_s + within * self.within_s


def measure_costs(tell: Callable[[], None], proc: usage.ProcFiles) -> Costs:
    """`tell` tells a record of one call; `proc` are the counters that a fetch reads."""
    account, iteration = Account(rss_bytes=proc.rss_bytes), Iteration()
    iteration.trained = True

    def fetch() -> None:
        for _ in range(2):
            usage.of_thread()
            proc.read_bytes()

    call_s, step_s, fetch_s, within_s = (
        _measured(event) for event in (tell, lambda: _step(account, iteration), fetch, lambda: account.inside)
    )
    return Costs(_AROUND_CALL * call_s, _AROUND_STEP * step_s, _AROUND_STEP * fetch_s, _AROUND_CALL * within_s)


def _measured(event: Callable[[], object]) -> float:
    """The quickest of a few goes: others are disturbed."""
    took_s = []
    for _ in range(_GOES):
        began_s = _clock()
        for _ in range(_ROUNDS):
            event()
        took_s.append(_clock() - began_s)
    return min(took_s) / _ROUNDS


def _step(account: Account, iteration: Iteration) -> None:
    """What hooks tell the account in one step of a plain loop."""
    account.ask(iteration, gradients=True)
    account.leave()
    account.count("batches")
    account.count("samples", 1)
    for region in ("forward_s", "backward_s", "optimizer_s"):
        account.enter(region)
        account.leave()
    account.trained()
    account.step(0)
