"""Targets as training sees them, and the metric that picks the best epoch and model on the val split.

In: a problem, and outputs. Out: targets on the device, the `Choice` of a metric, the loss and scores. These steer training; the
figures a person sees come from `scores`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.choices import Choice
from unchoke.core.metrics import LOSSES
from unchoke.data.several_labels import MULTI_LABEL
from unchoke.data.targets import TargetPlan
from unchoke.training.data import Positions, Problem, ProblemKind, Standardiser
from unchoke.training.heads.heads import ClassWeights
from unchoke.training.scoring.figures import pair_spread

IMBALANCE_FOR_WEIGHTS = 3.0
RARE_WEIGHTS: ClassWeights = "gentle"
"""How classes of uneven size count where nobody says otherwise: on real sets a quarter of the way to counting alike costs no
accuracy and finds more of the rare (docs/claims-history.md, *Uneven classes*).
"""
_SHARPNESS = tuple(2 ** (power / 2) for power in range(-4, 5))
"""By how much logits are multiplied, to see how good their probabilities are once they are calibrated."""


def two_classes(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Several labels (n, labels) as two classes each, without it and with it (n · labels, 2), and which of them is true."""
    return torch.stack([torch.zeros_like(outputs), outputs], dim=-1).reshape(-1, 2), targets.reshape(-1).long()


def choose_metric(problem: Problem, plan: TargetPlan | None = None) -> Choice:
    """log_loss, r2, weighted_r2 (when `plan` declares weights) or loss; none without a val split."""
    val = problem.positions("val")
    if len(val) == 0:
        return Choice("selection_metric", "none", "there is no val split: the last epoch is kept")
    if problem.kind == "regression":
        targets, weights = problem.targets[val], plan.weights if plan else None
        if weights is None and (targets != targets[0]).any():
            return Choice("selection_metric", "r2", "the mean R² over the targets on the val split; ties go to the lower loss")
        if weights is not None and pair_spread(targets, weights) > 0:
            reason = "weights were declared: the weighted R² over all targets on the val split; ties go to the lower loss"
            return Choice("selection_metric", "weighted_r2", reason)
        return Choice("selection_metric", "loss", "R² is undefined: every val target has one value only")
    if problem.kind == MULTI_LABEL:
        reason = f"the log loss of each label, averaged over labels and {len(val):,} val samples, as it is once calibrated"
        return Choice("selection_metric", "log_loss", reason, {"num_val": len(val)})
    ratio = imbalance(problem.targets[problem.positions("train")])
    evidence = {"largest_to_smallest_class": round(ratio, 2), "num_val": len(val)}
    reason = f"on {len(val):,} val samples it separates two models whose accuracies differ by luck alone"
    reason += "; probabilities are calibrated on these very samples first, so it is lower than in the table of results"
    if ratio >= IMBALANCE_FOR_WEIGHTS:
        reason += f"; rare classes count more, the largest being {ratio:.1f} times the smallest"
    return Choice("selection_metric", "log_loss", reason, evidence)


def imbalance(classes: NDArray[np.int64]) -> float:
    """How many times the largest class is the smallest one that occurs."""
    counts = np.bincount(classes)
    return float(counts.max() / counts[counts > 0].min())


def automatic_weights(classes: NDArray[np.int64]) -> ClassWeights:
    """How much the classes of a train split count where nobody says otherwise."""
    return RARE_WEIGHTS if imbalance(classes) >= IMBALANCE_FOR_WEIGHTS else "none"


def as_figure(metric: str, judged: float) -> float:
    """A selection score as a person reads it: losses are compared by their negative, so that higher is better."""
    return -judged if metric in LOSSES else judged


def judging_weights(task: DeviceTargets) -> torch.Tensor:
    """How much each class counts in the selection metric, on the CPU."""
    counts = task.class_counts[task.class_counts > 0]
    uneven = len(counts) > 0 and counts.max() / counts.min() >= IMBALANCE_FOR_WEIGHTS
    return task.class_weights(RARE_WEIGHTS if uneven else "none").cpu()


class ValScores(NamedTuple):
    """How a model does on val: `metric` is what it is judged by (higher is better), `values` go into its curve."""

    metric: float
    loss: float
    values: dict[str, float]


