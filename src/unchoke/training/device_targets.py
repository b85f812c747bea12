"""The targets as training sees them.

In: a `Problem`. Out: a `DeviceTargets` on the device: class numbers with a weight per class, or values with mean 0 and
deviation 1 on the train split, and the scale to map them back. It does not look at features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.training.data import Problem, ProblemKind, Standardiser
from unchoke.training.heads.heads import ClassWeights

WEIGHT_POWERS: dict[ClassWeights, float] = {"none": 0.0, "gentle": 0.25, "tempered": 0.5, "balanced": 1.0}
"""A class counts by its frequency to minus this power. Tempered is the middle way: rare classes are seen, common ones kept."""


@dataclass(frozen=True, eq=False)
class DeviceTargets:
    """The targets as training sees them, on the device: class numbers (N,), or standardised values (N, T).

    `class_counts` counts each class in the train split (empty for regression); `scale` maps standardised values back.
    """

    kind: ProblemKind
    num_outputs: int
    targets: torch.Tensor
    class_counts: NDArray[np.int64]
    scale: Standardiser

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
        counted = (self.class_counts + 1.0) ** (1 - WEIGHT_POWERS[weighting])
        return torch.from_numpy(np.log(counted / counted.sum()).astype(np.float32))

    @classmethod
    def of(cls, problem: Problem, *, device: torch.device) -> DeviceTargets:
        """Put the targets of `problem` on `device`."""
        count = problem.num_outputs
        if problem.kind == "classification":
            classes = torch.from_numpy(np.ascontiguousarray(problem.targets, dtype=np.int64)).to(device)
            counts = np.bincount(problem.targets[problem.positions("train")], minlength=count)
            unscaled = Standardiser(np.zeros(count, np.float32), np.ones(count, np.float32))
            return cls("classification", count, classes, counts.astype(np.int64), unscaled)
        scale = column_scale(problem.targets[problem.positions("train")])
        scaled = ((problem.targets - scale.mean) / scale.std).astype(np.float32)
        return cls("regression", count, torch.from_numpy(scaled).to(device), np.zeros(0, np.int64), scale)


def column_scale(rows: NDArray[Any]) -> Standardiser:
    """Mean and deviation of each column (pass the train split only); one that never varies keeps the deviation 1."""
    values = rows.astype(np.float64)
    mean, std = values.mean(axis=0), values.std(axis=0)
    std[std <= 1e-7 * np.maximum(1.0, np.abs(mean))] = 1.0
    return Standardiser(mean.astype(np.float32), std.astype(np.float32))
