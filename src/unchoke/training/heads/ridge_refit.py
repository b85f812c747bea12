"""A linear head on part of the training photos, in closed form, for a learning curve.

In: cached features and the problem. Out: what ridge regression on some of the photos (for classes on one-hot targets, the bias
free) says of the judged ones. It takes one matrix product and one solution, of as many equations as there are photos or
features, whichever is less; nothing is random.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.machine.backend import one_thread
from unchoke.training.data import FeatureSource, Positions, Problem, Standardiser, fit_standardiser

_STRENGTHS = (0.03, 0.1, 0.3, 1.0, 3.0)
"""Of the ridge, on a kernel with ones on its diagonal."""
_USUAL = 0.3


@dataclass(eq=False)
class RidgeRefit:
    """Called with positions, it gives outputs (n, outputs) for `judged`; costs are counted in multiplications and additions."""

    source: FeatureSource
    problem: Problem
    judged: Positions

    def cost(self, count: int) -> float:
        """Of solving for so many photos, about."""
        return self._solving(count) + 2.0 * len(self.judged) * self.source.dim * self.problem.num_outputs

    @property
    def fixed_cost(self) -> float:
        """Of choosing the strength."""
        return self._solving(len(self.problem.positions("train"))) + len(_STRENGTHS) * float(self.source.dim) ** 3

    def _solving(self, count: int) -> float:
        dim = float(self.source.dim)
        return 2 * min(count, dim) * count * dim + min(count, dim) ** 3

    def __call__(self, positions: Positions) -> NDArray[np.float32]:
        with one_thread():
            weight, bias = self._solve(positions, [self._strength])[0]
            outputs: NDArray[np.float32] = (self._rows(self.judged) @ weight + bias).numpy()
        return outputs

    @cached_property
    def _strength(self) -> float:
        """The one with the least squared error on val after learning from all of train."""
        val = self.problem.positions("val")
        if len(val) == 0:
            return _USUAL
        solved = self._solve(self.problem.positions("train"), _STRENGTHS)
        rows, wanted = self._rows(val), self._wanted(val)
        errors = [float((rows @ weight + bias - wanted).square().mean(dim=0).div(self._spread).sum()) for weight, bias in solved]
        return _STRENGTHS[int(np.argmin(errors))]

    def _solve(self, positions: Positions, strengths: tuple[float, ...] | list[float]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Weights (dim, outputs) and biases for each strength."""
        rows, wanted = self._rows(positions), self._wanted(positions)
        middle, mean = rows.mean(dim=0), wanted.mean(dim=0)
        rows, wanted, dim = rows - middle, wanted - mean, self.source.dim
        dual = len(positions) <= dim
        kernel = (rows @ rows.T if dual else rows.T @ rows) / dim
        goal = wanted if dual else rows.T @ wanted / dim
        found = []
        for strength in strengths:
            factor = torch.linalg.cholesky(kernel + strength * torch.eye(len(kernel)))
            solved = torch.cholesky_solve(goal, factor)
            weight = rows.T @ solved / dim if dual else solved
            found.append((weight, mean - middle @ weight))
        return found

    def _wanted(self, positions: Positions) -> torch.Tensor:
        targets = self.problem.targets[positions]
        if self.problem.kind == "classification":
            return torch.eye(self.problem.num_outputs)[torch.from_numpy(targets.astype(np.int64))]
        return torch.from_numpy(targets.astype(np.float32))

    @cached_property
    def _spread(self) -> torch.Tensor:
        """The variance of each output over train, so that none counts for its unit."""
        spread = self._wanted(self.problem.positions("train")).var(dim=0)
        return torch.where(spread > 0, spread, torch.ones_like(spread))

    def _rows(self, positions: Positions) -> torch.Tensor:
        scale = self._scale
        rows = torch.from_numpy(self.source.rows(positions, 0).astype(np.float32))
        return rows.sub_(torch.from_numpy(scale.mean)).div_(torch.from_numpy(scale.std))

    @cached_property
    def _scale(self) -> Standardiser:
        return fit_standardiser(self.source, self.problem.positions("train"))
