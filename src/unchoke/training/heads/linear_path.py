"""Linear heads that are solved instead of trained: the best weights for one strength of penalty after the other.

In: standardised features, read chunk by chunk, and targets. Out: after each step along the path the weights that minimise the
mean loss plus half the strength times their squares (the bias is free): logistic regression by L-BFGS, begun at the weights of
the stronger penalty before, and ridge regression in closed form. Both know the covariance of the features, as a matrix or, where
there are fewer rows than features, between rows: with it a strength takes some ten looks at the data. Nothing is random, and
chunks of rows are shared out over the cores and summed in their order, so that no number depends on how many cores there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from unchoke.core.ahead import map_ahead
from unchoke.core.fingerprint import hash_int
from unchoke.data.several_labels import MULTI_LABEL
from unchoke.machine.backend import is_cpu, one_thread
from unchoke.machine.detect import usable_cores
from unchoke.training.data import ArraySource, Problem, ProblemKind, fit_standardiser
from unchoke.training.heads.heads import HeadConfig, Params
from unchoke.training.sampling import Rows, Scaler
from unchoke.training.scoring.figures import as_pairs, log_losses
from unchoke.training.scoring.selection import DeviceTargets

STRENGTHS = tuple(10 ** (1 - step / 2) for step in range(11))
"""From strong to weak, each three times weaker than the one before: 10 to 0.0001."""
NUM_FOLDS = 5
PATIENCE = 2
"""How many weaker penalties are tried after the best one; the loss on val has one valley."""
HELD_BYTES = 1 << 28
"""Rows are kept in memory up to here; else they are read and standardised anew each time."""
_MOST_STEPS, _MEMORY, _GAIN = 100, 10, 1e-3
"""Steps end when one brings less than a thousandth of the loss: more digits change no answer on val (docs/claims.md)."""
_LEAST_CURVATURE, _CURVATURE_STEP = 1e-4, 4.0
_JITTER = 1e-9
T = TypeVar("T")


class Solvable:
    """Rows to learn from, in the coordinates in which heads are solved: the features, or as many as there are rows."""

    def __init__(self, rows: Rows, task: DeviceTargets) -> None:
        self.rows, self.task = rows, task
        rows.hold(HELD_BYTES)

    def over_chunks(self, work: Callable[[torch.Tensor, torch.Tensor], T]) -> Iterator[T]:
        """`work` on the coordinates and positions of every chunk, on all cores, in order."""
        if self._few is not None:
            return iter([work(*self._few[:2])])
        numbers = range(self.rows.num_chunks)
        threads = usable_cores() if is_cpu(self.rows.device) and len(numbers) > 1 else 0
        return map_ahead(lambda number: work(*self.rows.chunk(number)), numbers, threads=threads, ahead=threads + 1)

    @cached_property
    def _few(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
        """Where rows are fewer than features: coordinates (n, n), positions, and the axes (n, dim) that lead back to features.

        The best weights are sums of rows, so nothing is lost, and the work is that of as many features as there are rows.
        """
        if self.rows.count >= self.rows.source.dim:
            return None
        chunks = [self.rows.chunk(number) for number in range(self.rows.num_chunks)]
        feats = torch.cat([one for one, _ in chunks]).double()
        kernel = feats @ feats.T
        jitter = _JITTER * kernel.diagonal().mean().clamp_min(1e-3)  # rows that are the same are no reason to fail
        factor = torch.linalg.cholesky(kernel + jitter * torch.eye(len(kernel)).to(kernel))
        axes = torch.linalg.solve_triangular(factor, feats, upper=False)
        return factor.float(), torch.cat([where for _, where in chunks]), axes.float()

    @cached_property
    def moments(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The means (r,) of the coordinates and of their products (r, r), in float64."""
        mean: Any = 0.0
        product: Any = 0.0
        for sums, products in self.over_chunks(lambda feats, _: (feats.sum(dim=0), feats.T @ feats)):
            mean, product = mean + sums.double(), product + products.double()
        return mean / self.rows.count, product / self.rows.count

    def to_features(self, weight: torch.Tensor) -> torch.Tensor:
        """Weights (outputs, r) of coordinates as weights (outputs, dim) of features."""
        return weight if self._few is None else weight @ self._few[2]

    def from_features(self, weight: torch.Tensor) -> torch.Tensor:
        return weight if self._few is None else weight @ self._few[2].T


