"""What watching may cost: where steps are short or ask very often, the costliest hooks rest most of the time.

In come a tick for each batch asked for and each step, and what watching has cost so far; out: whether hooks rest, and by how much
what was counted has to be multiplied. Watching and resting take turns at the ends of steps, so that whole steps are counted, and
where no step comes, as in an evaluation, at batches. Both grow longer: each turn makes Python forget what it knew about the
classes concerned. Whose hooks rest, and what a rest means to them, is not known here. What one event of each kind costs is
measured in the process at hand: our own bookkeeping in a tight loop. In a script there are functions around it and the caches are
cold, so the numbers are raised by factors found once by running a loop of 0.29 ms a step, which takes 0.38 ms watched.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from unchoke.chokes.watch import usage
from unchoke.chokes.watch.account import Account, Iteration

MAX_SHARE = 0.008
"""What hooks may cost, by our own account, which leaves out cold caches: the true cost was up to twice as much."""
_FIRST_S = 0.04
_FEW_TICKS = 6
_FIRST_STEPS = 8  # watched whatever they cost: the steps of a rest are split as those before it
_NO_STEP_AFTER = 8  # batches asked for without a step
_GROWTH = 1.5
_MOST = 100.0
"""The longest rest, in lengths of the watching before it."""
_GOES, _ROUNDS = 5, 20
_AROUND_CALL = 2.0
_AROUND_STEP = 5.5


class HookGroup(Protocol):
    """Hooks that can rest for a while and be woken."""

    def rest(self) -> None: ...

    def wake(self) -> None: ...


class Duty:
    """When the hooks of one process watch and when they rest.

    `cost_s` tells the seconds that hooks have cost so far; what they cost besides is `hidden_share`.
    """

    def __init__(self, cost_s: Callable[[], float], *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.resting = False
        self.wanted = True
        self.hidden_share = 0.0
        self._cost_s = cost_s
        self._clock = clock
        self._groups: list[HookGroup] = []
        self._clear()

    def _clear(self) -> None:
        self._watched = 0
        self._rested = 0
        self._ticks = 0
        self._steps = 0
        self._since_step = 0
        self._began_s: float | None = None
        self._began_cost_s = 0.0
        self._due_s = 0.0
        self._length_s = _FIRST_S

    def may_rest(self, group: HookGroup | None) -> None:
        """Tell it when to rest and when to wake; None is passed over, as a hook that could not be put in place."""
        if group is not None:
            self._groups.append(group)

    @property
    def factor(self) -> float:
        """How many events one that was counted stands for."""
        watched = self._watched + self._ticks * (not self.resting)
        return (watched + self._rested + self._ticks * self.resting) / watched if watched else 1.0

    def tick(self, *, step: bool) -> None:
        """A step is done, or a batch is asked for: no region of the account is open."""
        now_s = self._clock()
        if self._began_s is None:
            self._begin(now_s, self._length_s)
        self._ticks += 1
        self._steps += step
        self._since_step = 0 if step else self._since_step + 1
        if now_s < self._due_s or not self.wanted or 0 < self._since_step < _NO_STEP_AFTER:
            return
        if self.resting:
            self._turn(resting=False, for_s=self._length_s)
        elif self._ticks >= _FEW_TICKS and self._steps >= _FIRST_STEPS:
            self._judge(now_s, now_s - (self._began_s or now_s))

    def _judge(self, now_s: float, took_s: float) -> None:
        """What the watching so far has cost decides how long the rest is."""
        share = (self._cost_s() - self._began_cost_s) / took_s + self.hidden_share
        self._length_s *= _GROWTH
        if share > MAX_SHARE:
            self._turn(resting=True, for_s=took_s * min(_MOST, share / MAX_SHARE - 1))
        else:
            self._watched += self._ticks
            self._begin(now_s, self._length_s)

    def _turn(self, *, resting: bool, for_s: float) -> None:
        self._watched, self._rested = self._watched + self._ticks * resting, self._rested + self._ticks * (not resting)
        self.resting = resting
        for group in self._groups:
            group.rest() if resting else group.wake()
        self._begin(self._clock(), for_s)

    def _begin(self, now_s: float, for_s: float) -> None:
        self._began_s, self._due_s, self._ticks = now_s, now_s + for_s, 0
        self._began_cost_s = 0.0 if self.resting else self._cost_s()

    def begin_again(self) -> None:
        """In a forked child: awake, and nothing counted yet."""
        if self.resting:
            self.resting = False
            for group in self._groups:
                group.wake()
        self._clear()


class EventCosts(NamedTuple):
    """CPU seconds of one call told, one step, one batch made, and one network passed through inside another."""

    call_s: float
    step_s: float
    fetch_s: float
    within_s: float

    def of(self, *, calls: int, steps: int, fetches: int, within: int) -> float:
        """Seconds of so many of each."""
        return calls * self.call_s + steps * self.step_s + fetches * self.fetch_s + within * self.within_s


def measure_costs(tell: Callable[[], None], proc: usage.ProcFiles) -> EventCosts:
    """`tell` tells a record of one call; `proc` are the counters that a fetch reads."""
    account, iteration = Account(rss_bytes=proc.rss_bytes), Iteration()
    iteration.trained = True

    def fetch() -> None:
        for _ in range(2):
            usage.of_thread()
            proc.read_bytes()

    def step() -> None:  # what hooks tell the account in one step of a plain loop
        account.ask(iteration, gradients=True)
        account.leave()
        account.count("batches")
        account.count("samples", 1)
        for region in ("forward_s", "backward_s", "optimizer_s"):
            account.enter(region)
            account.leave()
        account.trained()
        account.step(0)

    call_s, step_s, fetch_s, within_s = (_measured(event) for event in (tell, step, fetch, lambda: account.inside))
    return EventCosts(_AROUND_CALL * call_s, _AROUND_STEP * step_s, _AROUND_STEP * fetch_s, _AROUND_CALL * within_s)


def _measured(event: Callable[[], object]) -> float:
    """The quickest of a few goes: others are disturbed."""
    took_s = []
    for _ in range(_GOES):
        began_s = time.thread_time()
        for _ in range(_ROUNDS):
            event()
        took_s.append(time.thread_time() - began_s)
    return min(took_s) / _ROUNDS
