"""Answers of several models as one: which of them, in which shares, is decided on the val split.

In: outputs of each model for the same samples. Out: shares, and outputs of all together: for classes the logarithm of the mean of
their calibrated probabilities, for values the mean. Models are added one by one, the same again if that is best, as long as the
loss falls by more than chance would have it; so a poor model gets no share, and a single one may get all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.training.data import Problem
from unchoke.training.device_targets import DeviceTargets
from unchoke.training.scoring.calibration import fit_temperature
from unchoke.training.scoring.figures import log_losses, softmax
from unchoke.training.scoring.selection import judging_weights

_MOST_PARTS = 8
_LEAST_GAIN = 0.005
_TINY = 1e-12


@dataclass(frozen=True)
class Share:
    """How much one model counts, and what its logits are divided by first."""

    weight: float
    temperature: float = 1.0


@dataclass(frozen=True, eq=False)
class ValLoss:
    """What models are compared by on the val split: lower is better."""

    problem: Problem
    class_weights: NDArray[np.float64] | None
    target_weights: tuple[float, ...] | None = None

    @classmethod
    def of(cls, problem: Problem, target_weights: tuple[float, ...] | None = None) -> ValLoss:
        if problem.kind != "classification":
            return cls(problem, None, target_weights)
        import torch

        return cls(problem, judging_weights(DeviceTargets.of(problem, device=torch.device("cpu"))).double().numpy())

    def __call__(self, outputs: NDArray[Any]) -> float:
        targets = self.problem.targets[self.problem.positions("val")]
        if self.class_weights is not None:
            counted = self.class_weights[targets]
            return float((log_losses(outputs, targets) * counted).sum() / counted.sum())
        errors = ((outputs.astype(np.float64) - targets) ** 2).mean(axis=0)
        spread = np.maximum(targets.astype(np.float64).var(axis=0), _TINY)
        return float(np.average(errors / spread, weights=self.target_weights))


def temperature_of(outputs: NDArray[np.float32], problem: Problem) -> float:
    """What a model's logits are divided by before they are blended; 1 for values."""
    if problem.kind != "classification":
        return 1.0
    return fit_temperature(outputs, problem.targets[problem.positions("val")])[0]


def choose_shares(outputs: Sequence[NDArray[np.float32]], loss: ValLoss) -> list[Share]:
    """The share of each model, from its outputs for the val split."""
    temperatures = [temperature_of(one, loss.problem) for one in outputs]
    answers = [_answer(one, temperature, loss.problem.kind) for one, temperature in zip(outputs, temperatures, strict=True)]
    counts = np.zeros(len(outputs))
    total, reached = np.zeros_like(answers[0]), np.inf
    for part in range(_MOST_PARTS):
        losses = [loss(_outputs((total + answer) / (part + 1), loss.problem.kind)) for answer in answers]
        best = int(np.argmin(losses))
        if losses[best] >= reached * (1 - _LEAST_GAIN):
            break
        reached, total = losses[best], total + answers[best]
        counts[best] += 1
    return [Share(float(count / counts.sum()), temperature) for count, temperature in zip(counts, temperatures, strict=True)]


def blend(outputs: Sequence[NDArray[np.float32]], shares: Sequence[Share], kind: str) -> NDArray[np.float32]:
    """What all models say together, as outputs of one."""
    total: Any = sum(share.weight * _answer(one, share.temperature, kind) for one, share in zip(outputs, shares, strict=True))
    return _outputs(total, kind)


def _answer(outputs: NDArray[np.float32], temperature: float, kind: str) -> NDArray[np.float64]:
    return softmax(outputs / temperature).astype(np.float64) if kind == "classification" else outputs.astype(np.float64)


def _outputs(answer: NDArray[np.float64], kind: str) -> NDArray[np.float32]:
    return (np.log(np.maximum(answer, _TINY)) if kind == "classification" else answer).astype(np.float32)
