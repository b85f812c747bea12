"""What `unchoke tune` tries, and how one way of working is held against another.

In: work that can be done in several ways (a `Work`) and two of them. Out: an `Attempt`: whether the numbers stay those of the
plain way, and if so how fast the new way is. Which ways are worth trying, and in which order, is decided elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

from unchoke.tuning.compare import Compared, Likeness, compare

SET = "set: "
"""How the reason begins for what is not tried because the user decided it."""
MIN_PAIRS = 3
_LOOKS = 3
NO_TIME = "there was no time left for it: ask for more --minutes"


class Setup(Protocol):
    """A way to do the work: a frozen value with an attribute for each switch."""

    def changed(self, name: str, value: Any) -> Self:
        """The same with one switch set."""
        ...


S = TypeVar("S", bound=Setup)
W = TypeVar("W", bound=Setup, contravariant=True)


@dataclass(frozen=True)
class Switch:
    """Something that can be done in another way: the name of a field of the set-up, and the values to try, in order.

    `why_not` says why nothing is tried. `timed` is what the work times for it. On a `ladder`, a value is tried only while the one
    before it was kept. What is tried `apart` runs in a process of its own, which can be ended. `repays`: every run pays for
    getting ready, and must be long enough to gain more than that. `loads`: it can only make loading faster.
    """

    name: str
    values: tuple[Any, ...] = ()
    why_not: str = ""
    timed: str = "train"
    ladder: bool = False
    apart: bool = False
    repays: bool = False
    loads: bool = False


@dataclass(frozen=True)
class Attempt:
    """One way held against another: whether its numbers are right, and if so how fast it is. `setup_s` went before that.

    `why_not` says why neither is known.
    """

    likeness: Likeness
    compared: Compared | None = None
    setup_s: float = 0.0
    why_not: str = ""


class Work(Protocol[W]):
    """Something that is done over and over, and may be done in several ways."""

    @property
    def block_s(self) -> float:
        """About how long one timed piece takes."""
        ...

    def alike(self, setup: W) -> Likeness:
        """Whether the numbers of this way are those of the plain one."""
        ...

    def timed(self, setup: W, what: str) -> Callable[[], float]:
        """Do a piece of the work, warm, and return the seconds of each sample."""
        ...

    def let_go(self, *but: W) -> None:
        """Forget what other ways than these need."""
        ...


class Apart(Protocol[W]):
    """The same as `attempt`, in another process that is ended when the time is over."""

    def __call__(self, now: W, trick: W, *, timed: str, budget_s: float) -> Attempt: ...


class Deadline:
    """How much time is left."""

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._ends_s, self.total_s = clock, clock() + seconds, seconds

    @property
    def left_s(self) -> float:
        return self._ends_s - self._clock()

    @property
    def spent_s(self) -> float:
        return self.total_s - self.left_s

    def share(self, part: float) -> Deadline:
        """A deadline of its own for a part of what is left."""
        return Deadline(max(0.0, self.left_s * part), clock=self._clock)


def attempt(work: Work[S], now: S, trick: S, *, timed: str, budget_s: float) -> Attempt:
    """Equal? Then how fast? The time it takes to get ready counts towards `budget_s`, but an answer is given."""
    started_s = time.monotonic()
    likeness = work.alike(trick)
    if not likeness.equal:
        return Attempt(likeness)
    run_now, run_trick = work.timed(now, timed), work.timed(trick, timed)
    setup_s = time.monotonic() - started_s
    left_s = max(budget_s - setup_s, needed_s(work))
    return Attempt(likeness, compare(run_now, run_trick, budget_s=left_s, min_pairs=MIN_PAIRS), setup_s)


def quickest(run: Callable[[], float], *, budget_s: float) -> float:
    """Of three, as far as time goes: a busy moment of the machine should not decide how large pieces are."""
    started_s = time.monotonic()
    found = [run()]
    while len(found) < _LOOKS and time.monotonic() - started_s < budget_s:
        found.append(run())
    return min(found)


def needed_s(work: Work[S]) -> float:
    """What the fewest measurements that give an answer take."""
    return 2 * (MIN_PAIRS + 1) * work.block_s
