"""The targets as training sees them.

In: a `Problem`. Out: a `Task` on the device: class numbers with a weight per class, or values with mean 0 and
deviation 1 on the train split, and the scale to map them back. It does not look at features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from unchoke.train.data import Problem, ProblemKind, Standardiser


@dataclass(frozen=True, eq=False)
class Task:
    """The targets as training sees them, on the device: class numbers (N,), or standardised values (N, T).

    `balanced` holds one weight per class, averaging to 1 over the train split; `scale` maps standardised values back.
    """

    kind: ProblemKind
    num_outputs: int
    targets: torch.Tensor
    balanced: torch.Tensor | None
    scale: Standardiser

    @property
    def device(self) -> torch.device:
        return self.targets.device

    @classmethod
    def of(cls, problem: Problem, *, device: torch.device) -> Task:
        """Put the targets of `problem` on `device`."""
        if problem.kind == "classification":
            return _class_task(problem, device=device)
        scale = _target_scale(problem)
        scaled = ((problem.targets - scale.mean) / scale.std).astype(np.float32)
        return cls("regression", problem.num_outputs, torch.from_numpy(scaled).to(device), None, scale)


def _class_task(problem: Problem, *, device: torch.device) -> Task:
    classes = torch.from_numpy(np.ascontiguousarray(problem.targets, dtype=np.int64)).to(device)
    counts = np.bincount(problem.targets[problem.positions("train")], minlength=problem.num_outputs)
    weights = torch.from_numpy((counts.sum() / (np.maximum(counts, 1) * (counts > 0).sum())).astype(np.float32))
    scale = Standardiser(np.zeros(problem.num_outputs, np.float32), np.ones(problem.num_outputs, np.float32))
    return Task("classification", problem.num_outputs, classes, weights.to(device), scale)


def _target_scale(problem: Problem) -> Standardiser:
    """Mean and deviation of each target on the train split; a target that never varies keeps the deviation 1."""
    train = problem.targets[problem.positions("train")].astype(np.float64)
    mean, std = train.mean(axis=0), train.std(axis=0)
    std[std <= 1e-7 * np.maximum(1.0, np.abs(mean))] = 1.0
    return Standardiser(mean.astype(np.float32), std.astype(np.float32))
