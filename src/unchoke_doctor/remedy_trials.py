"""`unchoke profile --try -- COMMAND`: what findings suggest is tried on the script itself, without editing it.

In: a recording and findings that name a remedy (`watch/remedies.py`). The script is run again, sandboxed, for as many steps
as were recorded (within limits): plain, remedied, remedied, plain. Out: the first few findings with what came of it in
`evidence["tried"]` and in words: how much faster a step was, and whether the losses stayed what they were.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
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
    note = "" if faster or slower else "no clear gain: runs of one kind differ as much"
    if losses == DIFFERENT and name in remedies.RANDOM_IN_WORKERS:
        note = "numbers differ where augmentation is random in workers: compare metrics over a whole training instead"
    helped = faster and losses not in (DIFFERENT, UNSEEN)
    return RemedyVerdict(remedy, fmean(plain_s) / fmean(remedied_s), losses, steps, helped, note)


def _agreement(plain: Sequence[TrialRun], remedied: Sequence[TrialRun], *, may_differ: bool) -> str:
    """How the losses of remedied runs compare with those of the plain ones; `may_differ`: a little is to be expected."""
    if not all(trial.losses for trial in (*plain, *remedied)):
        return UNSEEN
    pairs = [list(zip(one.losses, other.losses, strict=False)) for one in plain for other in remedied]
    # bit for bit; two losses that are no numbers are equal, too
    if all(repr(mine) == repr(its) for pair in pairs for mine, its in pair):
        return EQUAL
    furthest = max(map(_furthest, pairs))
    if furthest <= _ROUNDING:
        return ROUNDED
    if furthest <= 2 * _furthest(list(zip(plain[0].losses, plain[-1].losses, strict=False))):
        return AS_PLAIN
    size = fmean(abs(mine) for pair in pairs for mine, _ in pair)
    near = all(fmean(abs(mine - its) for mine, its in pair) <= _NEAR * size for pair in pairs)
    return NEARLY if near and may_differ else DIFFERENT


def _furthest(pairs: Sequence[tuple[float, float]]) -> float:
    """The largest relative difference of two losses of the same step; infinite where one is no number."""
    found = [abs(one - other) / max(abs(one), abs(other)) if one != other else 0.0 for one, other in pairs]
    return max(found) if found and not any(map(math.isnan, found)) else math.inf


def try_remedies(recording: Recording, findings: Sequence[Finding], folder: Path, *, say: Callable[[str], None]) -> list[Finding]:
    """The findings, the first few that name a remedy with what it brought."""
    named = [str(finding.evidence.get("remedy", "")) for finding in findings]
    asked = list(dict.fromkeys(filter(remedies.is_known, named)))[:_TRIED]
    if not asked:
        say("note   nothing to try: no finding has a remedy that can be switched on while the script runs")
    steps, runs = _num_steps(recording), 0

    def run(remedy: str) -> TrialRun:
        """The recorded command for so many steps, loading as it does, with `remedy` switched on (or none)."""
        nonlocal runs
        runs += 1
        evaluated = ",".join(str(loader.number) for loader in recording.loaders if loader.evaluation)
        more = {rerun.TRIAL: str(steps), rerun.REMEDY: remedy, rerun.EVALUATED: evaluated}
        more["PYTHONHASHSEED"] = os.environ.get("PYTHONHASHSEED", "0")
        records, why = run_aside(recording, folder, f"trial_{runs}", more)
        found: dict[str, Any] = next((trial for one in records if (trial := (one.get("facts") or {}).get("trial"))), {})
        done = sum(int((one.get("remedy") or {}).get("done", 0)) for one in records)
        note = "" if found else f"with {remedy}, {why}" if remedy else why
        return TrialRun(tuple(found.get("ends_s", ())), tuple(found.get("losses", ())), done, note)

    tried: dict[str, RemedyVerdict] = {}
    try:
        plain = run("") if asked else TrialRun()
        for remedy in asked:
            say(f"try    {remedy}, {format_count(steps, 'step')}: plain, remedied, remedied, plain")
            before, first = plain, run(remedy) if not plain.note else plain
            again = not first.note and first.done
            remedied = [first, run(remedy)] if again else [first]
            plain = run("") if again else plain  # the plain run after a remedy is the one before the next
            tried[remedy] = judge(remedy, [before, plain], remedied)
            say(f"       {remedy}: {tried[remedy].sentence()}")
    except KeyboardInterrupt:  # what was tried before is still to be shown
        say("note   stopped trying")
    return [_told(finding, tried[name]) if name in tried else finding for finding, name in zip(findings, named, strict=True)]


def _num_steps(recording: Recording) -> int:
    """Three epochs, or some steps, or as many as were recorded."""
    loader, epoch_steps = max(recording.trained_loaders, key=lambda one: one.batches, default=None), 0
    if loader is not None:
        known = loader.num_samples and loader.batch_size
        whole = math.ceil(loader.num_samples / loader.batch_size) if known else loader.batches / max(1, loader.iterators)  # type: ignore[operator]
        epoch_steps = math.ceil(whole * len(recording.steps) / loader.batches)  # a step may take several batches
    return min(len(recording.steps), max(_STEPS, _EPOCHS * epoch_steps))


def _told(finding: Finding, verdict: RemedyVerdict) -> Finding:
    estimated = f"; estimated before: {finding.expected_gain}" if finding.expected_gain else ""
    gain = verdict.sentence() + estimated
    return replace(finding, evidence={**finding.evidence, "tried": asdict(verdict)}, expected_gain=gain)
