"""`unchoke profile --try -- COMMAND`: what findings suggest is tried on the script itself, without editing it.

In: a recording and findings that name a remedy. The script is run again, sandboxed, for as many steps as were recorded (within
limits): plain, remedied, remedied, plain. Out: the findings, with what came of it in `evidence["tried"]` and in words. The first
few findings are tried; of losses that differ the finding says so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from unchoke.chokes.recording import Recording
from unchoke.chokes.remedied import Trial, Tried, judge
from unchoke.chokes.script_run import run_trial
from unchoke.chokes.watch import remedies
from unchoke.core.events import Note, OnEvent, StageDone, StageStarted
from unchoke.core.findings import Finding

TRIED = 3
_STEPS = 60
_EPOCHS = 3
"""What is kept from one epoch shows only in the next: long epochs get more steps, within the trial's time."""


def try_remedies(recording: Recording, findings: Sequence[Finding], folder: Path, *, tell: OnEvent) -> list[Finding]:
    """The findings, the first few that name a remedy with what it brought."""
    chosen = [finding for finding in findings if remedies.is_known(_remedy(finding))][:TRIED]
    if not chosen:
        tell(Note("nothing to try: no finding has a remedy that can be switched on while the script runs"))
        return list(findings)
    trials = _Trials(recording, folder, tell)
    tried: dict[str, Tried] = {}
    try:
        for remedy in dict.fromkeys(map(_remedy, chosen)):
            tried[remedy] = trials.compare(remedy)
    except KeyboardInterrupt:  # what was tried before is still to be shown
        tell(Note("stopped trying", "warning"))
    return [_told(finding, tried.get(_remedy(finding))) if finding in chosen else finding for finding in findings]


def _remedy(finding: Finding) -> str:
    return str(finding.evidence.get("remedy", ""))


def _told(finding: Finding, tried: Tried | None) -> Finding:
    if tried is None:
        return finding
    estimated = f"; estimated before: {finding.expected_gain}" if finding.expected_gain else ""
    evidence = {**finding.evidence, "tried": tried.to_dict()}
    return replace(finding, evidence=evidence, expected_gain=tried.sentence() + estimated)


class _Trials:
    """Runs of one script; the plain one after a remedy is the plain one before the next."""

    def __init__(self, recording: Recording, folder: Path, tell: OnEvent) -> None:
        self._recording = recording
        self._folder = folder
        self._tell = tell
        self._number = 0
        self._steps = num_steps(recording)
        self._plain: Trial | None = None

    def compare(self, remedy: str) -> Tried:
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

    def _run(self, remedy: str) -> Trial:
        self._number += 1
        return run_trial(self._recording, self._folder, number=self._number, steps=self._steps, remedy=remedy)


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
