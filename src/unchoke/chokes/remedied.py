"""Whether a remedy helped: seconds a step with it and without, and whether the losses stayed what they were.

In come the records of sandboxed runs of one script over the same steps, plain and remedied ones; out comes a verdict as plain
data, with the sentence for it. Nothing is run here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from unchoke.chokes.watch import remedies
from unchoke.chokes.watch.rerun import WARM_UP_STEPS
from unchoke.core.units import format_count

EQUAL, ROUNDED, NEARLY, AS_PLAIN = "equal", "equal to rounding", "nearly the same", "as alike as those of two plain runs"
DIFFERENT, UNSEEN = "different", "not seen"
ROUNDING = 1e-6
NEAR = 2e-2
"""What losses may differ by, on average, where a remedy changes pixels a little."""
_CLEARLY = 1.03
"""The slowest remedied run has to be this much faster than the fastest plain one."""
_FEWEST_STEPS = 3


@dataclass(frozen=True)
class Trial:
    """One sandboxed run. `done`: how often the remedy took effect, over all processes; `note`: why there are no steps."""

    ends_s: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()
    done: int = 0
    note: str = ""

    @classmethod
    def from_records(cls, records: Iterable[Mapping[str, Any]], note: str = "") -> Trial:
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
class Tried:
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


def judge(remedy: str, plain: Sequence[Trial], remedied: Sequence[Trial], *, epoch_steps: int = 0) -> Tried:
    """Compare runs over the steps that all of them made; what remembers, from the second epoch on (of `epoch_steps` steps)."""
    failed = next((trial.note for trial in (*plain, *remedied) if trial.note), "")
    steps = min((len(trial.ends_s) for trial in (*plain, *remedied)), default=0)
    if failed or steps <= WARM_UP_STEPS:
        return Tried(remedy, note=failed or f"{format_count(steps, 'step')} are too few to compare")
    if not all(trial.done for trial in remedied):
        return Tried(remedy, note="it found nothing to change while the script runs")
    first = _first_step(remedy, epoch_steps, steps)
    plain_s, remedied_s = ([trial.step_s(first, steps) for trial in trials] for trials in (plain, remedied))
    ratio = fmean(plain_s) / fmean(remedied_s)
    losses = _agreement(remedy, plain, remedied)
    faster = min(plain_s) > _CLEARLY * max(remedied_s)
    slower = min(remedied_s) > _CLEARLY * max(plain_s)
    helped = faster and losses not in (DIFFERENT, UNSEEN)
    notes = (_note(remedy, losses, clear=faster or slower), "timed from the second epoch on" if first > WARM_UP_STEPS else "")
    return Tried(remedy, ratio, losses, steps, helped, "; ".join(filter(None, notes)))


def _first_step(remedy: str, epoch_steps: int, steps: int) -> int:
    """After which step time counts: the warm-up is left out, and the epoch in which a remedy only takes note."""
    remembers = remedies.split(remedy)[0] in remedies.REMEMBER
    return epoch_steps if remembers and WARM_UP_STEPS < epoch_steps <= steps - _FEWEST_STEPS else WARM_UP_STEPS


def _note(remedy: str, losses: str, *, clear: bool) -> str:
    if losses == DIFFERENT and remedies.split(remedy)[0] in remedies.RANDOM_IN_WORKERS:
        return "numbers differ where augmentation is random in workers: compare metrics over a whole training instead"
    return "" if clear else "no clear gain: runs of one kind differ as much"


def _agreement(remedy: str, plain: Sequence[Trial], remedied: Sequence[Trial]) -> str:
    """How the losses of remedied runs lie to those of the plain ones, and to how these differ among themselves."""
    if not all(trial.losses for trial in (*plain, *remedied)):
        return UNSEEN
    pairs = [(one, other) for one in plain for other in remedied]
    if all(_are_equal(one.losses, other.losses) for one, other in pairs):
        return EQUAL
    furthest = max(_furthest(one.losses, other.losses) for one, other in pairs)
    if furthest <= ROUNDING:
        return ROUNDED
    if furthest <= 2 * max((_furthest(one.losses, other.losses) for one, other in pairwise(plain)), default=0.0):
        return AS_PLAIN
    near = all(_mean_difference(one.losses, other.losses) <= NEAR for one, other in pairs)
    return NEARLY if near and remedies.split(remedy)[0] in remedies.CHANGES_PIXELS else DIFFERENT


def _are_equal(first: Sequence[float], second: Sequence[float]) -> bool:
    """Bit for bit; two losses that are no numbers are equal, too."""
    return all(repr(one) == repr(other) for one, other in zip(first, second, strict=False))


def _furthest(first: Sequence[float], second: Sequence[float]) -> float:
    """The largest relative difference of two losses of the same step; infinite where one is no number."""
    found = [_relative(one, other) for one, other in zip(first, second, strict=False)]
    return max(found) if found and all(difference == difference for difference in found) else float("inf")


def _relative(one: float, other: float) -> float:
    return abs(one - other) / max(abs(one), abs(other)) if one != other else 0.0


def _mean_difference(first: Sequence[float], second: Sequence[float]) -> float:
    pairs = list(zip(first, second, strict=False))
    size = fmean(abs(one) for one, _ in pairs)
    return fmean(abs(one - other) for one, other in pairs) / size if size else float("inf")
