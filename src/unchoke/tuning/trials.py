"""One kind of work, tuned from beginning to end: the heart of `unchoke tune`.

In: work that can be done in several ways, the way it is done now and the plain way, switches with values to try, and a deadline.
Out: a `TunedPart`. Right comes before fast: where the way it is done now gives other numbers than the plain one, tuning begins
with the plain one. Switches are tried one after the other, each on top of those that were kept. One is kept only if the numbers
stay those of the plain way and the gain exceeds the noise. In the end all that was kept is compared with the beginning once more,
and dropped if it is not faster together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from unchoke.core.errors import MachineError
from unchoke.core.events import OnEvent, Progress
from unchoke.core.tuned import Verdict
from unchoke.core.units import format_count, format_seconds
from unchoke.tuning.compare import MIN_PAIRS, Likeness, Speedup, compare
from unchoke.tuning.tune_result import TunedPart

NO_TIME = "there was no time left for it: ask for more --minutes"
_LONGEST_TRIAL_S = 25.0
_WITH_SETUP = 1.5
"""What a trial takes with getting ready, as a multiple of what its measurements take."""
_LOOKS = 3
_CALIBRATION_SHARE = 0.05


@dataclass(frozen=True)
class Switch:
    """Something that can be done in another way: the name of a field of the set-up, and the values to try, in order.

    `why_not` says why nothing is tried. On a `ladder`, a value is tried only while the one before it was kept. What is tried
    `apart` runs in a process of its own, which can be ended; every run pays for getting it ready, and must gain more than that.
    """

    name: str
    values: tuple[Any, ...] = ()
    why_not: str = ""
    ladder: bool = False
    apart: bool = False


@dataclass(frozen=True)
class Attempt:
    """One way compared with another. `setup_s` went before the timing; `why_not` says why neither numbers nor speed are known."""

    likeness: Likeness
    compared: Speedup | None = None
    setup_s: float = 0.0
    why_not: str = ""


class Work(Protocol):
    """Something that is done over and over, and may be done in several ways: set-ups, frozen values with a field per switch.

    `timed` gives a warm function that does a piece of the work and returns the seconds of each sample. `alike` compares numbers
    with those of the plain way; `let_go` forgets what other ways than these need.
    """

    block_s: float
    """About how long one timed piece takes; `calibrate` settles it."""

    @property
    def piece(self) -> str: ...
    def calibrate(self, setup: Any, *, budget_s: float) -> None: ...
    def changed(self, setup: Any, name: str, value: Any) -> Any: ...
    def alike(self, setup: Any) -> Likeness: ...
    def timed(self, setup: Any) -> Callable[[], float]: ...
    def let_go(self, *but: Any) -> None: ...


class Deadline:
    """How much time is left."""

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._ends_s, self.total_s = clock, clock() + seconds, seconds

    @property
    def left_s(self) -> float:
        return self._ends_s - self._clock()

    def share(self, part: float) -> Deadline:
        """A deadline of its own for a part of what is left."""
        return Deadline(max(0.0, self.left_s * part), clock=self._clock)


def attempt(work: Work, now: Any, trick: Any, *, budget_s: float) -> Attempt:
    """Equal? Then how fast? The time it takes to get ready counts towards `budget_s`, but an answer is given."""
    started_s = time.monotonic()
    likeness = work.alike(trick)
    if not likeness.equal:
        return Attempt(likeness)
    run_now, run_trick = work.timed(now), work.timed(trick)
    setup_s = time.monotonic() - started_s
    left_s = max(budget_s - setup_s, _needed_s(work))
    return Attempt(likeness, compare(run_now, run_trick, budget_s=left_s, min_pairs=MIN_PAIRS), setup_s)


def _needed_s(work: Work) -> float:
    """What the fewest measurements that give an answer take."""
    return 2 * (MIN_PAIRS + 1) * work.block_s


def quickest(run: Callable[[], float], *, budget_s: float) -> float:
    """Of three, as far as time goes: a busy moment of the machine should not decide how large pieces are."""
    started_s = time.monotonic()
    found = [run()]
    while len(found) < _LOOKS and time.monotonic() - started_s < budget_s:
        found.append(run())
    return min(found)


@dataclass
class PartTuner:
    """Tunes one kind of work. `num_samples` is how many a run goes through: what takes long to set up must repay it by then.

    `apart` is `attempt` in another process, which is ended when the time is over.
    """

    name: str
    work: Work
    deadline: Deadline
    on_event: OnEvent
    warn: Callable[[str], None]
    earlier: Sequence[Verdict] = ()
    num_samples: int = 0
    apart: Callable[..., Attempt] | None = None

    def run(self, before: Any, plain: Any, switches_of: Callable[[Any], list[Switch]]) -> TunedPart:
        """Try everything there is time for. `switches_of` gives what is worth trying from a set-up, once a piece has its size."""
        started_s, work = time.monotonic(), self.work
        self.trials: list[Verdict] = []
        self.direct: tuple[Any, Speedup] | None = None  # a set-up that was kept, and its comparison with the beginning itself
        work.calibrate(before, budget_s=_CALIBRATION_SHARE * self.deadline.left_s)
        if self.deadline.left_s < 2 * _needed_s(work):
            return untried(self.name, before, switches_of(before), NO_TIME)
        likeness, start = work.alike(before), before
        if not likeness.equal:
            if not work.alike(plain).equal:
                self.warn(f"{self.name}: even plain float32 gives other numbers when the device rounds it; nothing is changed")
                why = "cannot be compared: rounding alone changes the numbers of this network"
                return untried(self.name, before, switches_of(before), why)
            why = f"{self.name} as it runs now gives other numbers than plain float32 ({likeness.text})"
            self.warn(f"{why}; tuning begins with the plain way")
            start, reason = plain, f"as it was, the numbers were unequal: {likeness.text}"
            now = {name: getattr(before, name) for name in vars(plain)}
            self.trials += [Verdict(k, "kept", reason, now=now[k], value=v) for k, v in vars(plain).items() if now[k] != v]
        switches = switches_of(start)
        whole = self._conclude(start, self._try_all(start, switches), {one.name for one in switches if one.apart})
        return TunedPart(self.name, self.trials, whole, likeness.text, work.piece, time.monotonic() - started_s)

    def _try_all(self, start: Any, switches: Sequence[Switch]) -> Any:
        """The way that won. Earlier verdicts still hold."""
        current = start
        may_change = {switch.name for switch in switches if not switch.why_not}
        known = [one for one in self.earlier if one.switch in may_change]
        self.trials += known
        for verdict in known:
            if verdict.verdict == "kept":
                current = self.work.changed(current, verdict.switch, verdict.value)
        left = [switch for switch in switches if switch.name not in {one.switch for one in known}]
        for number, switch in enumerate(left):
            self._tell(number, len(left), switch.name)
            if switch.why_not:
                now = getattr(current, switch.name, None)
                self.trials.append(Verdict(switch.name, "not tried", switch.why_not, now=now))
                continue
            num_left = sum(max(1, len(one.values)) for one in left[number:])
            for tried, value in enumerate(switch.values):
                if value == getattr(current, switch.name):
                    continue
                needed_s = _needed_s(self.work)
                left_s = self.deadline.left_s - (0.0 if current == start else _WITH_SETUP * needed_s)
                fair_s = max(min(_LONGEST_TRIAL_S, left_s / max(1, num_left - tried)), _WITH_SETUP * needed_s)
                budget_s = left_s if switch.apart else min(left_s, fair_s)
                verdict = self._try(switch, value, start, current, budget_s=budget_s)
                self.trials.append(verdict)
                if verdict.verdict == "kept":
                    current = self.work.changed(current, switch.name, value)
                elif switch.ladder:
                    break
        self._tell(len(left), len(left), "")
        return current

    def _tell(self, done: int, total: int, trying: str) -> None:
        extra = {"trying": trying} if trying else {}
        self.on_event(Progress("tune", done, total, "switches", left_s=max(0.0, self.deadline.left_s), extra=extra))

    def _try(self, switch: Switch, value: Any, start: Any, current: Any, *, budget_s: float) -> Verdict:
        """One value of one switch, on top of what was kept."""
        verdict = Verdict(switch.name, "not tried", "", now=getattr(current, switch.name), value=value)
        if budget_s < _needed_s(self.work):
            return replace(verdict, reason=NO_TIME)
        trick = self.work.changed(current, switch.name, value)
        found = self._attempt(start, current, trick, apart=switch.apart, budget_s=budget_s)
        if isinstance(found, str):
            return replace(verdict, verdict="refused", reason=found)
        likeness, compared = found.likeness, found.compared
        verdict = replace(verdict, equality=likeness.figures)
        if found.why_not:
            return replace(verdict, reason=found.why_not)
        if not likeness.equal or compared is None:
            return replace(verdict, verdict="refused", reason=f"unequal: {likeness.text}")
        pairs = format_count(compared.pairs, "pair")
        if compared.pairs < MIN_PAIRS:
            return replace(verdict, reason=f"only {pairs} could be timed: ask for more --minutes")
        verdict = replace(verdict, verdict="refused", ratio=compared.ratio, interval=(compared.low, compared.high))
        if not compared.is_faster():
            return replace(verdict, reason=f"not faster: {compared.text} in {pairs}")
        saved_s = compared.plain_s - compared.trick_s
        worth_from = int(found.setup_s / max(1e-9, saved_s)) + 1 if switch.apart else 0  # samples until getting ready has paid
        if worth_from > self.num_samples:
            gained = f"{compared.text} as fast, which saves {format_seconds(self.num_samples * saved_s)} in such a run"
            unpaid = f"does not repay: {gained}, and getting ready takes {format_seconds(found.setup_s)}"
            return replace(verdict, reason=unpaid)
        if current == start:
            self.direct = trick, compared
        return replace(verdict, verdict="kept", reason=f"{compared.text} as fast; {likeness.text}", worth_from=worth_from)

    def _attempt(self, start: Any, now: Any, trick: Any, *, apart: bool, budget_s: float) -> Attempt | str:
        """What was found, or why it cannot be run."""
        from unchoke.machine.memory.oom import out_of_memory

        try:
            if apart and self.apart is not None:
                return self.apart(now, trick, budget_s=budget_s)
            self.work.let_go(start, now)
            return attempt(self.work, now, trick, budget_s=budget_s)
        except MachineError as error:
            return f"cannot be used here: {error.what}"
        except (RuntimeError, MemoryError) as error:
            lack = out_of_memory(error)
            first = (str(error).strip().splitlines() or [""])[0][:200]
            return f"does not fit in memory: {lack.message}" if lack else f"it fails: {type(error).__name__}: {first}"

    def _conclude(self, start: Any, after: Any, apart: set[str]) -> Speedup | None:
        """The winner against the beginning, as a whole; without a gain everything stays as it was."""
        kept = {one.switch for one in self.trials if one.verdict == "kept" and getattr(start, one.switch) != one.value}
        if not kept:
            return None
        if self.direct is not None and self.direct[0] == after:
            return self.direct[1]
        found = self._attempt(start, start, after, apart=bool(kept & apart), budget_s=self.deadline.left_s)
        whole = None if isinstance(found, str) else found.compared
        if isinstance(found, str):
            why = found
        elif found.why_not or (whole is not None and whole.pairs < MIN_PAIRS):
            return None  # no time: each was compared with those before it
        elif whole is None:
            why = f"together they are unequal: {found.likeness.text}"
        elif whole.low > 1:
            return whole
        else:
            why = f"together they are not faster than before: {whole.text}"
        for place, one in enumerate(self.trials):
            if one.switch in kept and one.verdict == "kept":
                self.trials[place] = replace(one, verdict="refused", reason=f"dropped: {why}")
        return whole


def untried(name: str, before: Any, switches: Sequence[Switch], why: str) -> TunedPart:
    """What would be tried, without trying it, and why it was not."""
    trials = [
        Verdict(switch.name, "not tried", switch.why_not or why, now=getattr(before, switch.name, None), value=value)
        for switch in switches
        for value in (switch.values if not switch.why_not else (None,))
    ]
    return TunedPart(name, trials)
