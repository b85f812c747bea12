"""One kind of work, tuned from beginning to end: the heart of `unchoke tune`.

In: work that can be done in several ways, the way it is done now and the plain way, switches with values to try, and a deadline.
Out: a `TunedPart` for people and the verdicts for `unchoke.toml`. Where the way it is done now gives other numbers than the plain
one, tuning begins with the plain one, and what differed is a verdict of its own: right comes before fast. Switches are tried one
after the other, each on top of those that earned their place: kept only if the numbers stay those of the plain way and the gain
exceeds the noise. In the end the winner is held against the beginning once more, and dropped if it is not faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol

from unchoke.core.errors import MachineError
from unchoke.core.events import OnEvent, Progress
from unchoke.core.tuned import Verdict
from unchoke.core.units import format_count, format_seconds
from unchoke.tuning.compare import (
    MIN_PAIRS,
    NO_TIME,
    Attempt,
    Deadline,
    S,
    SeparateAttempt,
    Setup,
    Speedup,
    W,
    Workload,
    attempt,
    compare,
    needed_s,
)
from unchoke.tuning.switches import Switch
from unchoke.tuning.tune_result import LoadingCost, TunedPart

STAGE = "tune"
_LONGEST_TRIAL_S = 25.0
_WITH_SETUP = 1.5
"""What a trial takes with getting ready, as a multiple of what its measurements take."""
_LOOKS = 3
"""Pairs of measurements that tell what loading costs."""
_CALIBRATION_SHARE = 0.05
_LOOK_SHARE = 0.2
"""Of the time left: it is not looked at if that would take more."""


@dataclass(frozen=True)
class TrialsOutcome(Generic[S]):
    """The result of a round: the way before, the way that won, every verdict in order, and the last comparison of the two."""

    before: S
    after: S
    verdicts: list[Verdict]
    whole: Speedup | None = None

    def of_switches(self) -> dict[str, Verdict]:
        """One verdict for each switch: what was kept, else the best that was refused, else why nothing was tried."""
        rank = {"kept": 2, "refused": 1, "not tried": 0}
        found: dict[str, Verdict] = {}
        for one in self.verdicts:
            best = found.get(one.switch)
            if best is None or (rank[one.verdict], one.ratio or 0.0) >= (rank[best.verdict], best.ratio or 0.0):
                found[one.switch] = one
        return found


class Trials(Generic[S]):
    """One round of trials. `num_samples` is how many a run goes through: what takes long to set up must repay it by then.

    `reserve_s` of the time are left for what the caller does afterwards, if anything is kept.
    """

    def __init__(
        self,
        work: Workload[S],
        before: S,
        *,
        deadline: Deadline,
        on_event: OnEvent,
        num_samples: int = 0,
        reserve_s: float = 0.0,
        apart: SeparateAttempt[S] | None = None,
    ) -> None:
        self._work, self._before, self._current = work, before, before
        self._run_apart = apart or self._attempt
        self._deadline, self._on_event, self._num_samples = deadline, on_event, num_samples
        self._afterwards_s = reserve_s
        self._verdicts: list[Verdict] = []
        self._proven: tuple[S, Speedup] | None = None
        self._apart: set[str] = set()
        self._shows: set[str] = set()

    def run(self, switches: Sequence[Switch], *, earlier: Sequence[Verdict] = ()) -> TrialsOutcome[S]:
        """Try everything there is time for; `earlier` verdicts still hold."""
        open_ones = {switch.name for switch in switches if not switch.why_not}
        for verdict in (one for one in earlier if one.switch in open_ones):
            self._verdicts.append(verdict)
            if verdict.verdict == "kept":
                self._current = self._current.changed(verdict.switch, verdict.value)
        known = {verdict.switch for verdict in self._verdicts}
        left = [switch for switch in switches if switch.name not in known]
        self._apart = {switch.name for switch in switches if switch.apart}
        self._shows = {switch.name for switch in switches if switch.timed == "train"}
        for number, switch in enumerate(left):
            self._tell(number, len(left), switch.name)
            self._try(switch, num_left=sum(max(1, len(one.values)) for one in left[number:]))
        self._tell(len(left), len(left), "")
        return self._conclude()

    def _tell(self, done: int, total: int, trying: str) -> None:
        extra = {"trying": trying} if trying else {}
        self._on_event(Progress(STAGE, done, total, "switches", left_s=max(0.0, self._deadline.left_s), extra=extra))

    def _try(self, switch: Switch, *, num_left: int) -> None:
        """Every value of one switch."""
        if switch.why_not:
            now = getattr(self._current, switch.name, None)
            self._verdicts.append(Verdict(switch.name, "not tried", switch.why_not, now=now))
            return
        for number, value in enumerate(switch.values):
            if value == getattr(self._current, switch.name):
                continue
            verdict = self._judge(switch, value, budget_s=self._budget_s(switch, num_left - number))
            self._verdicts.append(verdict)
            if verdict.verdict == "kept":
                self._current = self._current.changed(switch.name, value)
            elif switch.ladder:
                return

    def _budget_s(self, switch: Switch, num_left: int) -> float:
        """A fair share of what is left, but enough for an answer: those that promise most come first."""
        to_come_s = 0.0 if self._current == self._before else self._afterwards_s + _WITH_SETUP * needed_s(self._work)
        left_s = self._deadline.left_s - to_come_s
        fair_s = min(_LONGEST_TRIAL_S, left_s / max(1, num_left))
        return left_s if switch.apart else min(left_s, max(fair_s, _WITH_SETUP * needed_s(self._work)))

    def _judge(self, switch: Switch, value: Any, *, budget_s: float) -> Verdict:
        verdict = Verdict(switch.name, "not tried", "", now=getattr(self._current, switch.name), value=value)
        if budget_s < needed_s(self._work):
            return replace(verdict, reason=NO_TIME)
        trick = self._current.changed(switch.name, value)
        failed: list[str] = []
        with _saying_why(failed):
            run = self._run_apart if switch.apart else self._attempt
            found = run(self._current, trick, timed=switch.timed, budget_s=budget_s)
        if failed:
            return replace(verdict, verdict="refused", reason=failed[0])
        judged = self._verdict(verdict, found, repays=switch.repays)
        if judged.verdict == "kept" and self._current == self._before and found.compared is not None and switch.timed == "train":
            self._proven = trick, found.compared
        return judged

    def _attempt(self, now: S, trick: S, *, timed: str, budget_s: float) -> Attempt:
        self._work.let_go(self._before, now)
        return attempt(self._work, now, trick, timed=timed, budget_s=budget_s)

    def _verdict(self, verdict: Verdict, found: Attempt, *, repays: bool) -> Verdict:
        likeness, compared = found.likeness, found.compared
        verdict = replace(verdict, equality=likeness.figures)
        if found.why_not:
            return replace(verdict, reason=found.why_not)
        if not likeness.equal or compared is None:
            return replace(verdict, verdict="refused", reason=f"unequal: {likeness.text}")
        if compared.pairs < MIN_PAIRS:
            return replace(verdict, reason=f"only {format_count(compared.pairs, 'pair')} could be timed: ask for more --minutes")
        verdict = replace(verdict, verdict="refused", ratio=compared.ratio, interval=(compared.low, compared.high))
        if not compared.is_faster():
            return replace(verdict, reason=f"not faster: {compared.text} in {format_count(compared.pairs, 'pair')}")
        saved_s = compared.plain_s - compared.trick_s
        worth_from = int(found.setup_s / max(1e-9, saved_s)) + 1 if repays else 0  # samples until getting ready has paid
        if worth_from > self._num_samples:
            gained = f"{compared.text} as fast, which saves {format_seconds(self._num_samples * saved_s)} in such a run"
            unpaid = f"does not repay: {gained}, and getting ready takes {format_seconds(found.setup_s)}"
            return replace(verdict, reason=unpaid)
        return replace(verdict, verdict="kept", reason=f"{compared.text} as fast; {likeness.text}", worth_from=worth_from)

    def _conclude(self) -> TrialsOutcome[S]:
        """The winner against the beginning, once more and as a whole; without a gain everything stays as it was.

        What was held against the beginning already, alone, needs no second look; what does not show in training is left out.
        """
        kept = {one.switch for one in self._verdicts if one.verdict == "kept"} & self._shows
        if not kept:
            return TrialsOutcome(self._before, self._current, self._verdicts)
        proven, compared = self._proven or (self._before, None)
        if proven == self._current:
            return TrialsOutcome(self._before, self._current, self._verdicts, compared)
        failed: list[str] = []
        with _saying_why(failed):
            run = self._run_apart if kept & self._apart else self._attempt
            found = run(self._before, self._current, timed="train", budget_s=self._deadline.left_s - self._afterwards_s)
        if not failed and not (found.why_not or found.likeness.equal):
            failed.append(f"together they are unequal: {found.likeness.text}")
        if failed:
            return self._back_to(self._before, kept, f"dropped: {failed[0]}", None)
        if found.compared is None or found.compared.pairs < MIN_PAIRS:
            return self._back_to(proven, kept, "there was no time to compare all that was kept with the beginning", compared)
        if found.compared.low <= 1:
            why = f"dropped: together they are not faster than before: {found.compared.text}"
            return self._back_to(self._before, kept, why, found.compared)
        return TrialsOutcome(self._before, self._current, self._verdicts, found.compared)

    def _back_to(self, setup: S, kept: set[str], why: str, whole: Speedup | None) -> TrialsOutcome[S]:
        """Refuse what was kept on the way from `setup` to here."""
        gone = {name for name in kept if getattr(setup, name) != getattr(self._current, name)}
        verdicts = [
            replace(one, verdict="refused", reason=why) if one.verdict == "kept" and one.switch in gone else one
            for one in self._verdicts
        ]
        for name in gone:
            self._current = self._current.changed(name, getattr(setup, name))
        return TrialsOutcome(self._before, self._current, verdicts, whole)


@contextmanager
def _saying_why(failed: list[str]) -> Iterator[None]:
    """A trick that cannot be run is refused with what it said; a lack of memory is said as one."""
    from unchoke.machine.memory.oom import out_of_memory

    try:
        yield
    except MachineError as error:
        failed.append(f"cannot be used here: {error.what}")
    except (RuntimeError, MemoryError) as error:
        lack = out_of_memory(error)
        first = (str(error).strip().splitlines() or [""])[0][:200]
        failed.append(f"does not fit in memory: {lack.message}" if lack else f"it fails: {type(error).__name__}: {first}")


class TunableWork(Workload[W], Protocol[W]):
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
class TuneTask:
    """What a round of tuning is given beside the work. `num_samples` is how many a run goes through."""

    name: str
    unit: str
    deadline: Deadline
    on_event: OnEvent
    warn: Callable[[str], None]
    earlier: Sequence[Verdict] = ()
    num_samples: int = 0


def tune_part(
    task: TuneTask,
    work: TunableWork[S],
    before: S,
    plain: S,
    switches: Callable[[S], list[Switch]],
    *,
    apart: SeparateAttempt[S] | None = None,
) -> tuple[TunedPart, dict[str, Verdict]]:
    """Tune one kind of work. `switches` gives what is worth trying, once the size of a piece is known."""
    started_s = time.monotonic()
    work.calibrate(before, budget_s=_CALIBRATION_SHARE * task.deadline.left_s)
    if task.deadline.left_s < 2 * needed_s(work):
        return _untried(task, before, switches(before), NO_TIME)
    likeness = work.alike(before)
    if not likeness.equal and not work.alike(plain).equal:
        task.warn(f"{task.name}: even plain float32 gives other numbers when the device rounds it; everything stays as it is")
        return _untried(task, before, switches(before), "cannot be compared: rounding alone changes the numbers of this network")
    start = before if likeness.equal else plain
    righted = [] if likeness.equal else _righted(task, before, plain, likeness.text)
    look_s = 2 * (_LOOKS + 1) * work.block_s
    loading_before = _look(work, start, budget_s=look_s) if look_s < _LOOK_SHARE * task.deadline.left_s else None
    trials = Trials(
        work,
        start,
        deadline=task.deadline,
        on_event=task.on_event,
        num_samples=task.num_samples,
        reserve_s=look_s if loading_before else 0.0,
        apart=apart,
    )
    ending = trials.run(_worth_trying(switches(start), loading_before), earlier=task.earlier)
    loading_after = loading_before
    if loading_before and ending.after != start:
        loading_after = _look(work, ending.after, budget_s=look_s) if task.deadline.left_s > look_s else None
    part = TunedPart(
        task.name,
        task.unit,
        [*righted, *ending.verdicts],
        whole=ending.whole,
        head_room=LoadingCost(*loading_before, *(loading_after or (None, None))) if loading_before else None,
        equality=likeness.text,
        piece=work.piece,
        seconds=time.monotonic() - started_s,
    )
    return part, {**ending.of_switches(), **{one.switch: one for one in righted}}


def _worth_trying(switches: list[Switch], loading: tuple[float, float] | None) -> list[Switch]:
    """Where loading costs next to nothing, what could only make it faster is not tried."""
    if loading is None or LoadingCost(*loading).matters:
        return switches
    why_not = "nothing to gain: with loading free, a sample takes as long"
    return [replace(one, why_not=one.why_not or why_not) if one.loads else one for one in switches]


def _look(work: TunableWork[S], setup: S, *, budget_s: float) -> tuple[float, float]:
    """Seconds of a sample as it is, and with loading free, in turns."""
    work.let_go(setup)
    found = compare(work.timed(setup, "train"), work.free(setup), budget_s=budget_s, min_pairs=_LOOKS)
    return found.plain_s, found.trick_s


def _righted(task: TuneTask, before: Setup, plain: Setup, why: str) -> list[Verdict]:
    """The switches that must change for the numbers to be right."""
    task.warn(f"{task.name} as it runs now gives other numbers than plain float32 ({why}); tuning begins with the plain way")
    values: dict[str, Any] = {name: value for name, value in vars(plain).items() if getattr(before, name) != value}
    return [
        Verdict(name, "kept", f"as it was, the numbers were unequal: {why}", now=getattr(before, name), value=value)
        for name, value in values.items()
    ]


def _untried(task: TuneTask, before: Setup, switches: Sequence[Switch], why: str) -> tuple[TunedPart, dict[str, Verdict]]:
    """Nothing can be told, and nothing is changed."""
    part = planned(task.name, task.unit, before, switches)
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
