"""How good predictions are, each figure with its 95 % interval, and what a model must beat: one answer for every photo.

In: outputs (logits, or values) and targets. Out: `Scores`, plain and ready for JSON: never NaN, None where a figure is
undefined, with the reason in `notes`. The baseline always answers the commonest class of the train split, or its mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.errors import DataError
from unchoke.core.record import BaselineRecord, ClassRecord, Interval, RunRecord
from unchoke.data.several_labels import MULTI_LABEL
from unchoke.training.data import Problem, ProblemKind
from unchoke.training.scoring.figures import (
    class_rates,
    confusion_matrix,
    expected_calibration_error,
    log_losses,
    r2,
    reliability_bins,
    weighted_mean,
    weighted_r2,
)
from unchoke.training.scoring.intervals import (
    ClassTally,
    ValueTally,
    class_intervals,
    difference_limits,
    draw,
    effective_sizes,
    interval,
    intervals,
    recall_limits,
    sum_units,
)
from unchoke.training.scoring.label_scores import gain_in_map, score_labels

_CLASS_FIGURES = ("accuracy", "balanced_accuracy", "macro_f1")
_LABEL_FIGURES = ("mean_ap", "macro_f1", "micro_f1")
_VALUE_FIGURES = ("weighted_r2", "weighted_mean_r2", "r2", "mae", "rmse")


@dataclass(frozen=True)
class Scores:
    """`values` by name; for classes also one row per class and the confusion matrix (rows: truth, columns: prediction)."""

    kind: ProblemKind
    num_samples: int
    values: dict[str, Interval]
    per_class: list[ClassRecord] = field(default_factory=list)
    confusion: list[list[int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def score(
    kind: ProblemKind,
    names: Sequence[str],
    outputs: NDArray[np.float32],
    targets: NDArray[Any],
    *,
    seed: int,
    bootstrap: int = 1000,
    weights: Sequence[float] | None = None,
    groups: NDArray[np.int64] | None = None,
    cuts: NDArray[Any] | None = None,
) -> Scores:
    """Score logits (n, classes) against class numbers (n,), or values (n, T) against values (n, T); or logits (n, labels) against
    0 and 1, where `cuts` are the logits from which on a label counts as given.

    Classes: accuracy, balanced_accuracy (mean recall of the classes that occur), macro_f1, log_loss, ece. Values: r2, mae and
    rmse, averaged over the targets and for each as `r2/NAME`; with `weights`, one per target, also weighted_r2: over all
    (sample, target) pairs, 1 − Σ w·(y − ŷ)² / Σ w·(y − ȳ)², ȳ the weighted mean of all pairs; and weighted_mean_r2, the weighted
    mean of the targets' own R². `bootstrap=0` leaves the intervals out. `groups` says by a number which samples are alike:
    intervals are then those of whole groups.
    """
    _refuse_unscorable(names, outputs, targets)
    if weights is not None and (kind != "regression" or len(weights) != len(names)):
        raise ValueError(f"{len(weights)} weights for {len(names)} targets of a {kind}")
    if kind == MULTI_LABEL:
        values, notes = score_labels(names, outputs, targets, groups, cuts, seed=seed, bootstrap=bootstrap)
        num_units = len(targets) if groups is None else len(np.unique(groups))
        return Scores(MULTI_LABEL, len(targets), values, notes=notes + _note_groups(len(targets), num_units))
    if kind == "classification":
        return _score_classes(names, outputs, targets.astype(np.int64), groups, seed=seed, bootstrap=bootstrap)
    return _score_values(names, outputs, targets, weights, groups, seed=seed, bootstrap=bootstrap)


def _refuse_unscorable(names: Sequence[str], outputs: NDArray[np.float32], targets: NDArray[Any]) -> None:
    faults = []
    if len(outputs) != len(targets) or outputs.ndim != 2 or outputs.shape[1] != len(names):
        faults.append(f"outputs of shape {outputs.shape} for {len(targets)} targets and {len(names)} names")
    if len(targets) == 0:
        faults.append("no samples")
    if not np.isfinite(outputs).all():
        faults.append(f"{int((~np.isfinite(outputs).all(axis=1)).sum())} outputs are not finite")
    if faults:
        raise DataError(
            f"nothing to score: {'; '.join(faults)}",
            code="nothing-to-score",
            why="a score needs one finite output per sample",
            try_="check that the split is not empty, then evaluate again",
        )


def _score_classes(
    names: Sequence[str],
    logits: NDArray[np.float32],
    targets: NDArray[np.int64],
    groups: NDArray[np.int64] | None,
    *,
    seed: int,
    bootstrap: int,
) -> Scores:
    confusion = confusion_matrix(targets, logits.argmax(axis=1), num_classes=len(names))
    rates = class_rates(confusion)
    supports, seen = confusion.sum(axis=1), confusion.sum(axis=0) + confusion.sum(axis=1) > 0
    points: dict[str, float | None] = {
        "accuracy": float(np.float32(np.trace(confusion) / len(targets))),  # as precise as the figures of classes
        "balanced_accuracy": float(rates["recall"][supports > 0].mean(dtype=np.float64)),
        "macro_f1": float(rates["f1"][seen].mean(dtype=np.float64)),
        "log_loss": float(log_losses(logits, targets).mean()),
        "ece": expected_calibration_error(reliability_bins(logits, targets)),
    }
    tally = ClassTally(logits, targets)
    units = sum_units(tally.columns, groups)
    values = intervals(points, {}, num_units=len(units))
    if bootstrap:
        values = class_intervals(points, draw(tally, units, seed=seed, num_resamples=bootstrap), units, logits, targets)
    columns = [column.tolist() for column in (rates["precision"], rates["recall"], rates["f1"], supports)]
    limits = [limit.tolist() for limit in recall_limits(units, len(names))]
    table = [
        ClassRecord(name=name, precision=precision, recall=recall, f1=f1, support=support, recall_low=low, recall_high=high)
        if support
        else ClassRecord(name=name, precision=precision, recall=None, f1=None, support=support)
        for name, precision, recall, f1, support, low, high in zip(names, *columns, *limits, strict=True)
    ]
    notes = [f"no sample of class {one.name!r}: it counts in no average of recalls" for one in table if not one.support]
    notes += _note_groups(len(targets), len(units))
    return Scores("classification", len(targets), values, table, confusion.tolist(), notes)


def _note_groups(num_samples: int, num_units: int) -> list[str]:
    if num_units == num_samples:
        return []
    return [f"the intervals of {num_samples:,} samples are those of their {num_units:,} groups: samples of one group are alike"]


def _score_values(
    names: Sequence[str],
    outputs: NDArray[np.float32],
    targets: NDArray[Any],
    weights: Sequence[float] | None,
    groups: NDArray[np.int64] | None,
    *,
    seed: int,
    bootstrap: int,
) -> Scores:
    points: dict[str, float | None] = {}
    notes: list[str] = []
    for column, name in enumerate(names):
        predicted, truth = outputs[:, column].astype(np.float64), targets[:, column].astype(np.float64)
        points[f"r2/{name}"] = r2(predicted, truth)
        points[f"mae/{name}"] = float(np.abs(predicted - truth).mean())
        points[f"rmse/{name}"] = float(np.sqrt(((predicted - truth) ** 2).mean()))
        if points[f"r2/{name}"] is None:
            notes.append(f"R² of {name!r} is undefined: all {len(truth)} samples have the same value")
    for figure in ("r2", "mae", "rmse"):
        known = [value for key in points if key.startswith(f"{figure}/") and (value := points[key]) is not None]
        points[figure] = float(np.mean(known)) if known else None
    if notes and points["r2"] is not None:
        notes.append("the overall R² averages the targets whose R² is defined")
    if weights is not None:
        points["weighted_r2"] = weighted_r2(outputs, targets, weights)
        points["weighted_mean_r2"] = weighted_mean([points[f"r2/{name}"] for name in names], weights)
        if points["weighted_r2"] is None:
            notes.append("the weighted R² is undefined: all samples have the same value in every target that counts")
    tally = ValueTally(outputs, targets, names, weights)
    units = sum_units(tally.columns, groups)
    values = intervals(points, draw(tally, units, seed=seed, num_resamples=bootstrap), num_units=len(units))
    return Scores("regression", len(targets), values, notes=notes + _note_groups(len(targets), len(units)))


@dataclass(frozen=True)
class ConstantAnswer:
    """The same outputs for every sample: 1 for one class and 0 for the others, a value for each target, or how frequent each of
    several labels is.
    """

    kind: ProblemKind
    names: tuple[str, ...]
    outputs: tuple[float, ...]

    @classmethod
    def of_problem(cls, problem: Problem) -> ConstantAnswer | None:
        """From the train split; None where there is none."""
        targets = problem.targets[problem.positions("train")]
        if len(targets) == 0:
            return None
        if problem.kind == "classification":
            return cls._commonest(problem.names, np.bincount(targets, minlength=len(problem.names)))
        return cls(problem.kind, problem.names, tuple(float(mean) for mean in targets.mean(axis=0, dtype=np.float64)))

    @classmethod
    def of_record(cls, record: RunRecord) -> ConstantAnswer | None:
        """As a run's record has it, or for older ones from its class counts; None where neither says so."""
        names, held = tuple(record.task.names), record.baseline
        if record.task.kind == "classification":
            counts = (record.data.class_counts or {}).get("train", {})
            return cls._commonest(names, np.array([counts.get(name, 0) for name in names])) if any(counts.values()) else None
        if held is None or not set(names) <= set(held.answers):
            return None
        kind: ProblemKind = MULTI_LABEL if record.task.kind == MULTI_LABEL else "regression"
        return cls(kind, names, tuple(float(held.answers[name]) for name in names))

    @classmethod
    def _commonest(cls, names: tuple[str, ...], counts: NDArray[Any]) -> ConstantAnswer:
        return cls("classification", names, tuple(np.eye(len(names))[int(counts.argmax())].tolist()))

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
    answer: ConstantAnswer | None, splits: Mapping[str, JudgedSplit], *, seed: int, weights: Sequence[float] | None = None
) -> BaselineRecord | None:
    """What the constant answer scores in each split, and the model's gain over it; None where there is no answer."""
    if answer is None:
        return None
    classes = answer.kind == "classification"
    metrics, gains = {}, {}
    for split, judged in splits.items():
        rows = answer.rows(len(judged.targets))
        every = np.full(len(answer.names), -np.inf) if answer.kind == MULTI_LABEL else None  # every label for every photo
        own = score(answer.kind, answer.names, rows, judged.targets, seed=seed, bootstrap=0, weights=weights, cuts=every).values
        figures = {"classification": _CLASS_FIGURES, MULTI_LABEL: _LABEL_FIGURES}.get(answer.kind, _VALUE_FIGURES)
        metrics[split] = {name: own[name] for name in figures if name in own}
        if answer.kind == MULTI_LABEL:
            gain = gain_in_map(answer.names, judged.outputs, rows, judged.targets, judged.groups, seed=seed)
            gains[split] = {"mean_ap": gain}
        elif classes:
            gains[split] = {"accuracy": _accuracy_gain(judged, answer.outputs.index(1.0))}
        else:
            gains[split] = _value_gain(answer, judged, own, seed=seed, weights=weights)
    return BaselineRecord(
        answer=answer.names[answer.outputs.index(1.0)] if classes else "",
        answers={} if classes else dict(zip(answer.names, answer.outputs, strict=True)),
        metrics=metrics,
        gains=gains,
    )


def _accuracy_gain(judged: JudgedSplit, answer: int) -> Interval:
    """From pairs: photos that only the model gets right, and those that only the constant answer does."""
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


def _value_gain(
    answer: ConstantAnswer,
    judged: JudgedSplit,
    own: Mapping[str, Interval],
    *,
    seed: int,
    weights: Sequence[float] | None,
    resamples: int = 1000,
) -> dict[str, Interval]:
    """The gain in R², with both drawn on the same resamples: these depend on the seed alone."""
    name = "r2" if weights is None else "weighted_r2"
    reached, constant = judged.scores.values[name].value, own[name].value
    if reached is None or constant is None:
        return {}
    drawn, num_units = [], 0
    for outputs in (judged.outputs, answer.rows(len(judged.targets))):
        tally = ValueTally(outputs, judged.targets, answer.names, weights)
        units = sum_units(tally.columns, judged.groups)
        num_units = len(units)
        drawn.append(draw(tally, units, seed=seed, num_resamples=resamples))
    gains = drawn[0][name] - drawn[1][name] if drawn[0] else None
    return {name: interval("", reached - constant, gains, num_units=num_units)}
