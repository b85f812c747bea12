"""How good predictions are, each figure with its 95 % interval.

In: outputs (logits, or values) and targets. Out: `Scores`, plain and ready for JSON: never NaN, None where a figure is
undefined, with the reason in `notes`. Point values come from torchmetrics; intervals from a seeded percentile bootstrap
over samples (`bootstrap`). Nothing here predicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.errors import DataError
from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.training.data import ProblemKind
from unchoke.training.scoring.bootstrap import (
    ClassTally,
    Interval,
    ValueTally,
    class_figures,
    intervals,
    log_losses,
    value_figures,
)
from unchoke.training.scoring.selection import pair_spread

ECE_BINS = 15


@dataclass(frozen=True)
class Scores:
    """`values` by name; for classes also one row per class and the confusion matrix (rows: truth, columns: prediction)."""

    kind: ProblemKind
    num_samples: int
    values: dict[str, Interval]
    per_class: list[dict[str, Any]] = field(default_factory=list)
    confusion: list[list[int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def score(
    kind: ProblemKind,
    names: Sequence[str],
    outputs: NDArray[np.float32],
    targets: NDArray[Any],
    *,
    seed: int,
    bootstrap: int = 1000,
    weights: Sequence[float] | None = None,
) -> Scores:
    """Score logits (n, classes) against class numbers (n,), or values (n, T) against values (n, T).

    Classes: accuracy, balanced_accuracy (mean recall of the classes that occur), macro_f1, log_loss, ece. Values: r2, mae and
    rmse, averaged over the targets and for each as `r2/NAME`; with `weights`, one per target, also weighted_r2: over all
    (sample, target) pairs, 1 − Σ w·(y − ŷ)² / Σ w·(y − ȳ)², ȳ the weighted mean of all pairs. `bootstrap=0` leaves the
    intervals out.
    """
    _check(names, outputs, targets)
    if weights is not None and (kind == "classification" or len(weights) != len(names)):
        raise ValueError(f"{len(weights)} weights for {len(names)} targets of a {kind}")
    if kind == "classification":
        return _score_classes(names, outputs, targets.astype(np.int64), seed=seed, bootstrap=bootstrap)
    return _score_values(names, outputs, targets, weights, seed=seed, bootstrap=bootstrap)


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
            why="a score needs one finite output per sample",
            try_="check that the split is not empty, then evaluate again",
        )


def _score_classes(
    names: Sequence[str], logits: NDArray[np.float32], targets: NDArray[np.int64], *, seed: int, bootstrap: int
) -> Scores:
    prepare_torchvision()
    from torchmetrics.functional.classification import (
        multiclass_accuracy,
        multiclass_calibration_error,
        multiclass_confusion_matrix,
        multiclass_f1_score,
        multiclass_precision,
        multiclass_recall,
    )

    # With one class only there is nothing to tell apart; torchmetrics asks for two, so an empty second one stands in.
    count = max(2, len(names))
    predicted, truth = torch.from_numpy(logits.argmax(axis=1)), torch.from_numpy(targets)
    probabilities = torch.zeros(len(targets), count)
    probabilities[:, : len(names)] = torch.from_numpy(logits).softmax(dim=1)
    options = {"num_classes": count, "average": "none"}
    rows = [f(predicted, truth, **options) for f in (multiclass_precision, multiclass_recall, multiclass_f1_score)]
    precision, recall, f1 = (row.tolist()[: len(names)] for row in rows)
    confusion = multiclass_confusion_matrix(predicted, truth, num_classes=count)[: len(names), : len(names)]
    supports = confusion.sum(dim=1).tolist()
    points: dict[str, float | None] = {
        "accuracy": float(multiclass_accuracy(predicted, truth, num_classes=count, average="micro")),
        "balanced_accuracy": float(np.mean([r for r, support in zip(recall, supports, strict=True) if support])),
        "macro_f1": float(multiclass_f1_score(predicted, truth, num_classes=count, average="macro")),
        "log_loss": float(log_losses(logits, targets).mean()),
        "ece": float(multiclass_calibration_error(probabilities, truth, num_classes=count, n_bins=ECE_BINS, norm="l1")),
    }
    tally = ClassTally.of(logits, targets, num_bins=ECE_BINS)
    values = intervals(points, class_figures, tally.columns, tally.layout, seed=seed, num_resamples=bootstrap)
    table = [
        {"name": name, "precision": p, "recall": r if s else None, "f1": f if s else None, "support": int(s)}
        for name, p, r, f, s in zip(names, precision, recall, f1, supports, strict=True)
    ]
    absent = [name for name, support in zip(names, supports, strict=True) if not support]
    notes = [f"no sample of class {name!r}: it counts in no average of recalls" for name in absent]
    return Scores("classification", len(targets), values, table, confusion.tolist(), notes)


def _score_values(
    names: Sequence[str],
    outputs: NDArray[np.float32],
    targets: NDArray[Any],
    weights: Sequence[float] | None,
    *,
    seed: int,
    bootstrap: int,
) -> Scores:
    points, notes = _value_points(names, outputs, targets)
    if weights is not None:
        points["weighted_r2"] = weighted_r2(outputs, targets, weights)
        if points["weighted_r2"] is None:
            notes.append("the weighted R² is undefined: all samples have the same value in every target that counts")
    tally = ValueTally.of(outputs, targets, names=tuple(names), weights=weights)
    values = intervals(points, value_figures, tally.columns, tally.layout, seed=seed, num_resamples=bootstrap)
    return Scores("regression", len(targets), values, notes=notes)


def weighted_r2(outputs: NDArray[np.float32], targets: NDArray[Any], weights: Sequence[float]) -> float | None:
    """1 − Σ w·(y − ŷ)² / Σ w·(y − ȳ)² over all (sample, target) pairs; None where the truth does not vary."""
    spread = pair_spread(targets, weights)
    errors = (targets.astype(np.float64) - outputs) ** 2
    return 1 - float((errors @ np.array(weights, dtype=np.float64)).sum()) / spread if spread > 0 else None


def _value_points(
    names: Sequence[str], outputs: NDArray[np.float32], targets: NDArray[Any]
) -> tuple[dict[str, float | None], list[str]]:
    """R², MAE and RMSE of each target and averaged, and notes on what is undefined."""
    prepare_torchvision()
    from torchmetrics.functional.regression import mean_absolute_error, mean_squared_error, r2_score

    points: dict[str, float | None] = {}
    notes: list[str] = []
    for column, name in enumerate(names):
        predicted, truth = (torch.from_numpy(np.array(array[:, column], dtype=np.float64)) for array in (outputs, targets))
        constant = bool((truth == truth[0]).all())
        points[f"r2/{name}"] = None if constant else float(r2_score(predicted, truth))
        points[f"mae/{name}"] = float(mean_absolute_error(predicted, truth))
        points[f"rmse/{name}"] = float(mean_squared_error(predicted, truth, squared=False))
        if constant:
            notes.append(f"R² of {name!r} is undefined: all {len(truth)} samples have the same value")
    for figure in ("r2", "mae", "rmse"):
        known = [value for key in points if key.startswith(f"{figure}/") and (value := points[key]) is not None]
        points[figure] = float(np.mean(known)) if known else None
    if notes and points["r2"] is not None:
        notes.append("the overall R² averages the targets whose R² is defined")
    return points, notes
