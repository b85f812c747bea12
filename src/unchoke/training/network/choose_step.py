"""How a step is computed on a card: call by call, or recorded once and repeated. Decided by taking a few steps both ways.

In: where the training stands, and the two ways. Out: a `Choice` with the rates of both and how far apart their weights end; the
training stands exactly where it stood. Recording is kept only where the weights agree and it is faster by more than noise. What a
run began with is kept in `step.json` beside its snapshots, so that a run that is continued computes the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from unchoke.core import checksums
from unchoke.core.choices import Choice
from unchoke.core.units import format_count

FILE = "step.json"
GRAPH, EAGER = "graph", "eager"
TRIED_STEPS = 4
FEWEST_STEPS = 200
"""Fewer are not worth the second that recording and comparing takes."""
_LEAST_GAIN = 1.1
_TOLERANCE = 0.05
"""How far apart weights may end, as a share of the way they moved. Usually they end in the same bits; where the device adds up in
another order, AdamW's first steps turn rounding into whole steps wherever a gradient is next to nothing.
"""


@dataclass(frozen=True)
class StepTrial:
    """Seconds of one step each way. `apart` is how far the weights end from each other, as a share of the way they moved;
    `noise` the same between two passes call by call.
    """

    eager_s: float
    graph_s: float
    apart: float
    noise: float


class StatePoint:
    """Where a training stands: tensors that steps change in place, and copies to put back."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = [value.detach() for value in tensors]
        self._kept = [value.clone() for value in self._tensors]

    @torch.no_grad()
    def restore(self) -> None:
        for value, kept in zip(self._tensors, self._kept, strict=True):
            value.copy_(kept)


def try_both(
    state: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    *,
    eager: Callable[[], float],
    record: Callable[[], None],
    graph: Callable[[], float],
) -> StepTrial:
    """Take the same steps each way, twice, from where the training stands; it stands there again whatever happens.

    `eager` and `graph` return the seconds of one step; the first pass of each is not timed. `record` may change the state too.
    """
    point = StatePoint(state)

    def ended(run: Callable[[], float]) -> tuple[float, list[torch.Tensor]]:
        point.restore()
        seconds = run()
        return seconds, [value.detach().clone() for value in weights]

    begun = [value.detach().clone() for value in weights]
    try:
        _, first = ended(eager)
        eager_s, second = ended(eager)
        point.restore()
        record()
        ended(graph)
        graph_s, third = ended(graph)
    finally:
        point.restore()
    moved = max(_distance(begun, first), 1e-30)
    return StepTrial(eager_s, graph_s, _distance(first, third) / moved, _distance(first, second) / moved)


def _distance(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> float:
    squares = [(one.double() - other.double()).square().sum() for one, other in zip(some, others, strict=True)]
    return math.sqrt(float(torch.stack(squares).sum()))


def judge(trial: StepTrial, *, batch_size: int) -> Choice:
    """Recorded, where both ways end in the same place and it is faster by more than noise."""
    rates = {EAGER: batch_size / trial.eager_s, GRAPH: batch_size / trial.graph_s}
    shown = ", ".join(f"{way} {rate:,.0f} samples/s" for way, rate in rates.items())
    allowed = max(_TOLERANCE, 2 * trial.noise)
    evidence = {
        "samples_per_s": {way: round(rate, 1) for way, rate in rates.items()},
        "apart": round(trial.apart, 6),
        "noise": round(trial.noise, 6),
        "tolerance": round(allowed, 6),
        "steps": TRIED_STEPS,
    }
    if not trial.apart <= allowed:
        return Choice("step", EAGER, f"recorded, weights end {trial.apart:.1%} of their way apart ({shown})", evidence)
    if trial.eager_s < _LEAST_GAIN * trial.graph_s:
        return Choice("step", EAGER, f"recording it gains too little ({shown})", evidence)
    agreed = f"the weights agree to {trial.apart:.2%} of the way they move"
    return Choice("step", GRAPH, f"recorded once and repeated by one call: {shown}; {agreed}", evidence)


def too_few(num_steps: int) -> str | None:
    """Why recording would not pay: so many steps are left."""
    if num_steps >= FEWEST_STEPS:
        return None
    return f"{format_count(num_steps, 'step')} left: recording one would not pay"


def load_choice(folder: Path | None, identity: str) -> Choice | None:
    """What this training began with; None where it has not chosen yet."""
    file = None if folder is None else folder / FILE
    if file is None or not file.exists():
        return None
    begun = f"delete {file.parent}: the run is trained anew"
    with checksums.making_sense(file, try_=begun):
        kept = checksums.load_checked_json(file, try_=begun)
        if kept["identity"] != identity:
            return None
        return Choice("step", kept["step"], f"as this run began, kept in {FILE}", kept["evidence"])


def save_choice(folder: Path | None, identity: str, choice: Choice) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        kept = {"identity": identity, "step": choice.value, "reason": choice.reason, "evidence": choice.evidence}
        checksums.save_checked_json(folder / FILE, kept)
