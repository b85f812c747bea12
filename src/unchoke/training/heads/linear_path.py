"""Linear heads that are solved instead of trained: the best weights for one strength of penalty after the other.

In: standardised features, read chunk by chunk, and targets. Out: after each step along the path the weights that minimise the
mean loss plus half the strength times their squares (the bias is free): logistic regression by L-BFGS, begun at the weights of
the stronger penalty before, and ridge regression in closed form. The axes along which the features vary are found once; with them
the first guess of the curvature is so good that a strength takes some ten to twenty looks at the data. Nothing is random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from unchoke.core.clock import Clock
from unchoke.core.fingerprint import hash_int
from unchoke.core.timeline import TRAINING
from unchoke.machine.backend import one_thread
from unchoke.training.data import ArraySource, FeatureSource, Positions, Problem, ProblemKind, fit_standardiser
from unchoke.training.heads.heads import HeadConfig, Params
from unchoke.training.heads.stack import Member
from unchoke.training.sampling import Scaler, batches
from unchoke.training.scoring.figures import log_losses
from unchoke.training.scoring.selection import DeviceTargets

STRENGTHS = tuple(10 ** (1 - step / 2) for step in range(11))
"""From strong to weak, each three times weaker than the one before: 10 to 0.0001."""
NUM_FOLDS = 5
PATIENCE = 2
"""How many weaker penalties are tried after the best one; the loss on val has one valley."""
_ROWS = 4096
_HELD_BYTES = 1 << 28
_MOST_STEPS, _MEMORY, _GAIN = 100, 10, 1e-4
_LEAST_CURVATURE, _LEAST_VARIANCE = 1e-3, 1e-10


@dataclass(eq=False)
class TrainingRows:
    """The rows to learn from, each cached view of a sample being one, as standardised float32 chunks with their positions.

    They are kept as long as they are small; else they are read anew each time.
    """

    source: FeatureSource
    positions: Positions
    scaler: Scaler
    held: torch.Tensor | None = None

    def chunks(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        yield from self._kept if self.count * self.source.dim * 4 <= _HELD_BYTES else self._read()

    @property
    def count(self) -> int:
        return len(self.positions) * self.source.num_views

    @cached_property
    def _kept(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return list(self._read())

    def _read(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        ascending = np.sort(self.positions)
        for view in range(self.source.num_views):
            stream = batches(self.source, ascending, views=view, batch_size=_ROWS, scaler=self.scaler, held=self.held)
            yield from ((batch.feats, batch.where) for batch in stream)

    @cached_property
    def means(self) -> torch.Tensor:
        """The mean of each feature, in float64 on the CPU: 0 for plain views, a little else for augmented ones."""
        return sum((feats.sum(dim=0).cpu().double() for feats, _ in self.chunks()), torch.zeros(())) / self.count

    @cached_property
    def axes(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The directions (dim, r) in which the features vary, and their variances (r,), in float64 on the CPU."""
        if self.count < self.source.dim:
            centred = torch.cat([feats.cpu().double() for feats, _ in self.chunks()]) - self.means
            variances, shares = torch.linalg.eigh(centred @ centred.T / self.count)
            some = variances > _LEAST_VARIANCE * variances.max()
            return centred.T @ shares[:, some] / (self.count * variances[some]).sqrt(), variances[some]
        total = sum(((feats.T @ feats).cpu().double() for feats, _ in self.chunks()), torch.zeros(())) / self.count
        variances, directions = torch.linalg.eigh(total - torch.outer(self.means, self.means))
        return directions, variances.clamp_min(0)