class ClassVal:
    """Counts hits per class and sums the cross-entropy over batches, plain and as it would be after calibration.

    The selection metric is the loss of its probabilities at the sharpness that suits them best, each class counting by
    `class_weights`: a model that is too sure, or not sure enough, is calibrated before anybody sees a probability of it.
    """

    def __init__(self, *, supports: NDArray[np.int64], class_weights: torch.Tensor) -> None:
        self._supports, self._weights = supports, class_weights
        self._hits = np.zeros(len(supports))
        self._loss, self._sharpened = 0.0, np.zeros(len(_SHARPNESS))

    def add(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        hits = targets[outputs.argmax(-1) == targets]
        self._hits += torch.bincount(hits, minlength=len(self._supports)).cpu().numpy()
        counted = self._weights.to(outputs.device)[targets]
        gained = [(outputs * one).log_softmax(-1).gather(-1, targets[:, None])[:, 0] for one in _SHARPNESS]
        self._sharpened -= torch.stack([(one * counted).sum() for one in gained]).cpu().numpy()
        self._loss -= float(gained[_SHARPNESS.index(1)].sum())

    def finish(self) -> ValScores:
        total, present = self._supports.sum(), self._supports > 0
        best = float(self._sharpened.min() / (self._weights.cpu().double().numpy() @ self._supports))
        loss = float(self._loss / total)
        values = {
            "val_loss": loss,
            "val_log_loss": best,
            "val_accuracy": float(self._hits.sum() / total),
            "val_balanced_accuracy": float((self._hits[present] / self._supports[present]).mean()),
        }
        return ValScores(-best, loss, values)


class LabelVal(ClassVal):
    """Several labels: each is two classes, without it and with it."""

    def __init__(self, targets: NDArray[np.float32]) -> None:
        with_it = int(targets.sum())
        super().__init__(supports=np.array([targets.size - with_it, with_it]), class_weights=torch.ones(2))

    def add(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        super().add(*two_classes(outputs, targets))

    def finish(self) -> ValScores:
        metric, loss, values = super().finish()
        return ValScores(metric, loss, {name: values[name] for name in ("val_loss", "val_log_loss")})


class ValueVal:
    """Sums squared errors per target over batches. The unit of a target decides how much it counts in the loss.

    `total_spread` is what a weighted R² divides the summed errors of all targets by.
    """

    def __init__(self, *, targets: NDArray[np.float32], metric: str, total_spread: float = 0.0) -> None:
        self._count, self._metric, self._total_spread = len(targets), metric, total_spread
        self._spread = ((targets - targets.mean(axis=0)) ** 2).sum(axis=0, dtype=np.float64)
        self._errors = np.zeros(targets.shape[1])

    def add(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        self._errors += (outputs - targets).square().sum(dim=0).cpu().numpy()

    def finish(self) -> ValScores:
        errors, varies = self._errors, self._spread > 0
        loss = float(errors.mean() / self._count)
        values, metric = {"val_loss": loss}, -loss
        if self._metric == "r2":
            metric = values["val_r2"] = float((1 - errors[varies] / self._spread[varies]).mean())
        elif self._metric == "weighted_r2":
            metric = values["val_weighted_r2"] = float(1 - errors.sum() / self._total_spread)
        return ValScores(metric, loss, values)


def start_val(task: DeviceTargets, val: Positions, *, metric: str) -> ClassVal | ValueVal:
    """An empty tally for the val split of a task."""
    targets = task.targets.cpu().numpy()[val]
    if task.kind == MULTI_LABEL:
        return LabelVal(targets)
    if task.kind == "classification":
        supports = np.bincount(targets, minlength=task.num_outputs).astype(np.int64)
        return ClassVal(supports=supports, class_weights=judging_weights(task))
    return ValueVal(targets=targets, metric=metric)


WEIGHT_POWERS: dict[ClassWeights, float] = {"none": 0.0, "gentle": 0.25, "tempered": 0.5, "balanced": 1.0}
"""A class counts by its frequency to minus this power. Tempered is the middle way: rare classes are seen, common ones kept."""


@dataclass(frozen=True, eq=False)
class DeviceTargets:
    """The targets as training sees them, on the device: class numbers (N,), or standardised values (N, T).

    `class_counts` counts each class or label in the train split (empty for regression); `scale` maps standardised values back.
    """

    kind: ProblemKind
    num_outputs: int
    targets: torch.Tensor
    class_counts: NDArray[np.int64]
    scale: Standardiser
    num_train: int = 0

    @property
    def device(self) -> torch.device:
        return self.targets.device

    def class_weights(self, weighting: ClassWeights) -> torch.Tensor:
        """One weight per class, averaging to 1 over the train split."""
        weights = np.maximum(self.class_counts, 1) ** -WEIGHT_POWERS[weighting]
        return torch.from_numpy((weights * self.class_counts.sum() / (weights @ self.class_counts)).astype(np.float32)).to(
            self.device
        )

    def first_bias(self, weighting: ClassWeights) -> torch.Tensor:
        """The output bias to begin with: the log of how much each class counts, so no step is spent on learning that."""
        if self.kind == "regression":
            return torch.zeros(self.num_outputs)
        if self.kind == MULTI_LABEL:
            num_without = self.num_train - self.class_counts
            return torch.from_numpy(np.log((self.class_counts + 1.0) / (num_without + 1.0)).astype(np.float32))
        counted = (self.class_counts + 1.0) ** (1 - WEIGHT_POWERS[weighting])
        return torch.from_numpy(np.log(counted / counted.sum()).astype(np.float32))

    @classmethod
    def of(cls, problem: Problem, *, device: torch.device) -> DeviceTargets:
        """Put the targets of `problem` on `device`."""
        count, train = problem.num_outputs, problem.targets[problem.positions("train")]
        unscaled = Standardiser(np.zeros(count, np.float32), np.ones(count, np.float32))
        if problem.kind == MULTI_LABEL:
            marks = torch.from_numpy(np.ascontiguousarray(problem.targets, dtype=np.float32)).to(device)
            return cls(MULTI_LABEL, count, marks, train.sum(axis=0).astype(np.int64), unscaled, len(train))
        if problem.kind == "classification":
            classes = torch.from_numpy(np.ascontiguousarray(problem.targets, dtype=np.int64)).to(device)
            counts = np.bincount(train, minlength=count)
            return cls("classification", count, classes, counts.astype(np.int64), unscaled)
        scale = column_scale(train)
        scaled = ((problem.targets - scale.mean) / scale.std).astype(np.float32)
        return cls("regression", count, torch.from_numpy(scaled).to(device), np.zeros(0, np.int64), scale)


def column_scale(rows: NDArray[Any]) -> Standardiser:
    """Mean and deviation of each column (pass the train split only); one that never varies keeps the deviation 1."""
    values = rows.astype(np.float64)
    mean, std = values.mean(axis=0), values.std(axis=0)
    std[std <= 1e-7 * np.maximum(1.0, np.abs(mean))] = 1.0
    return Standardiser(mean.astype(np.float32), std.astype(np.float32))
