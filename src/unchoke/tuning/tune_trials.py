"""Switches tried one after the other, each on top of those that earned their place: the heart of `unchoke tune`.

In: some work, the way it is done now, switches with values to try, and a deadline. Out: an `Ending`: the way that won, and a
verdict on everything tried. A switch is kept only if the numbers stay those of the plain way and the gain exceeds the noise. In
the end the winner is held against the beginning once more, and dropped if it is not faster. What the work is, and which switches
there are, is said elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic

from unchoke.core.errors import MachineError
from unchoke.core.events import OnEvent, Progress
from unchoke.core.tuned import Verdict
from unchoke.core.units import format_count, format_seconds
from unchoke.tuning.compare import Compared
from unchoke.tuning.tune_work import MIN_PAIRS, NO_TIME, Apart, Attempt, Deadline, S, Switch, Work, attempt, needed_s

STAGE = "tune"
_LONGEST_TRIAL_S = 25.0
_WITH_SETUP = 1.5
"""What a trial takes with getting ready, as a multiple of what its measurements take."""


@dataclass(frozen=True)
class Ending(Generic[S]):
    """What came of it: the way before, the way that won, every verdict in order, and the last comparison of the two."""

    before: S
    after: S
    verdicts: list[Verdict]
    whole: Compared | None = None

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
        work: Work[S],
        before: S,
        *,
        deadline: Deadline,
        on_event: OnEvent,
        num_samples: int = 0,
        reserve_s: float = 0.0,
        apart: Apart[S] | None = None,
    ) -> None:
        self._work, self._before, self._current = work, before, before
        self._run_apart = apart or self._attempt
        self._deadline, self._on_event, self._num_samples = deadline, on_event, num_samples
        self._afterwards_s = reserve_s
        self._verdicts: list[Verdict] = []
        self._proven: tuple[S, Compared] | None = None
        self._apart: set[str] = set()
        self._shows: set[str] = set()

    def run(self, switches: Sequence[Switch], *, earlier: Sequence[Verdict] = ()) -> Ending[S]:
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
        judged = self._verdict(verdict, found, self._worth_from(found) if switch.repays else 0)
        if judged.verdict == "kept" and self._current == self._before and found.compared is not None and switch.timed == "train":
            self._proven = trick, found.compared
        return judged

    def _attempt(self, now: S, trick: S, *, timed: str, budget_s: float) -> Attempt:
        self._work.let_go(self._before, now)
        return attempt(self._work, now, trick, timed=timed, budget_s=budget_s)

    def _verdict(self, verdict: Verdict, found: Attempt, worth_from: int) -> Verdict:
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
        if worth_from > self._num_samples:
            return replace(verdict, reason=self._unpaid(compared, found.setup_s))
        return replace(verdict, verdict="kept", reason=f"{compared.text} as fast; {likeness.text}", worth_from=worth_from)

    def _worth_from(self, found: Attempt) -> int:
        """How many samples must be gone through until getting ready has paid."""
        saved_s = found.compared.plain_s - found.compared.trick_s if found.compared else 0.0
        return int(found.setup_s / max(1e-9, saved_s)) + 1

    def _unpaid(self, compared: Compared, setup_s: float) -> str:
        saved_s = self._num_samples * (compared.plain_s - compared.trick_s)
        gained = f"{compared.text} as fast, which saves {format_seconds(saved_s)} in such a run"
        return f"does not repay: {gained}, and getting ready takes {format_seconds(setup_s)}"

    def _conclude(self) -> Ending[S]:
        """The winner against the beginning, once more and as a whole; without a gain everything stays as it was.

        What was held against the beginning already, alone, needs no second look; what does not show in training is left out.
        """
        kept = {one.switch for one in self._verdicts if one.verdict == "kept"} & self._shows
        if not kept:
            return Ending(self._before, self._current, self._verdicts)
        proven, compared = self._proven or (self._before, None)
        if proven == self._current:
            return Ending(self._before, self._current, self._verdicts, compared)
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
        return Ending(self._before, self._current, self._verdicts, found.compared)

    def _back_to(self, setup: S, kept: set[str], why: str, whole: Compared | None) -> Ending[S]:
        """Refuse what was kept on the way from `setup` to here."""
        gone = {name for name in kept if getattr(setup, name) != getattr(self._current, name)}
        verdicts = [
            replace(one, verdict="refused", reason=why) if one.verdict == "kept" and one.switch in gone else one
            for one in self._verdicts
        ]
        for name in gone:
            self._current = self._current.changed(name, getattr(setup, name))
        return Ending(self._before, self._current, verdicts, whole)


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
