"""What a head is judged by on the val split, and the judging, for a whole stack of heads at once.

In: a problem; outputs (n, K, outputs). Out: the `Choice` of a metric, and per head the loss and scores. These steer
training; the figures a person sees come from `scores`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from unchoke.core.choices import Choice
from unchoke.photos.targets import TargetPlan
from unchoke.training.data import Positions, Problem
from unchoke.training.device_targets import DeviceTargets
from unchoke.training.scoring.figures import pair_spread

IMBALANCE_FOR_BALANCED = 3.0


def choose_metric(problem: Problem, plan: TargetPlan | None = None) -> Choice:
    """accuracy, balanced_accuracy, r2, weighted_r2 (when `plan` declares weights) or loss; none without a val split."""
    val = problem.positions("val")
    if len(val) == 0:
        return Choice("selection_metric", "none", "there is no val split: the last epoch is kept")
    if problem.kind == "regression":
        return _choose_value_metric(problem.targets[val], plan.weights if plan else None)
    ratio = imbalance(problem.targets[problem.positions("train")])
    evidence = {"largest_to_smallest_class": round(ratio, 2)}
    if ratio >= IMBALANCE_FOR_BALANCED:
        reason = f"the largest class is {ratio:.1f} times the smallest, so each class counts alike; ties go to the lower loss"
        return Choice("selection_metric", "balanced_accuracy", reason, evidence)
    return Choice("selection_metric", "accuracy", "the classes are of similar size; ties go to the lower loss", evidence)


def _choose_value_metric(targets: NDArray[np.float32], weights: tuple[float, ...] | None) -> Choice:
    """`targets` are those of the val split."""
    if weights is None and (targets != targets[0]).any():
        return Choice("selection_metric", "r2", "the mean R² over the targets on the val split; ties go to the lower loss")
    if weights is not None and pair_spread(targets, weights) > 0:
        reason = "weights were declared: the weighted R² over all targets on the val split; ties go to the lower loss"
        return Choice("selection_metric", "weighted_r2", reason)
    return Choice("selection_metric", "loss", "R² is undefined: every val target has one value only")


def imbalance(classes: NDArray[np.int64]) -> float:
    """How many times the largest class is the smallest one that occurs."""
    counts = np.bincount(classes)
    return float(counts.max() / counts[counts > 0].min())


class ValScores(NamedTuple):
    """How one head does on val: `metric` is what it is judged by (higher is better), `values` go into its curve."""

    metric: float
    loss: float
    values: dict[str, float]


class ClassVal:
    """Counts hits per class and sums the plain cross-entropy over batches."""

    def __init__(self, *, num_heads: int, supports: NDArray[np.int64], metric: str) -> None:
        self._supports, self._metric = supports, metric
        self._hits = np.zeros((num_heads, len(supports)))
        self._loss = np.zeros(num_heads)

    def add(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        hits = (outputs.argmax(-1) == targets.unsqueeze(1)).float()
        one_hot = F.one_hot(targets, len(self._supports)).float()
        self._hits += (hits.T @ one_hot).cpu().numpy()
        wanted = targets.view(-1, 1, 1).expand(-1, outputs.shape[1], 1)
        self._loss -= outputs.log_softmax(-1).gather(-1, wanted).sum(dim=(0, 2)).cpu().numpy()

    def finish(self) -> list[ValScores]:
        total, present = self._supports.sum(), self._supports > 0
        scores = []
        for hits, loss in zip(self._hits, self._loss / total, strict=True):
            values = {
                "accuracy": float(hits.sum() / total),
                "balanced_accuracy": float((hits[present] / self._supports[present]).mean()),
            }
            named = {f"val_{name}": value for name, value in values.items()}
            scores.append(ValScores(values[self._metric], float(loss), {"val_loss": float(loss), **named}))
        return scores


class ValueVal:
    """Sums squared errors per target over batches. The unit of a target decides how much it counts in the loss.

    `total_spread` is what a weighted R² divides the summed errors of all targets by.
    """

    def __init__(self, *, num_heads: int, targets: NDArray[np.float32], metric: str, total_spread: float = 0.0) -> None:
        self._count, self._metric, self._total_spread = len(targets), metric, total_spread
        self._spread = ((targets - targets.mean(axis=0)) ** 2).sum(axis=0, dtype=np.float64)
        self._errors = np.zeros((num_heads, targets.shape[1]))

    def add(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        self._errors += (outputs - targets.unsqueeze(1)).square().sum(dim=0).cpu().numpy()

    def finish(self) -> list[ValScores]:
        varies = self._spread > 0
        scores = []
        for errors in self._errors:
            loss = float(errors.mean() / self._count)
            values, metric = {"val_loss": loss}, -loss
            if self._metric == "r2":
                metric = values["val_r2"] = float((1 - errors[varies] / self._spread[varies]).mean())
            elif self._metric == "weighted_r2":
                metric = values["val_weighted_r2"] = float(1 - errors.sum() / self._total_spread)
            scores.append(ValScores(metric, loss, values))
        return scores


def start_val(task: DeviceTargets, val: Positions, *, num_heads: int, metric: str) -> ClassVal | ValueVal:
    """An empty tally for the val split of a task."""
    targets = task.targets.cpu().numpy()[val]
    if task.kind == "classification":
        supports = np.bincount(targets, minlength=task.num_outputs).astype(np.int64)
        return ClassVal(num_heads=num_heads, supports=supports, metric=metric)
    return ValueVal(num_heads=num_heads, targets=targets, metric=metric)
