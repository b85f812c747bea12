"""`unchoke profile --try -- COMMAND`: what findings suggest is tried on the script itself, without editing it.

In: a recording and findings that name a remedy. The script is run again, sandboxed, for as many steps as were recorded (within
limits): plain, remedied, remedied, plain. Out: the first few findings with what came of it in `evidence["tried"]` and in words:
how much faster a step was, and whether the losses stayed what they were.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from unchoke.chokes.recording import Recording
from unchoke.chokes.script_run import run_aside
from unchoke.chokes.watch import remedies, rerun
from unchoke.core.events import Note, OnEvent, StageDone, StageStarted
from unchoke.core.findings import Finding
from unchoke.core.units import format_count

EQUAL, ROUNDED, NEARLY, AS_PLAIN = "equal", "equal to rounding", "nearly the same", "as alike as those of two plain runs"
DIFFERENT, UNSEEN = "different", "not seen"
ROUNDING = 1e-6
NEAR = 2e-2
"""What losses may differ by, on average, where a remedy changes pixels a little."""
_CLEARLY = 1.03
"""The slowest remedied run has to be this much faster than the fastest plain one."""
_FEWEST_STEPS = 3
TRIED = 3
_STEPS = 60
_EPOCHS = 3
"""What is kept from one epoch shows only in the next: long epochs get more steps, within the trial's time."""


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

    def step_s(self, first: int, steps: int) -> float:
        """Seconds of a step, from step `first` to step `steps`; evaluation and whatever else lies between included."""
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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def sentence(self) -> str:
        """For people: `tried: 1.84× as fast, losses equal over 40 steps`."""
        note = f" ({self.note})" if self.note else ""
        if self.ratio is None:
            return f"tried without result{note}"
        measured = f"{self.ratio:.2f}× as fast, losses {self.losses} over {format_count(self.steps, 'step')}{note}"
        return f"tried and refused: {measured}" if self.losses == DIFFERENT else f"tried: {measured}"


def judge(remedy: str, plain: Sequence[TrialRun], remedied: Sequence[TrialRun], *, epoch_steps: int = 0) -> RemedyVerdict:
    """Compare runs over the steps that all of them made; what remembers, from the second epoch on (of `epoch_steps` steps)."""
    failed = next((trial.note for trial in (*plain, *remedied) if trial.note), "")
    steps = min((len(trial.ends_s) for trial in (*plain, *remedied)), default=0)
    if failed or steps <= rerun.WARM_UP_STEPS:
        return RemedyVerdict(remedy, note=failed or f"{format_count(steps, 'step')} are too few to compare")
    if not all(trial.done for trial in remedied):
        return RemedyVerdict(remedy, note="it found nothing to change while the script runs")
    name, _ = remedies.split(remedy)
    # the warm-up is left out, and the epoch in which a remedy only takes note
    remembers = name in remedies.REMEMBER and rerun.WARM_UP_STEPS < epoch_steps <= steps - _FEWEST_STEPS
    first = epoch_steps if remembers else rerun.WARM_UP_STEPS
    plain_s, remedied_s = ([trial.step_s(first, steps) for trial in trials] for trials in (plain, remedied))
    ratio = fmean(plain_s) / fmean(remedied_s)
    losses = _agreement(plain, remedied, may_differ=name in remedies.CHANGES_PIXELS)
    faster = min(plain_s) > _CLEARLY * max(remedied_s)
    slower = min(remedied_s) > _CLEARLY * max(plain_s)
    helped = faster and losses not in (DIFFERENT, UNSEEN)
    notes = ["timed from the second epoch on"] if remembers else []
    if losses == DIFFERENT and name in remedies.RANDOM_IN_WORKERS:
        notes.insert(0, "numbers differ where augmentation is random in workers: compare metrics over a whole training instead")
    elif not (faster or slower):
        notes.insert(0, "no clear gain: runs of one kind differ as much")
    return RemedyVerdict(remedy, ratio, losses, steps, helped, "; ".join(notes))


def _agreement(plain: Sequence[TrialRun], remedied: Sequence[TrialRun], *, may_differ: bool) -> str:
    """How the losses of remedied runs compare with those of the plain ones; `may_differ`: a little is to be expected."""
    if not all(trial.losses for trial in (*plain, *remedied)):
        return UNSEEN
    pairs = [(one, other) for one in plain for other in remedied]
    # bit for bit; two losses that are no numbers are equal, too
    if all(repr(mine) == repr(its) for one, other in pairs for mine, its in zip(one.losses, other.losses, strict=False)):
        return EQUAL
    furthest = max(_furthest(one.losses, other.losses) for one, other in pairs)
    if furthest <= ROUNDING:
        return ROUNDED
    if furthest <= 2 * max((_furthest(one.losses, other.losses) for one, other in pairwise(plain)), default=0.0):
        return AS_PLAIN
    near = all(_mean_difference(one.losses, other.losses) <= NEAR for one, other in pairs)
    return NEARLY if near and may_differ else DIFFERENT