class LinearPath:
    """One linear head along the path; in training it is a stack of one, whose epochs are strengths."""

    def __init__(self, member: Member, rows: TrainingRows, *, task: DeviceTargets, saved: Params | None, clock: Clock) -> None:
        self.members, self._rows, self._task, self._clock = [member], rows, task, clock
        self._config, self._loss = member.config, 0.0
        outputs, dim = task.num_outputs, rows.source.dim
        start = saved or {"weight": torch.zeros(outputs, dim), "bias": task.first_bias(member.config.class_weights)}
        self._params = {name: tensor.to(task.device) for name, tensor in start.items()}

    @torch.no_grad()
    def advance(self, epoch: int) -> None:
        """Solve for the strength of this epoch, from 0 on."""
        with self._clock.stage("optimizer"):
            solve = self._solve_classes if self._task.kind == "classification" else self._solve_values
            solve(strength_at(self._config, epoch))

    def _solve_classes(self, strength: float) -> None:
        loss = ClassLoss(self._rows, self._task, self._config, strength)
        packed = torch.cat([self._params["weight"], self._params["bias"][:, None]], dim=1)
        solved, self._loss = minimise(loss, packed, loss.precondition())
        self._params = {"weight": solved[:, :-1].contiguous(), "bias": solved[:, -1].contiguous()}

    def _solve_values(self, strength: float) -> None:
        directions, variances = self._rows.axes
        cross, target_means, spread = self._covariances
        turned = directions.T @ cross
        weight = directions @ (turned / (variances + strength)[:, None])
        explained = (turned.square() * ((variances + 2 * strength) / (variances + strength).square())[:, None]).sum(dim=0)
        self._loss = float((spread - explained).clamp_min(0).mean())
        found = {"weight": weight.T, "bias": target_means - weight.T @ self._rows.means}
        self._params = {name: tensor.float().contiguous().to(self._task.device) for name, tensor in found.items()}

    @cached_property
    def _covariances(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Of features and targets (dim, T), the targets' means and their variances (T,), in float64 on the CPU."""
        rows, count = self._rows, self._rows.count
        pairs = [(feats, self._task.targets[where]) for feats, where in rows.chunks()]
        means = sum((wanted.sum(dim=0).cpu().double() for _, wanted in pairs), torch.zeros(())) / count
        spread = sum((wanted.cpu().double().square().sum(dim=0) for _, wanted in pairs), torch.zeros(())) / count - means**2
        cross = sum(((feats.T @ wanted).cpu().double() for feats, wanted in pairs), torch.zeros(())) / count
        return cross - torch.outer(rows.means, means), means, spread

    def outputs(self, feats: torch.Tensor) -> torch.Tensor:
        """(n, 1, outputs)."""
        return F.linear(feats, self._params["weight"], self._params["bias"]).unsqueeze(1)

    def epoch_losses(self, num_rows: int) -> list[float]:
        """The training loss at this strength, without the penalty."""
        return [self._loss]

    def pace(self, member: Member, *, epoch: int, num_batches: int) -> dict[str, float]:
        return {"strength": strength_at(member.config, epoch)}

    def member_params(self, place: int) -> Params:
        return {name: tensor.detach().clone().cpu() for name, tensor in self._params.items()}

    def member_state(self) -> dict[int, dict[str, Params]]:
        return {member.index: {"params": self.member_params(0)} for member in self.members}

    def shrink(self) -> None:
        self.members = [member for member in self.members if not member.done]


def strength_at(config: HeadConfig, epoch: int) -> float:
    """The strength of an epoch: one of the path, or the one that was asked for."""
    return config.weight_decay if config.epochs == 1 else STRENGTHS[epoch]


class ClassLoss:
    """The mean weighted cross-entropy and the penalty, and their slope, for weights and bias packed as (classes, dim + 1)."""

    def __init__(self, rows: TrainingRows, task: DeviceTargets, config: HeadConfig, strength: float) -> None:
        self._rows, self._task, self._strength = rows, task, strength
        self._weights = task.class_weights(config.class_weights)
        self.plain = 0.0
        """The loss without the penalty, as last looked at."""

    def __call__(self, packed: torch.Tensor) -> tuple[float, torch.Tensor]:
        weight, bias = packed[:, :-1].contiguous(), packed[:, -1].contiguous()
        slope, total = torch.zeros_like(packed), torch.zeros((), device=packed.device)
        sums = torch.zeros(len(bias), device=packed.device)
        for feats, where in self._rows.chunks():
            classes = self._task.targets[where]
            counted = self._weights[classes]
            logs = F.linear(feats, weight, bias).log_softmax(dim=1)
            total -= (logs.gather(1, classes[:, None])[:, 0] * counted).sum()
            gaps = logs.exp_().scatter_add_(1, classes[:, None], -torch.ones_like(counted)[:, None]).mul_(counted[:, None])
            slope[:, :-1] += gaps.T @ feats
            sums += gaps.sum(dim=0)
        slope[:, -1] = sums
        slope /= self._rows.count
        slope[:, :-1] += self._strength * weight
        self.plain = float(total) / self._rows.count
        return self.plain + 0.5 * self._strength * float(weight.square().sum()), slope

    def precondition(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """A guess of the inverse curvature: along each axis of the features, and for each class as frequent as it is."""
        place = self._weights.device
        shares = torch.from_numpy(self._task.class_counts).double() * self._weights.cpu().double()
        shares = shares / shares.sum()
        curvature = (shares * (1 - shares)).clamp_min(_LEAST_CURVATURE)
        directions, variances = self._rows.axes
        along = (1 / (torch.outer(curvature, variances) + self._strength)).float().to(place)
        axes, of_bias = directions.float().to(place), (1 / curvature).float().to(place)

        def apply(slope: torch.Tensor) -> torch.Tensor:
            return torch.cat([((slope[:, :-1] @ axes) * along) @ axes.T, (slope[:, -1] * of_bias)[:, None]], dim=1)

        return apply


def minimise(
    loss: ClassLoss, start: torch.Tensor, precondition: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[torch.Tensor, float]:
    """The minimum of a convex loss by L-BFGS from `start`, and the loss there without the penalty."""
    point = start
    value, slope = loss(point)
    plain = loss.plain
    past: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
    for _ in range(_MOST_STEPS):
        direction = -_turned(slope, past, precondition)
        descent = float((slope * direction).sum())
        if descent >= 0:
            break
        step, (new_value, new_slope) = 1.0, loss(point + direction)
        while new_value > value + 1e-4 * step * descent and step > 1e-4:
            step /= 2
            new_value, new_slope = loss(point + step * direction)
        if new_value >= value:
            break
        moved, bent = step * direction, new_slope - slope
        if float((moved * bent).sum()) > 0:
            past = [*past, (moved, bent, 1 / (moved * bent).sum())][-_MEMORY:]
        gain, point, value, slope, plain = value - new_value, point + moved, new_value, new_slope, loss.plain
        if gain <= _GAIN * max(value, _LEAST_CURVATURE):
            break
    return point, plain


def _turned(
    slope: torch.Tensor,
    past: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]],
    precondition: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """The slope times the inverse curvature, as far as the first guess and the last steps tell it (the two-loop recursion)."""
    turned, shares = slope.clone(), []
    for moved, bent, inverse in reversed(past):
        share = inverse * (moved * turned).sum()
        shares.append(share)
        turned -= share * bent
    turned = precondition(turned)
    if past:
        moved, bent, _ = past[-1]
        turned *= (moved * bent).sum() / (bent * precondition(bent)).sum()
    for (moved, bent, inverse), share in zip(past, reversed(shares), strict=True):
        turned += moved * (share - inverse * (bent * turned).sum())
    return turned


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
        rows = TrainingRows(source, train, scaler)
        path = LinearPath(Member(0, config), rows, task=task, saved=None, clock=Clock(TRAINING))
        parts.append((path, task.scale, out, scaler(torch.from_numpy(feats_nd[out].astype(np.float32)))))
    spread = None if kind == "classification" else np.maximum(targets.std(axis=0), 1e-12)
    best, least, worse = CrossValidated(np.empty(0, np.float32), STRENGTHS[0]), np.inf, 0
    with one_thread(), torch.no_grad():
        for step, strength in enumerate(STRENGTHS):
            outputs = np.empty((len(feats_nd), len(names)), np.float32)
            for path, scale, out, held_out in parts:
                path.advance(step)
                answers = path.outputs(held_out)[:, 0].numpy()
                outputs[out] = answers if spread is None else answers * scale.std + scale.mean
            if spread is None:
                loss = float(log_losses(outputs, targets).mean())
            else:
                loss = float((((outputs - targets) / spread) ** 2).mean())
            if loss < least:
                best, least, worse = CrossValidated(outputs, strength), loss, 0
            else:
                worse += 1
            if worse >= PATIENCE:
                break
    return best


def deal_folds(strata: Sequence[Any], units: Sequence[str], *, num_folds: int = NUM_FOLDS) -> NDArray[np.int64]:
    """The fold of each sample: units (a group, or a sample by itself) stay whole, and those of one stratum are dealt in turns.

    A unit is dealt with the stratum of its first sample, in an order that depends on its name alone.
    """
    first = {unit: stratum for stratum, unit in reversed(list(zip(strata, units, strict=True)))}
    fold_of: dict[str, int] = {}
    ordered = sorted(first, key=lambda unit: (str(first[unit]), hash_int("fold", unit)))
    for place, unit in enumerate(ordered):
        fold_of[unit] = place % num_folds
    return np.array([fold_of[unit] for unit in units], np.int64)
