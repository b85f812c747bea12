"""One kind of work, tuned from beginning to end: is it right as it is, what does loading cost, which switches earn their place.

In: work that can be done in several ways, the way it is done now and the plain way, and switches. Out: a `TunedPart` for people
and the verdicts for `unchoke.toml`. Where the way it is done now gives other numbers than the plain one, the plain one is where
tuning begins, and what differed is a verdict of its own: right comes before fast.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from unchoke.core.events import OnEvent
from unchoke.core.tuned import Verdict
from unchoke.tuning.compare import compare
from unchoke.tuning.tune_result import HeadRoom, TunedPart
from unchoke.tuning.tune_trials import Trials
from unchoke.tuning.tune_work import NO_TIME, Apart, Deadline, Setup, Switch, Work, needed_s

S = TypeVar("S", bound=Setup)
W = TypeVar("W", bound=Setup, contravariant=True)
_LOOKS = 3
"""Pairs of measurements that tell what loading costs."""
_CALIBRATION_SHARE = 0.05
_LOOK_SHARE = 0.2
"""Of the time left: it is not looked at if that would take more."""


class Tunable(Work[W], Protocol[W]):
    """Work whose pieces can be sized, and that can be done as if loading were free."""

    @property
    def piece(self) -> str:
        """What is timed at once, in words."""
        ...

    def calibrate(self, setup: W, *, budget_s: float) -> None:
        """Settle how much a timed piece does, in about that time."""
        ...

    def free(self, setup: W) -> Callable[[], float]:
        """As `timed`, with loading free."""
        ...


@dataclass(frozen=True)
class Asked:
    """What a round of tuning is given beside the work. `num_samples` is how many a run goes through."""

    name: str
    unit: str
    deadline: Deadline
    on_event: OnEvent
    warn: Callable[[str], None]
    earlier: Sequence[Verdict] = ()
    num_samples: int = 0


def tune_part(
    asked: Asked,
    work: Tunable[S],
    before: S,
    plain: S,
    switches: Callable[[S], list[Switch]],
    *,
    apart: Apart[S] | None = None,
) -> tuple[TunedPart, dict[str, Verdict]]:
    """Tune one kind of work. `switches` gives what is worth trying, once the size of a piece is known."""
    started_s = time.monotonic()
    work.calibrate(before, budget_s=_CALIBRATION_SHARE * asked.deadline.left_s)
    if asked.deadline.left_s < 2 * needed_s(work):
        return _untried(asked, before, switches(before), NO_TIME)
    likeness = work.alike(before)
    if not likeness.equal and not work.alike(plain).equal:
        asked.warn(f"{asked.name}: even plain float32 gives other numbers when the device rounds it; everything stays as it is")
        return _untried(asked, before, switches(before), "cannot be compared: rounding alone changes the numbers of this network")
    start = before if likeness.equal else plain
    righted = [] if likeness.equal else _righted(asked, before, plain, likeness.text)
    look_s = 2 * (_LOOKS + 1) * work.block_s
    loading_before = _look(work, start, budget_s=look_s) if look_s < _LOOK_SHARE * asked.deadline.left_s else None
    trials = Trials(
        work,
        start,
        deadline=asked.deadline,
        on_event=asked.on_event,
        num_samples=asked.num_samples,
        reserve_s=look_s if loading_before else 0.0,
        apart=apart,
    )
    ending = trials.run(_worth_trying(switches(start), loading_before), earlier=asked.earlier)
    loading_after = loading_before
    if loading_before and ending.after != start:
        loading_after = _look(work, ending.after, budget_s=look_s) if asked.deadline.left_s > look_s else None
    part = TunedPart(
        asked.name,
        asked.unit,
        [*righted, *ending.verdicts],
        whole=ending.whole,
        head_room=HeadRoom(*loading_before, *(loading_after or (None, None))) if loading_before else None,
        equality=likeness.text,
        piece=work.piece,
        seconds=time.monotonic() - started_s,
    )
    return part, {**ending.of_switches(), **{one.switch: one for one in righted}}


def _worth_trying(switches: list[Switch], loading: tuple[float, float] | None) -> list[Switch]:
    """Where loading costs next to nothing, what could only make it faster is not tried."""
    if loading is None or HeadRoom(*loading).matters:
        return switches
    why_not = "nothing to gain: with loading free, a sample takes as long"
    return [replace(one, why_not=one.why_not or why_not) if one.loads else one for one in switches]


def _look(work: Tunable[S], setup: S, *, budget_s: float) -> tuple[float, float]:
    """Seconds of a sample as it is, and with loading free, in turns."""
    work.let_go(setup)
    found = compare(work.timed(setup, "train"), work.free(setup), budget_s=budget_s, min_pairs=_LOOKS)
    return found.plain_s, found.trick_s


def _righted(asked: Asked, before: Setup, plain: Setup, why: str) -> list[Verdict]:
    """The switches that must change for the numbers to be right."""
    asked.warn(f"{asked.name} as it runs now gives other numbers than plain float32 ({why}); tuning begins with the plain way")
    values: dict[str, Any] = {name: value for name, value in vars(plain).items() if getattr(before, name) != value}
    return [
        Verdict(name, "kept", f"as it was, the numbers were unequal: {why}", now=getattr(before, name), value=value)
        for name, value in values.items()
    ]


def _untried(asked: Asked, before: Setup, switches: Sequence[Switch], why: str) -> tuple[TunedPart, dict[str, Verdict]]:
    """Nothing can be told, and nothing is changed."""
    part = planned(asked.name, asked.unit, before, switches)
    trials = [replace(one, reason=why) if one.value is not None else one for one in part.trials]
    return replace(part, trials=trials), {one.switch: one for one in trials}


def planned(name: str, unit: str, before: Setup, switches: Sequence[Switch]) -> TunedPart:
    """What would be tried, without trying it."""
    trials = [
        Verdict(switch.name, "not tried", switch.why_not or "would be tried", now=getattr(before, switch.name, None), value=value)
        for switch in switches
        for value in (switch.values if not switch.why_not else (None,))
    ]
    return TunedPart(name, unit, trials)
