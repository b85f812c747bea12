"""Would more photos help? Accuracy (or R²) against the number of photos that were trained on.

In: cached features, the judged photos (val and test), and which photos are alike. Out: a `LearningCurveRecord`: the figure at
an eighth, a quarter, half and all of the photos, what the last doubling brought, measured on the same photos, and, where that is
more than chance gives, about what the next one would. What is trained is ridge regression in closed form, so nothing is random;
which photos are left out follows from hashes. A curve that would take long is left out, with a reason: operations are counted
for that, not seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.fingerprint import hash_unit
from unchoke.core.record import CurvePoint, Interval, LearningCurveRecord
from unchoke.machine.backend import one_thread
from unchoke.training.data import FeatureSource, Positions, Problem, Standardiser, fit_standardiser
from unchoke.training.scoring.intervals import student_quantile

_SHARES = (8, 4, 2, 1)
_REPEATS = ((8, 8, 6, 1), (4, 3, 2, 1), (1, 1, 1, 1))
"""How often each share is drawn: the first of these that is not too slow."""
_MIN_TRAIN, _MIN_JUDGED, _MIN_PART = 40, 20, 10
_MAX_OPERATIONS, _OPERATIONS_PER_PHOTO = 3e10, 1e7
"""About a second on one core; or a twentieth of the time in which photos are read and become features."""
_WORTH_SHOWING = 0.02
"""How much a head must beat one answer for all by, in accuracy or R², for its curve to say anything about photos."""
_STRENGTHS = (0.03, 0.1, 0.3, 1.0, 3.0)
"""Penalties of the ridge, on a kernel with ones on its diagonal."""
_DEFAULT_STRENGTH = 0.3


def measure_curve(refit: RidgeRefit, problem: Problem, groups: Sequence[str], *, seed: int) -> LearningCurveRecord:
    """The curve, or why there is none."""
    if problem.kind == "multi_label":
        return LearningCurveRecord(skipped="there is no curve for several labels yet")
    train, judged = problem.positions("train"), refit.judged
    if len(train) < _MIN_TRAIN or len(judged) < _MIN_JUDGED:
        return LearningCurveRecord(skipped=f"{len(train)} training and {len(judged)} judged photos are too few to tell")
    allowed = max(_MAX_OPERATIONS, _OPERATIONS_PER_PHOTO * len(train))
    repeats = next((numbers for numbers in _REPEATS if _cost(refit, len(train), numbers) <= allowed), None)
    if repeats is None:
        return LearningCurveRecord(skipped=f"{len(train):,} photos of {problem.num_outputs:,} classes or targets would take long")
    worth = _worth(problem, judged)
    levels = [
        [worth(refit(part)) for part in _parts(problem, groups, train, share, number, seed=seed)]
        for share, number in zip(_SHARES, repeats, strict=True)
    ]
    points = [
        CurvePoint(num_photos=len(train) // share, value=float(np.mean(level)), num_repeats=len(level))
        for share, level in zip(_SHARES, levels, strict=True)
        if level
    ]
    metric, baseline = "r2", 0.0  # always answering the mean gets an R² of 0 or less
    if problem.kind == "classification":
        commonest = np.bincount(problem.targets[train]).argmax()
        metric, baseline = "accuracy", float((problem.targets[judged] == commonest).mean())
    record = LearningCurveRecord(metric=metric, num_judged=len(judged), points=points)
    if points[-1].value < baseline + _WORTH_SHOWING:
        record.skipped = "the linear head that it is measured with is hardly better than one answer for all"
    elif levels[-2]:
        names = [groups[place] or f"\0{place}" for place in judged.tolist()]
        record.gain = _gain(levels[-1][0], levels[-2], np.unique(names, return_inverse=True)[1].astype(np.int64))
        record.next_gain = _next_gain(record.gain, [point.value for point in points])
    return record


def _cost(refit: RidgeRefit, count: int, repeats: Sequence[int]) -> float:
    return refit.fixed_cost + sum(number * refit.cost(count // share) for share, number in zip(_SHARES, repeats, strict=True))


def _parts(problem: Problem, groups: Sequence[str], train: Positions, share: int, number: int, *, seed: int) -> list[Positions]:
    """So many parts of the train split, whole groups in each, in orders of hashes; none that is too small, or of one class."""
    size = len(train) // share
    if share == 1:
        return [train]
    if size < _MIN_PART:
        return []
    names = [groups[place] or problem.sample_ids[place] for place in train.tolist()]
    parts = []
    for repeat in range(number):
        order = np.argsort([hash_unit("curve", seed, repeat, name) for name in names], kind="stable")
        part = np.sort(train[order[:size]])
        if problem.kind != "classification" or len(np.unique(problem.targets[part])) > 1:
            parts.append(part)
    return parts


def _worth(problem: Problem, judged: Positions) -> Callable[[NDArray[np.float32]], NDArray[np.float64]]:
    """What each answer is worth, so that their mean is the figure: 1 for a right class; for values 1 less its share of error."""
    targets = problem.targets[judged].astype(np.float64)
    if problem.kind == "classification":
        return lambda outputs: np.asarray(outputs.argmax(axis=1) == targets, dtype=np.float64)
    spread = targets.var(axis=0)
    varies = spread > 0
    return lambda outputs: np.asarray(1 - ((outputs - targets)[:, varies] ** 2 / spread[varies]).mean(axis=1), dtype=np.float64)


def _gain(full: NDArray[np.float64], halves: list[NDArray[np.float64]], units: NDArray[np.int64]) -> Interval:
    """What all photos bring over half of them, on the same judged photos: the spread between these and between halves counts."""
    each = full - np.mean(halves, axis=0)
    mean = float(each.mean())
    sums = np.bincount(units, weights=each - mean)
    num = len(sums)
    variance = num / max(1, num - 1) * float((sums**2).sum()) / len(each) ** 2
    if len(halves) > 1:
        variance += float(np.var([half.mean() for half in halves], ddof=1)) / len(halves)
    half_width = student_quantile(num - 1) * math.sqrt(variance)
    return Interval(mean, mean - half_width, mean + half_width)


def _next_gain(gain: Interval, values: Sequence[float]) -> Interval | None:
    """What twice the photos would bring if the error goes on falling by the same power of their number; None where the last gain
    may be chance alone. Its limits are as far from it, in proportion, as those of the last gain.
    """
    if gain.value is None or gain.low is None or gain.high is None or gain.low <= 0 or len(values) < 2:
        return None
    steps = min(2, len(values) - 1)
    left, before = 1 - values[-1], 1 - values[-1 - steps]
    if left <= 0 or before <= left:
        return None
    next_gain = left * (1 - (left / before) ** (1 / steps))
    low, high = (next_gain * limit / gain.value for limit in (gain.low, gain.high))
    return Interval(next_gain, low, min(high, left))


@dataclass(eq=False)
class RidgeRefit:
    """Ridge regression (for classes on one-hot targets, the bias free): called with the positions to train on, it gives outputs
    (n, outputs) for `judged`. Costs are counted in multiplications and additions.
    """

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
            weight, bias = self._solve(positions, [self.strength])[0]
            outputs: NDArray[np.float32] = (self._rows(self.judged) @ weight + bias).numpy()
        return outputs

    @cached_property
    def strength(self) -> float:
        """The one with the least squared error on val after training on all of train; no output counts for its unit."""
        train, val = self.problem.positions("train"), self.problem.positions("val")
        if len(val) == 0:
            return _DEFAULT_STRENGTH
        spread = self._wanted(train).var(dim=0)
        spread = torch.where(spread > 0, spread, torch.ones_like(spread))
        rows, wanted = self._rows(val), self._wanted(val)
        solved = self._solve(train, _STRENGTHS)
        errors = [float((rows @ weight + bias - wanted).square().mean(dim=0).div(spread).sum()) for weight, bias in solved]
        return _STRENGTHS[int(np.argmin(errors))]

    def _solve(self, positions: Positions, strengths: Sequence[float]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Weights (dim, outputs) and biases for each strength, from as many equations as there are photos or features,
        whichever is less.
        """
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

    def _rows(self, positions: Positions) -> torch.Tensor:
        rows = torch.from_numpy(self.source.rows(positions, 0).astype(np.float32))
        return rows.sub_(torch.from_numpy(self._scale.mean)).div_(torch.from_numpy(self._scale.std))

    @cached_property
    def _scale(self) -> Standardiser:
        return fit_standardiser(self.source, self.problem.positions("train"))