def _furthest(first: Sequence[float], second: Sequence[float]) -> float:
    """The largest relative difference of two losses of the same step; infinite where one is no number."""
    found = [
        abs(one - other) / max(abs(one), abs(other)) if one != other else 0.0 for one, other in zip(first, second, strict=False)
    ]
    return max(found) if found and all(difference == difference for difference in found) else float("inf")


def _mean_difference(first: Sequence[float], second: Sequence[float]) -> float:
    pairs = list(zip(first, second, strict=False))
    size = fmean(abs(one) for one, _ in pairs)
    return fmean(abs(one - other) for one, other in pairs) / size if size else float("inf")


def try_remedies(recording: Recording, findings: Sequence[Finding], folder: Path, *, tell: OnEvent) -> list[Finding]:
    """The findings, the first few that name a remedy with what it brought."""
    chosen = [finding for finding in findings if remedies.is_known(_remedy(finding))][:TRIED]
    if not chosen:
        tell(Note("nothing to try: no finding has a remedy that can be switched on while the script runs"))
        return list(findings)
    trials = _RemedyTrials(recording, folder, tell)
    tried: dict[str, RemedyVerdict] = {}
    try:
        for remedy in dict.fromkeys(map(_remedy, chosen)):
            tried[remedy] = trials.compare(remedy)
    except KeyboardInterrupt:  # what was tried before is still to be shown
        tell(Note("stopped trying", "warning"))
    return [_told(finding, tried.get(_remedy(finding))) if finding in chosen else finding for finding in findings]


def _remedy(finding: Finding) -> str:
    return str(finding.evidence.get("remedy", ""))


def _told(finding: Finding, tried: RemedyVerdict | None) -> Finding:
    if tried is None:
        return finding
    estimated = f"; estimated before: {finding.expected_gain}" if finding.expected_gain else ""
    evidence = {**finding.evidence, "tried": tried.to_dict()}
    return replace(finding, evidence=evidence, expected_gain=tried.sentence() + estimated)


class _RemedyTrials:
    """Runs of one script; the plain one after a remedy is the plain one before the next."""

    def __init__(self, recording: Recording, folder: Path, tell: OnEvent) -> None:
        self._recording = recording
        self._folder = folder
        self._tell = tell
        self._number = 0
        self._steps = num_steps(recording)
        self._plain: TrialRun | None = None

    def compare(self, remedy: str) -> RemedyVerdict:
        self._tell(StageStarted("try", f"{remedy}, {self._steps} steps: plain, remedied, remedied, plain"))
        began_s = time.perf_counter()
        before = self._plain or self._run("")
        first = self._run(remedy) if not before.note else before
        if first.note or not first.done:
            tried = judge(remedy, [before], [first])
            self._plain = before
        else:
            second = self._run(remedy)
            self._plain = self._run("")
            tried = judge(remedy, [before, self._plain], [first, second], epoch_steps=epoch_steps(self._recording))
        self._tell(StageDone("try", time.perf_counter() - began_s, f"{remedy}: {tried.sentence()}"))
        return tried

    def _run(self, remedy: str) -> TrialRun:
        """Run the recorded command for so many steps, loading as it does, with `remedy` switched on (or none)."""
        self._number += 1
        evaluated = [loader.number for loader in self._recording.loaders if loader.evaluation]
        environment = {
            rerun.TRIAL: str(self._steps),
            rerun.REMEDY: remedy,
            rerun.EVALUATED: ",".join(map(str, evaluated)),
            "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"),
            **remedies.environment(remedy),
        }
        records, why = run_aside(self._recording, self._folder, f"trial_{self._number}", environment)
        return TrialRun.from_records(records, f"with {remedy}, {why}" if remedy else why)


def num_steps(recording: Recording) -> int:
    """As many as were recorded, at most `_STEPS` or a few epochs."""
    return min(len(recording.steps), max(_STEPS, _EPOCHS * epoch_steps(recording)))


def epoch_steps(recording: Recording) -> int:
    """How many steps an epoch has, as far as the loader that was trained on most tells; 0 if it does not."""
    loader = max(recording.trained_loaders, key=lambda one: one.batches, default=None)
    if loader is None:
        return 0
    whole = loader.batches / max(1, loader.iterators)
    if loader.num_samples and loader.batch_size:
        whole = math.ceil(loader.num_samples / loader.batch_size)
    return math.ceil(whole * len(recording.steps) / loader.batches)  # a step may take several batches
