"""What a model must beat: one answer for every photo, the commonest class of the train split, or the train mean of each target.

In: a problem, or what its record says of the train split. Out: the answer, what it scores on the very samples the model is judged
on, and by how much the model is better, with the interval of the difference on the same samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.record import BaselineRecord, Interval, RunRecord
from unchoke.training.data import Problem
from unchoke.training.scoring.bootstrap import Figures, ValueTally, draw, interval, sum_units, value_figures
from unchoke.training.scoring.proportions import difference_limits, effective_sizes
from unchoke.training.scoring.scores import Scores, score

_CLASS_FIGURES = ("accuracy", "balanced_accuracy", "macro_f1")
_VALUE_FIGURES = ("weighted_r2", "weighted_mean_r2", "r2", "mae", "rmse")


@dataclass(frozen=True)
class ConstantAnswer:
    """The same outputs for every sample: 1 for one class and 0 for the others, or a value for each target."""

    kind: str
    names: tuple[str, ...]
    outputs: tuple[float, ...]

    @classmethod
    def of_problem(cls, problem: Problem) -> ConstantAnswer | None:
        """From the train split; None where there is none."""
        targets = problem.targets[problem.positions("train")]
        if len(targets) == 0:
            return None
        if problem.kind == "classification":
            return cls._of_counts(problem.names, np.bincount(targets, minlength=len(problem.names)))
        return cls(problem.kind, problem.names, tuple(float(mean) for mean in targets.mean(axis=0, dtype=np.float64)))

    @classmethod
    def of_record(cls, record: RunRecord) -> ConstantAnswer | None:
        """As a run's record has it, or for older ones from its class counts; None where neither says so."""
        names, held = tuple(record.task.names), record.baseline
        if record.task.kind == "classification":
            counts = (record.data.class_counts or {}).get("train", {})
            return cls._of_counts(names, np.array([counts.get(name, 0) for name in names])) if any(counts.values()) else None
        if held is None or not set(names) <= set(held.answers):
            return None
        return cls(record.task.kind, names, tuple(float(held.answers[name]) for name in names))

    @classmethod
    def _of_counts(cls, names: tuple[str, ...], counts: NDArray[Any]) -> ConstantAnswer:
        return cls("classification", names, tuple(np.eye(len(names))[int(counts.argmax())].tolist()))

    @property
    def name(self) -> str:
        return self.names[self.outputs.index(1.0)] if self.kind == "classification" else ""

    def rows(self, count: int) -> NDArray[np.float32]:
        """Its outputs for so many samples."""
        return np.tile(np.asarray(self.outputs, dtype=np.float32), (count, 1))


@dataclass(frozen=True, eq=False)
class JudgedSplit:
    """What a model is judged on in one split: its outputs, the truth, and which samples are alike."""

    outputs: NDArray[np.float32]
    targets: NDArray[Any]
    groups: NDArray[np.int64] | None
    scores: Scores


def compare(
    answer: ConstantAnswer | None,
    splits: Mapping[str, JudgedSplit],
    *,
    seed: int,
    weights: Sequence[float] | None = None,
    resamples: int = 1000,
) -> BaselineRecord | None:
    """What the answer scores in each split, and the model's gain over it; None where there is no answer."""
    if answer is None:
        return None
    metrics, gains = {}, {}
    for split, judged in splits.items():
        options: dict[str, Any] = {"seed": seed, "bootstrap": 0, "weights": weights}
        own = score(judged.scores.kind, answer.names, answer.rows(len(judged.targets)), judged.targets, **options).values
        wanted = _CLASS_FIGURES if answer.kind == "classification" else _VALUE_FIGURES
        metrics[split] = {name: own[name] for name in wanted if name in own}
        gains[split] = _gains(answer, judged, own, seed=seed, weights=weights, resamples=resamples)
    values = {} if answer.kind == "classification" else dict(zip(answer.names, answer.outputs, strict=True))
    return BaselineRecord(answer=answer.name, answers=values, metrics=metrics, gains=gains)


def _gains(
    answer: ConstantAnswer,
    judged: JudgedSplit,
    own: Mapping[str, Interval],
    *,
    seed: int,
    weights: Sequence[float] | None,
    resamples: int,
) -> dict[str, Interval]:
    if answer.kind == "classification":
        return {"accuracy": _accuracy_gain(judged, answer.outputs.index(1.0))}
    name = "r2" if weights is None else "weighted_r2"
    pair = (judged.scores.values[name].value, own[name].value)
    if pair[0] is None or pair[1] is None:
        return {}
    drawn, num_units = _drawn_gain(answer, judged, name, seed=seed, weights=weights, resamples=resamples)
    return {name: interval("", pair[0] - pair[1], drawn, num_units=num_units)}


def _accuracy_gain(judged: JudgedSplit, answer: int) -> Interval:
    """Of pairs: photos that only the model gets right, and those that only the answer does."""
    hits, hits_of_answer = judged.outputs.argmax(axis=1) == judged.targets, judged.targets == answer
    better, worse, count = int((hits & ~hits_of_answer).sum()), int((hits_of_answer & ~hits).sum()), len(hits)
    share = 1.0
    if judged.groups is not None and better + worse:
        differ = np.stack([hits ^ hits_of_answer, hits & ~hits_of_answer, np.ones(count)], axis=1)
        units = sum_units(differ.astype(np.float32), judged.groups)
        share = min(1.0, *(float(effective_sizes(units[:, column], units[:, 2])) / count for column in (0, 1)))
    low, high = difference_limits(better * share, worse * share, count * share)
    point = (better - worse) / count
    return Interval(point, min(low, point), max(high, point))


def _drawn_gain(
    answer: ConstantAnswer,
    judged: JudgedSplit,
    name: str,
    *,
    seed: int,
    weights: Sequence[float] | None,
    resamples: int,
) -> tuple[NDArray[np.float64] | None, int]:
    """Both on the same resamples, since these depend on the seed alone."""
    drawn: list[Figures] = []
    num_units = 0
    for outputs in (judged.outputs, answer.rows(len(judged.targets))):
        tally = ValueTally.of(outputs, judged.targets, names=answer.names, weights=weights)
        units = sum_units(tally.columns, judged.groups)
        num_units = len(units)
        drawn.append(draw(value_figures, units, tally.layout, seed=seed, num_resamples=resamples))
    return (drawn[0][name] - drawn[1][name] if drawn[0] else None), num_units
