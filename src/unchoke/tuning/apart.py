"""A trial in a process of its own: for tricks that may take for ever to get ready, such as compiling.

In: two ways to train, and how long it may take. Out: what `attempt` gives, or why there was nothing. The process builds the same
training from the same values, and is ended when its time is over. Running out of memory there is an answer, too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from unchoke.core.units import format_seconds
from unchoke.machine.memory.probe import Measured, probe
from unchoke.training.network.training_job import TrainingJob
from unchoke.tuning.compare import Likeness
from unchoke.tuning.tune_training import TrainSetup, TrainWork
from unchoke.tuning.tune_work import NO_TIME, Attempt, attempt

TARGET = "unchoke.tuning.apart:run_apart"
_UNKNOWN = Likeness(False, "not looked at")


@dataclass(frozen=True, eq=False)
class Asked:
    """What the other process is to do."""

    job: TrainingJob
    num_judged: int
    folder: Path
    batch_size: int
    steps: int
    now: TrainSetup
    trick: TrainSetup
    timed: str
    budget_s: float


@dataclass(frozen=True)
class Answered(Measured):
    """What it found, in the form in which such processes answer."""

    attempt: Attempt = field(default_factory=lambda: Attempt(_UNKNOWN))


def attempt_apart(work: TrainWork, now: TrainSetup, trick: TrainSetup, *, timed: str, budget_s: float) -> Attempt:
    """Ask another process; one that does not answer in time is ended."""
    if budget_s <= 0:
        return Attempt(_UNKNOWN, why_not=NO_TIME)
    piece = (work.folder, work.batch_size, work.steps)
    asked = Asked(work.job, work.num_judged, *piece, now, trick, timed, budget_s)
    (found,) = probe(TARGET, asked, [work.batch_size], timeout_s=budget_s)
    if isinstance(found.measured, Answered):
        return found.measured.attempt
    if found.outcome == "timed out":
        why = f"it was not ready and compared within the {format_seconds(budget_s)} left for it: ask for more --minutes"
        return Attempt(_UNKNOWN, why_not=why)
    raise MemoryError(found.fact)


def run_apart(asked: Asked, batch: int) -> Answered:
    """The other end: one attempt, with an eye on the clock."""
    started_s = time.monotonic()
    work = TrainWork(asked.job, num_judged=asked.num_judged, folder=asked.folder)
    work.batch_size, work.steps = asked.batch_size, asked.steps
    left_s = 0.9 * asked.budget_s - (time.monotonic() - started_s)
    found = attempt(work, asked.now, asked.trick, timed=asked.timed, budget_s=left_s)
    seconds = found.compared.trick_s * batch if found.compared else 0.0
    return Answered(0, seconds, attempt=found)