class LinearPath:
    """One linear head along the path of strengths."""

    def __init__(self, rows: Rows, task: DeviceTargets, config: HeadConfig, *, begin: Params | None = None) -> None:
        """`begin` are the parameters of the strength before, or of another head for the same features."""
        self._data, self._task, self._config = Solvable(rows, task), task, config
        begin = begin or {
            "weight": torch.zeros(task.num_outputs, rows.source.dim),
            "bias": task.first_bias(config.class_weights),
        }
        self.params = {name: tensor.to(task.device) for name, tensor in begin.items()}

    @torch.no_grad()
    def run_epoch(self, epoch: int) -> float:
        """Solve for the strength of this epoch, from 0 on; the training loss there, without the penalty."""
        solve = self._solve_values if self._task.kind == "regression" else self._solve_classes
        weight, bias, loss = solve(strength_at(self._config, epoch))
        self.params = {"weight": self._data.to_features(weight).contiguous(), "bias": bias.contiguous()}
        return loss

    def _solve_classes(self, strength: float) -> tuple[torch.Tensor, torch.Tensor, float]:
        begin = torch.cat([self._data.from_features(self.params["weight"]), self.params["bias"][:, None]], dim=1)
        loss = (LabelLoss if self._task.kind == MULTI_LABEL else ClassLoss)(self._data, self._config, strength)
        solved = minimise(loss, begin)
        return solved[:, :-1], solved[:, -1], loss.plain

    def _solve_values(self, strength: float) -> tuple[torch.Tensor, torch.Tensor, float]:
        mean, product = self._data.moments
        cross, target_mean, spread = self._cross
        covariance = product - torch.outer(mean, mean)
        factor = torch.linalg.cholesky(covariance + strength * torch.eye(len(mean)).to(covariance))
        weight = torch.cholesky_solve(cross, factor)
        unexplained = spread - (2 * weight * cross).sum(dim=0) + (weight * (covariance @ weight)).sum(dim=0)
        loss = float(unexplained.clamp_min(0).mean())
        return weight.T.float(), (target_mean - weight.T @ mean).float(), loss

    @cached_property
    def _cross(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The covariances (r, T) of coordinates and targets, the targets' means and their variances (T,), in float64."""
        targets, count = self._task.targets, self._data.rows.count
        sums: Any = [0.0, 0.0, 0.0]
        for parts in self._data.over_chunks(
            lambda feats, where: (
                feats.T @ targets[where],
                targets[where].sum(dim=0),
                targets[where].double().square().sum(dim=0),
            )
        ):
            sums = [total + part.double() for total, part in zip(sums, parts, strict=True)]
        products, mean, squares = (one / count for one in sums)
        return products - torch.outer(self._data.moments[0], mean), mean, squares - mean**2

    def outputs(self, feats: torch.Tensor) -> torch.Tensor:
        return F.linear(feats, self.params["weight"], self.params["bias"])

    def pace(self, epoch: int) -> dict[str, float]:
        """How this epoch went, for the curve."""
        return {"strength": strength_at(self._config, epoch)}

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs."""
        return {"params": self.params}


def strength_at(config: HeadConfig, epoch: int) -> float:
    """The strength of an epoch: one of the path, or the one that was asked for."""
    return config.weight_decay if config.epochs == 1 else STRENGTHS[epoch]


class ClassLoss:
    """The mean weighted cross-entropy and the penalty, and their slope, for weights and bias packed as (classes, r + 1)."""

    def __init__(self, data: Solvable, config: HeadConfig, strength: float) -> None:
        self._data, self._strength = data, strength
        self._weights = data.task.class_weights(config.class_weights)  # of several labels all ones
        self.plain = 0.0
        """The loss without the penalty, as last looked at."""
        self.curvature = self._weights
        """Of each class, where it was last looked at: the mean of p (1 − p)."""

    def __call__(self, packed: torch.Tensor) -> tuple[float, torch.Tensor]:
        weight, bias = packed[:, :-1].contiguous(), packed[:, -1].contiguous()

        def look(feats: torch.Tensor, where: torch.Tensor) -> tuple[torch.Tensor, ...]:
            loss, curvature, gaps = self.compare(F.linear(feats, weight, bias), self._data.task.targets[where])
            return loss, curvature, gaps.T @ feats, gaps.sum(dim=0)

        sums: Any = [0.0] * 4
        with torch.no_grad():
            for parts in self._data.over_chunks(look):
                sums = [total + part for total, part in zip(sums, parts, strict=True)]
        loss, self.curvature, of_weight, of_bias = (one / self._data.rows.count for one in sums)
        self.plain = float(loss)
        slope = torch.cat([of_weight + self._strength * weight, of_bias[:, None]], dim=1)
        return self.plain + 0.5 * self._strength * float(weight.square().sum()), slope

    def compare(self, logits: torch.Tensor, classes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Of a chunk: the summed loss, the curvature of each class (classes,), and the slope for each logit (n, classes)."""
        classes = classes[:, None]
        counted = self._weights[classes]
        logs = logits.log_softmax(dim=1)
        loss = -(logs.gather(1, classes) * counted).sum()
        chances = logs.exp_()
        curvature = ((chances - chances.square()) * counted).sum(dim=0)
        return loss, curvature, chances.scatter_add_(1, classes, -torch.ones_like(counted)).mul_(counted)

    def precondition(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """A guess of the inverse curvature: the products of features, as much of them as each class curves here.

        Classes that curve alike, within a factor of four, share one factorisation.
        """
        curvature = self.curvature.clamp_min(_LEAST_CURVATURE)
        steps = (curvature.log() / math.log(_CURVATURE_STEP)).round().long().tolist()
        product = self._data.moments[1].float()
        ridge = self._strength * torch.eye(len(product)).to(product)
        factors = {step: torch.linalg.cholesky(_CURVATURE_STEP**step * product + ridge) for step in sorted(set(steps))}
        members = {step: [place for place, one in enumerate(steps) if one == step] for step in factors}

        def apply(slope: torch.Tensor) -> torch.Tensor:
            turned = slope / curvature[:, None]
            for step, factor in factors.items():
                turned[members[step], :-1] = torch.cholesky_solve(slope[members[step], :-1].T, factor).T
            return turned

        return apply


class LabelLoss(ClassLoss):
    """Several labels: the sum of one logistic regression for each, all at one strength."""

    def compare(self, logits: torch.Tensor, marks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        loss = F.binary_cross_entropy_with_logits(logits, marks, reduction="sum")
        chances = logits.sigmoid_()
        return loss, (chances - chances.square()).sum(dim=0), chances.sub_(marks)


def minimise(loss: ClassLoss, point: torch.Tensor) -> torch.Tensor:
    """The minimum of a convex loss by L-BFGS from `point`."""
    value, slope = loss(point)
    precondition, plain = loss.precondition(), loss.plain
    past: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
    scale: Any = 1.0
    for _ in range(_MOST_STEPS):
        # the slope times the inverse curvature, as far as the first guess and the last steps tell it (the two-loop recursion)
        turned, shares = slope.clone(), []
        for moved, bent, inverse in reversed(past):
            shares.append(inverse * (moved * turned).sum())
            turned -= shares[-1] * bent
        turned = scale * precondition(turned)
        for (moved, bent, inverse), share in zip(past, reversed(shares), strict=True):
            turned += moved * (share - inverse * (bent * turned).sum())
        descent = -float((slope * turned).sum())
        if descent >= 0:
            break
        step, (new_value, new_slope) = 1.0, loss(point - turned)
        while new_value > value + 1e-4 * step * descent and step > 1e-4:
            step /= 2
            new_value, new_slope = loss(point - step * turned)
        if new_value >= value:
            break
        moved, bent = -step * turned, new_slope - slope
        if float((moved * bent).sum()) > 0:
            past = [*past, (moved, bent, 1 / (moved * bent).sum())][-_MEMORY:]
            scale = (moved * bent).sum() / (bent * precondition(bent)).sum()
        gain, point, value, slope, plain = value - new_value, point + moved, new_value, new_slope, loss.plain
        if gain <= _GAIN * max(value, _LEAST_CURVATURE):
            break
    loss.plain = plain
    return point


@dataclass(frozen=True)
class CrossValidated:
    """Logits (n, classes) or values (n, T), each by heads trained without the sample's fold, and their penalty."""

    outputs: NDArray[np.float32]
    strength: float


def cross_validate(
    feats_nd: NDArray[np.float16], kind: ProblemKind, names: Sequence[str], targets: NDArray[Any], folds_n: NDArray[np.int64]
) -> CrossValidated:
    """Solve heads on all folds but one, for each fold, along the path of penalties; the one strength is best over all folds.

    For comparing features with one another, in seconds: nothing is kept, and no split of a run is used.
    """
    source, cpu, config = ArraySource(feats_nd), torch.device("cpu"), HeadConfig("linear", solver="lbfgs", epochs=len(STRENGTHS))
    parts = []
    for fold in np.unique(folds_n):
        train, out = np.flatnonzero(folds_n != fold), np.flatnonzero(folds_n == fold)
        task = DeviceTargets.of(Problem(kind, tuple(names), targets, {"train": train}, []), device=cpu)
        scaler = Scaler.on(cpu, fit_standardiser(source, train))
        path = LinearPath(Rows(source, train, scaler), task, config)
        parts.append((path, task.scale, out, scaler(torch.from_numpy(feats_nd[out].astype(np.float32)))))
    spread = None if kind != "regression" else np.maximum(targets.std(axis=0), 1e-12)
    best, least, worse = CrossValidated(np.empty(0, np.float32), STRENGTHS[0]), np.inf, 0
    with one_thread(), torch.no_grad():
        for step, strength in enumerate(STRENGTHS):
            outputs = np.empty((len(feats_nd), len(names)), np.float32)
            for path, scale, out, held_out in parts:
                path.run_epoch(step)
                answers = path.outputs(held_out).numpy()
                outputs[out] = answers if spread is None else answers * scale.std + scale.mean
            if kind == MULTI_LABEL:
                loss = float(log_losses(as_pairs(outputs), targets.reshape(-1).astype(np.int64)).mean())
            elif spread is None:
                loss = float(log_losses(outputs, targets).mean())
            else:
                loss = float((((outputs - targets) / spread) ** 2).mean())
            worse = 0 if loss < least else worse + 1
            if loss < least:
                best, least = CrossValidated(outputs, strength), loss
            if worse >= PATIENCE:
                break
    return best


def deal_folds(strata: Sequence[Any], units: Sequence[str], *, num_folds: int = NUM_FOLDS) -> NDArray[np.int64]:
    """The fold of each sample: units (a group, or a sample by itself) stay whole, and those of one stratum are dealt in turns.

    A unit is dealt with the stratum of its first sample, in an order that depends on its name alone.
    """
    first = {unit: stratum for stratum, unit in reversed(list(zip(strata, units, strict=True)))}
    ordered = sorted(first, key=lambda unit: (str(first[unit]), hash_int("fold", unit)))
    fold_of = {unit: place % num_folds for place, unit in enumerate(ordered)}
    return np.array([fold_of[unit] for unit in units], np.int64)
