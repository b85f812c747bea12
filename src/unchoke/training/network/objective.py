"""What a network is trained for: a loss per sample, and the judging on the val split.

In: a problem, and for values a `TargetPlan`; outputs as `TiledNetwork` gives them (logits, or values in the targets' own units).
Out: one float32 loss per sample, so that the mean over a batch can be split into parts exactly; the targets of any samples on the
device; a tally for val; and the scale and bias an untrained head begins with. Nothing here runs a network.

Values: the loss is scaled so that its mean over the train split is 1 − R² there. With declared weights that is the weighted R²
over all (sample, target) pairs, with one common denominator; without, the mean of each target's own R².
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from unchoke.core.errors import UsageError, list_some
from unchoke.data.several_labels import MULTI_LABEL
from unchoke.data.targets import TargetPlan, plan_targets
from unchoke.machine.backend import send
from unchoke.training.data import Positions, Problem, ProblemKind
from unchoke.training.heads.heads import ClassWeights
from unchoke.training.scoring.figures import pair_spread
from unchoke.training.scoring.selection import (
    ClassVal,
    DeviceTargets,
    LabelVal,
    ValScores,
    ValueVal,
    column_scale,
    judging_weights,
)

_LEAST_START = 1e-4
"""A positive output that should begin at zero begins at this share of its scale: softplus never reaches zero."""


class Tally(Protocol):
    """Judges what is kept of outputs, batch by batch."""

    def add(self, outputs: NDArray[np.float32], positions: Positions) -> None: ...

    def finish(self) -> ValScores: ...


class LoopObjective(Protocol):
    """What the loop asks of an objective, whatever is learnt."""

    @property
    def num_judged(self) -> int:
        """How many numbers `judged` keeps of a sample."""
        ...

    def identity(self) -> Any:
        """Plain values that change with anything about it that the problem does not hold."""
        ...

    def target_rows(self, positions: Positions, *, soft: bool = False, epoch: int | None = None) -> torch.Tensor:
        """The targets at `positions` on the device, as they are shown in `epoch`."""
        ...

    @property
    def holds_targets(self) -> bool:
        """Whether all targets lie on the device, the same in every epoch: `targets_at` then gives them without the host."""
        ...

    def targets_at(self, places: torch.Tensor, *, soft: bool = False) -> torch.Tensor:
        """What `target_rows` gives, for positions that are on the device."""
        ...

    def losses(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """One loss per sample."""
        ...

    def judged(self, outputs: torch.Tensor, positions: Positions) -> torch.Tensor:
        """What is worth keeping of a sample's outputs to judge them: (n, num_judged)."""
        ...

    def start_val(self, positions: Positions, metric: str) -> Tally:
        """An empty tally for the samples at `positions`."""
        ...


@dataclass(frozen=True, eq=False)
class OutputScale:
    """How raw outputs become values, one entry per learned output (float32, on the CPU), and the bias to begin with.

    Classes: raw outputs are logits. Values: raw·std + mean. Positive values: softplus(raw)·std, and the mean is 0.
    """

    mean: torch.Tensor
    std: torch.Tensor
    bias: torch.Tensor


