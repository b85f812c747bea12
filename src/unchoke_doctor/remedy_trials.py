"""`unchoke profile --try -- COMMAND`: what findings suggest is tried on the script itself, without editing it.

In: a recording and findings that name a remedy (`watch/remedies.py`). The script is run again, sandboxed, for as many steps
as were recorded (within limits): plain, remedied, remedied, plain. Out: the first few findings with what came of it in
`evidence["tried"]` and in words: how much faster a step was, and whether the losses stayed what they were.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from unchoke_doctor.finding import Finding
from unchoke_doctor.recording import Recording
from unchoke_doctor.script_run import run_aside
from unchoke_doctor.units import format_count
from unchoke_doctor.watch import remedies, rerun

EQUAL, ROUNDED, NEARLY, AS_PLAIN = "equal", "equal to rounding", "nearly the same", "as alike as those of two plain runs"
DIFFERENT, UNSEEN = "different", "not seen"
_ROUNDING, _NEAR = 1e-6, 2e-2
"""What losses may differ by: in the last digits; on average, where a remedy changes pixels a little."""
_CLEARLY = 1.03
"""The slowest remedied run has to be this much faster than the fastest plain one."""
_TRIED, _STEPS, _EPOCHS = 3, 60, 3


@dataclass(frozen=True)
class TrialRun:
    """One sandboxed run. `done`: how often the remedy took effect, over all processes; `note`: why there are no steps."""

    ends_s: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()
    done: int = 0
    note: str = ""

    @classmethod
    def from_records(cls, records: Iterable[Mapping[str, Any]], note: str = "") -> TrialRun:
        found: Mapping[str, Any] = {}
        done = 0
        for record in records:
            found = (record.get("facts") or {}).get("trial") or found
            done += int((record.get("remedy") or {}).get("done", 0))
        return cls(tuple(found.get("ends_s", ())), tuple(found.get("losses", ())), done, "" if found else note)

    def step_s(self, steps: int) -> float:
        """Seconds of a step after the warm-up, evaluation and whatever else lies between included."""
        first = rerun.WARM_UP_STEPS
        return (self.ends_s[steps - 1] - self.ends_s[first - 1]) / (steps - first)


@dataclass(frozen=True)
class RemedyVerdict:
    """What a remedy did over `steps` steps. `helped`: clearly faster, with losses that agree."""

    remedy: str
    ratio: float | None = None
    losses: str = UNSEEN
    steps: int = 0
    helped: bool = False
    note: str = ""

    def sentence(self) -> str:
        """For people: `tried: 1.84× as fast, losses equal over 40 steps`."""
        note = f" ({self.note})" if self.note else ""
        if self.ratio is None:
            return f"tried without result{note}"
        measured = f"{self.ratio:.2f}× as fast, losses {self.losses} over {format_count(self.steps, 'step')}{note}"
        return f"tried and refused: {measured}" if self.losses == DIFFERENT else f"tried: {measured}"


def judge(remedy: str, plain: Sequence[TrialRun], remedied: Sequence[TrialRun]) -> RemedyVerdict:
    """Compare runs over the steps that all of them made."""
    failed = next((trial.note for trial in (*plain, *remedied) if trial.note), "")
    steps = min((len(trial.ends_s) for trial in (*plain, *remedied)), default=0)
    if failed or steps <= rerun.WARM_UP_STEPS:
        return RemedyVerdict(remedy, note=failed or f"{format_count(steps, 'step')} are too few to compare")
    if not all(trial.done for trial in remedied):
        return RemedyVerdict(remedy, note="it found nothing to change while the script runs")
    name = remedy.partition(":")[0]
    plain_s, remedied_s = ([trial.step_s(steps) for trial in trials] for trials in (plain, remedied))
    losses = _agreement(plain, remedied, may_differ=name in remedies.CHANGES_PIXELS)
    faster, slower = min(plain_s) > _CLEARLY * max(remedied_s), min(remedied_s) > _CLEARLY * max(plain_s)
    note = ""
    if losses == DIFFERENT and name in remedies.RANDOM_IN_WORKERS:
        note = "numbers differ where augmentation is random in workers: compare metrics over a whole training instead"
    elif not (faster or slower):
        note = "no clear gain: runs of one kind differ as much"
    return RemedyVerdict(
        remedy, fmean(plain_s) / fmean(remedied_s), losses, steps, faster and losses not in (DIFFERENT, UNSEEN), note
    )


def _agreement(plain: Sequence[TrialRun], remedied: Sequence[TrialRun], *, may_differ: bool) -> str:
    """How the losses of remedied runs compare with those of the plain ones; `may_differ`: a little is to be expected."""
    if not all(trial.losses for trial in (*plain, *remedied)):
        return UNSEEN
    pairs = [(one.losses, other.losses) for one in plain for other in remedied]
    # bit for bit; two losses that are no numbers are equal, too
    if all(repr(mine) == repr(its) for one, other in pairs for mine, its in zip(one, other, strict=False)):
        return EQUAL
    furthest = max(_furthest(one, other) for one, other in pairs)
    if furthest <= _ROUNDING:
        return ROUNDED
    if furthest <= 2 * max((_furthest(one.losses, other.losses) for one, other in pairwise(plain)), default=0.0):
        return AS_PLAIN
    near = all(_mean_difference(one, other) <= _NEAR for one, other in pairs)
    return NEARLY if near and may_differ else DIFFERENT


def _furthest(first: Sequence[float], second: Sequence[float]) -> float:
    """The largest relative difference of two losses of the same step; infinite where one is no number."""
    pairs = zip(first, second, strict=False)
    found = [abs(one - other) / max(abs(one), abs(other)) if one != other else 0.0 for one, other in pairs]
    return max(found) if found and all(difference == difference for difference in found) else float("inf")


def _mean_difference(first: Sequence[float], second: Sequence[float]) -> float:
    pairs = list(zip(first, second, strict=False))
    size = fmean(abs(one) for one, _ in pairs)
    return fmean(abs(one - other) for one, other in pairs) / size if size else float("inf")


def try_remedies(recording: Recording, findings: Sequence[Finding], folder: Path, *, say: Callable[[str], None]) -> list[Finding]:
    """The findings, the first few that name a remedy with what it brought."""
    asked = list(dict.fromkeys(remedy for finding in findings if remedies.is_known(remedy := _remedy(finding))))[:_TRIED]
    if not asked:
        say("note   nothing to try: no finding has a remedy that can be switched on while the script runs")
    trials = _Trials(recording, folder)
    tried: dict[str, RemedyVerdict] = {}
    try:
        for remedy in asked:
            say(f"try    {remedy}, {format_count(trials.steps, 'step')}: plain, remedied, remedied, plain")
            tried[remedy] = trials.compare(remedy)
            say(f"       {remedy}: {tried[remedy].sentence()}")
    except KeyboardInterrupt:  # what was tried before is still to be shown
        say("note   stopped trying")
    return [_told(finding, tried[_remedy(finding)]) if _remedy(finding) in tried else finding for finding in findings]


def _remedy(finding: Finding) -> str:
    return str(finding.evidence.get("remedy", ""))


def _told(finding: Finding, tried: RemedyVerdict) -> Finding:
    estimated = f"; estimated before: {finding.expected_gain}" if finding.expected_gain else ""
    return replace(finding, evidence={**finding.evidence, "tried": asdict(tried)}, expected_gain=tried.sentence() + estimated)


class _Trials:
    """Runs of one script; the plain one after a remedy is the plain one before the next."""

    def __init__(self, recording: Recording, folder: Path) -> None:
        self._recording, self._folder = recording, folder
        self._number = 0
        loader = max(recording.trained_loaders, key=lambda one: one.batches, default=None)
        epoch_steps = 0
        if loader is not None:
            whole = (
                math.ceil(loader.num_samples / loader.batch_size)
                if loader.num_samples and loader.batch_size
                else loader.batches / max(1, loader.iterators)
            )
            epoch_steps = math.ceil(whole * len(recording.steps) / loader.batches)  # a step may take several batches
        self.steps = min(len(recording.steps), max(_STEPS, _EPOCHS * epoch_steps))
        self._plain: TrialRun | None = None

    def compare(self, remedy: str) -> RemedyVerdict:
        before = self._plain or self._run("")
        first = self._run(remedy) if not before.note else before
        if first.note or not first.done:
            self._plain = before
            return judge(remedy, [before], [first])
        second = self._run(remedy)
        self._plain = self._run("")
        return judge(remedy, [before, self._plain], [first, second])

    def _run(self, remedy: str) -> TrialRun:
        """Run the recorded command for so many steps, loading as it does, with `remedy` switched on (or none)."""
        self._number += 1
        evaluated = [loader.number for loader in self._recording.loaders if loader.evaluation]
        asked = {rerun.TRIAL: str(self.steps), rerun.REMEDY: remedy, rerun.EVALUATED: ",".join(map(str, evaluated))}
        asked["PYTHONHASHSEED"] = os.environ.get("PYTHONHASHSEED", "0")
        records, why = run_aside(self._recording, self._folder, f"trial_{self._number}", asked)
        return TrialRun.from_records(records, f"with {remedy}, {why}" if remedy else why)
