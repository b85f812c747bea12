"""How good predictions are, each figure with its 95 % interval.

In: outputs (logits, or values) and targets. Out: `Scores`, plain and ready for JSON: never NaN, None where a figure is
undefined, with the reason in `notes`. Point values come from `figures`; intervals from a seeded bootstrap over samples, or
over groups of them (`bootstrap`), and for shares from Wilson's formula (`class_intervals`). Nothing here predicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.errors import DataError
from unchoke.core.record import ClassRecord, Interval
from unchoke.training.data import ProblemKind
from unchoke.training.scoring.bootstrap import (
    ClassTally,
    ValueTally,
    class_figures,
    draw,
    intervals,
    sum_units,
    value_figures,
)
from unchoke.training.scoring.class_intervals import class_intervals, recall_limits
from unchoke.training.scoring.figures import (
    ECE_BINS,
    class_rates,
    confusion_matrix,
    expected_calibration_error,
    log_losses,
    r2,
    reliability_bins,
    weighted_mean,
    weighted_r2,
)


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
) -> Scores:
    """Score logits (n, classes) against class numbers (n,), or values (n, T) against values (n, T).

    Classes: accuracy, balanced_accuracy (mean recall of the classes that occur), macro_f1, log_loss, ece. Values: r2, mae and
    rmse, averaged over the targets and for each as `r2/NAME`; with `weights`, one per target, also weighted_r2: over all
    (sample, target) pairs, 1 − Σ w·(y − ŷ)² / Σ w·(y − ȳ)², ȳ the weighted mean of all pairs; and weighted_mean_r2, the weighted
    mean of the targets' own R². `bootstrap=0` leaves the intervals out. `groups` says by a number which samples are alike:
    intervals are then those of whole groups.
    """
    _check(names, outputs, targets)
    if weights is not None and (kind == "classification" or len(weights) != len(names)):
        raise ValueError(f"{len(weights)} weights for {len(names)} targets of a {kind}")
    if kind == "classification":
        return _score_classes(names, outputs, targets.astype(np.int64), groups, seed=seed, bootstrap=bootstrap)
    return _score_values(names, outputs, targets, weights, groups, seed=seed, bootstrap=bootstrap)


def _check(names: Sequence[str], outputs: NDArray[np.float32], targets: NDArray[Any]) -> None:
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
    tally = ClassTally.of(logits, targets, num_bins=ECE_BINS)
    units = sum_units(tally.columns, groups)
    values = intervals(points, {}, num_units=len(units))
    if bootstrap:
        drawn = draw(class_figures, units, tally.layout, seed=seed, num_resamples=bootstrap)
        values = class_intervals(points, drawn, units, logits, targets, num_bins=ECE_BINS)
    table = _class_table(names, rates, supports, recall_limits(units, len(names)))
    absent = [name for name, support in zip(names, supports, strict=True) if not support]
    notes = [f"no sample of class {name!r}: it counts in no average of recalls" for name in absent]
    return Scores("classification", len(targets), values, table, confusion.tolist(), notes + _on_groups(len(targets), len(units)))


def _class_table(
    names: Sequence[str],
    rates: dict[str, NDArray[np.float32]],
    supports: NDArray[np.int64],
    limits: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> list[ClassRecord]:
    precision, recall, f1 = (rates[name].tolist() for name in ("precision", "recall", "f1"))
    lows, highs = (limit.tolist() for limit in limits)
    rows = zip(names, precision, recall, f1, supports.tolist(), lows, highs, strict=True)
    return [
        ClassRecord(name=name, precision=p, recall=r, f1=f, support=s, recall_low=low, recall_high=high)
        if s
        else ClassRecord(name=name, precision=p, recall=None, f1=None, support=s)
        for name, p, r, f, s, low, high in rows
    ]


def _on_groups(num_samples: int, num_units: int) -> list[str]:
    """What is said of intervals where samples are grouped."""
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
    points, notes = _value_points(names, outputs, targets)
    if weights is not None:
        points["weighted_r2"] = weighted_r2(outputs, targets, weights)
        points["weighted_mean_r2"] = weighted_mean([points[f"r2/{name}"] for name in names], weights)
        if points["weighted_r2"] is None:
            notes.append("the weighted R² is undefined: all samples have the same value in every target that counts")
    tally = ValueTally.of(outputs, targets, names=tuple(names), weights=weights)
    units = sum_units(tally.columns, groups)
    drawn = draw(value_figures, units, tally.layout, seed=seed, num_resamples=bootstrap)
    values = intervals(points, drawn, num_units=len(units))
    return Scores("regression", len(targets), values, notes=notes + _on_groups(len(targets), len(units)))


def _value_points(
    names: Sequence[str], outputs: NDArray[np.float32], targets: NDArray[Any]
) -> tuple[dict[str, float | None], list[str]]:
    """R², MAE and RMSE of each target and averaged, and notes on what is undefined."""
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
    return points, notes