@dataclass(frozen=True, eq=False)
class Objective:
    """`targets` is on the device: int64 (N,) classes, or float32 (N, T) values in their own units.

    `factors` (T,) bring values to a scale on which their squared error, averaged over the targets, is the loss.
    """

    kind: ProblemKind
    plan: TargetPlan | None
    targets: torch.Tensor
    scale: OutputScale
    label_smoothing: float
    class_weights: torch.Tensor | None
    factors: torch.Tensor | None = None
    judging: torch.Tensor | None = None
    """How much each class counts in what is picked by."""

    @classmethod
    def of(
        cls,
        problem: Problem,
        plan: TargetPlan | None = None,
        *,
        label_smoothing: float = 0.0,
        class_weights: ClassWeights = "none",
        device: torch.device,
    ) -> Objective:
        """The objective of `problem`; a regression without a plan learns every target by itself, all alike."""
        if problem.kind == "classification":
            task = DeviceTargets.of(problem, device=device)
            return cls(
                kind="classification",
                plan=None,
                targets=task.targets,
                scale=OutputScale(torch.zeros(task.num_outputs), torch.ones(task.num_outputs), task.first_bias(class_weights)),
                label_smoothing=label_smoothing,
                class_weights=None if class_weights == "none" else task.class_weights(class_weights),
                judging=judging_weights(task),
            )
        if problem.kind == MULTI_LABEL:
            task = DeviceTargets.of(problem, device=device)
            scale = OutputScale(torch.zeros(task.num_outputs), torch.ones(task.num_outputs), task.first_bias("none"))
            return cls(MULTI_LABEL, None, task.targets, scale, label_smoothing=0.0, class_weights=None)
        plan = plan or plan_targets(problem.names)
        train = problem.targets[problem.positions("train")]
        if plan.weights is None:
            factors = np.reciprocal(column_scale(train).std)
        else:
            spread = pair_spread(train, plan.weights) or len(train) * sum(plan.weights)
            factors = np.sqrt(np.array(plan.weights) * train.size / spread).astype(np.float32)
        values = np.ascontiguousarray(problem.targets, dtype=np.float32)
        return cls(
            kind="regression",
            plan=plan,
            targets=torch.from_numpy(values).to(device),
            scale=_value_scale(plan, train[:, [plan.names.index(name) for name in plan.learned]]),
            label_smoothing=0.0,
            class_weights=None,
            factors=torch.from_numpy(factors).to(device),
        )

    @property
    def num_outputs(self) -> int:
        """How many outputs are learned."""
        return len(self.scale.bias)

    @property
    def num_judged(self) -> int:
        return len(self.plan.names) if self.plan else self.num_outputs

    def identity(self) -> Any:
        return self.plan.to_dict() if self.plan else None

    def judged(self, outputs: torch.Tensor, positions: Positions) -> torch.Tensor:
        """All of them: a few numbers per sample."""
        return outputs

    def target_rows(self, positions: Positions, *, soft: bool = False, epoch: int | None = None) -> torch.Tensor:
        """The targets at `positions`, the same in every epoch.

        `soft` gives classes as rows of shares (n, C), which can be mixed like values.
        """
        return self.targets_at(send(torch.from_numpy(positions), self.targets.device), soft=soft)

    @property
    def holds_targets(self) -> bool:
        return True

    def targets_at(self, places: torch.Tensor, *, soft: bool = False) -> torch.Tensor:
        rows = self.targets[places]
        return F.one_hot(rows, self.num_outputs).float() if soft and self.kind == "classification" else rows

    def losses(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """One loss per sample (n,), for outputs and targets of the same samples.

        Classes may be mixed: for shares λ of class a and 1 − λ of b, the loss is λ·loss(a) + (1 − λ)·loss(b), with each
        class's own weight.
        """
        outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
        if self.factors is not None:
            return ((outputs - targets) * self.factors).square().mean(dim=1)
        if self.kind == MULTI_LABEL:
            return F.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype), reduction="none").mean(dim=1)
        gained = outputs.log_softmax(dim=1)
        if self.label_smoothing:
            gained = torch.lerp(gained, gained.mean(dim=1, keepdim=True), self.label_smoothing)
        if self.class_weights is not None:
            gained = gained * self.class_weights
        if targets.is_floating_point():
            return -(gained * targets).sum(dim=1)
        return -gained.gather(1, targets.unsqueeze(1)).squeeze(1)

    def start_val(self, positions: Positions, metric: str) -> ValTally:
        """An empty tally for the samples at `positions`, judged by `metric` (what `choose_metric` chose)."""
        targets = self.target_rows(positions).cpu()
        if self.judging is not None:
            supports = torch.bincount(targets, minlength=self.num_outputs).numpy()
            return ValTally(self, ClassVal(supports=supports, class_weights=self.judging))
        if self.kind == MULTI_LABEL:
            return ValTally(self, LabelVal(targets.numpy()))
        assert self.factors is not None
        assert self.plan is not None
        total, factors = 0.0, self.factors.cpu()
        if metric == "weighted_r2" and self.plan.weights:
            per_weight = float(factors.double().square().sum()) / sum(self.plan.weights)
            total = pair_spread(targets.numpy(), self.plan.weights) * per_weight
        return ValTally(self, ValueVal(targets=(targets * factors).numpy(), metric=metric, total_spread=total))


class ValTally:
    """Judges outputs batch by batch; only sums are kept."""

    def __init__(self, objective: Objective, tally: ClassVal | ValueVal) -> None:
        self._objective, self._tally = objective, tally

    def add(self, outputs: torch.Tensor | NDArray[np.float32], positions: Positions) -> None:
        """Outputs (n, outputs) of the samples at `positions`, on any device."""
        found = torch.as_tensor(outputs).to(self._objective.targets.device, torch.float32)
        targets = self._objective.target_rows(positions)
        if self._objective.factors is not None:
            found, targets = found * self._objective.factors, targets * self._objective.factors
        self._tally.add(found, targets)

    def finish(self) -> ValScores:
        """(the metric, higher is better; the loss; what goes into the curve)."""
        return self._tally.finish()


def _value_scale(plan: TargetPlan, learned: NDArray[np.float32]) -> OutputScale:
    """Positive: an output of softplus(raw)·mean, with the bias at which softplus is one; a target that is always 0 begins just
    above it.
    """
    if not plan.positive:
        scale = column_scale(learned)
        return OutputScale(torch.from_numpy(scale.mean), torch.from_numpy(scale.std), torch.zeros(len(scale.mean)))
    negative = [name for name, column in zip(plan.learned, learned.T, strict=True) if (column < 0).any()]
    if negative:
        raise UsageError(
            f"positive outputs were asked for, but some train values are negative: {list_some(negative)}",
            code="negative-targets",
            why="an output through softplus is never below zero",
            try_="leave --positive out",
        )
    mean = torch.from_numpy(learned.mean(axis=0, dtype=np.float64).astype(np.float32))
    std = torch.where(mean > 0, mean, 1.0)
    bias = (mean / std).clamp(min=_LEAST_START).expm1().log()
    return OutputScale(torch.zeros_like(mean), std, bias)
