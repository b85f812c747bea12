"""Out-of-fold answers of ridge regression, for any number of samples: products of features are summed once.

In: features (half precision, read in blocks), targets as columns, and the fold of each sample. Out: for every sample the
answer of a solution without its fold, at the penalty that was best over all. The products of all folds but one are the sum
less that fold's, so that five solutions cost one pass; memory holds one block and a square of features for each fold. For
classes, targets are one-hot, and outputs become probabilities through one temperature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.training.scoring.figures import softmax

STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Of the penalty, on features of unit variance, with their products divided by their number."""
_BLOCK = 2048
_TEMPERATURES = np.geomspace(0.5, 80.0, 60)
_MAX_TEMPERED = 20_000
Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class FoldAnswers:
    """Outputs (n, outputs), out of fold, and the penalty."""

    outputs: Floats
    strength: float


class _Scaled:
    """Features less their mean and divided by their deviation, read in blocks."""

    def __init__(self, feats_nd: NDArray[np.float16]) -> None:
        total = torch.zeros(feats_nd.shape[1], dtype=torch.float64)
        squares = torch.zeros_like(total)
        for start in range(0, len(feats_nd), _BLOCK):
            rows = torch.from_numpy(feats_nd[start : start + _BLOCK].astype(np.float32))
            total += rows.sum(dim=0)
            squares += rows.square().sum(dim=0)
        mean = total / len(feats_nd)
        std = (squares / len(feats_nd) - mean.square()).clamp(min=0).sqrt()
        self._mean, self._factor = mean.float(), (1 / (std + 1e-6)).float()

    def blocks(self, feats_nd: NDArray[np.float16], rows: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], torch.Tensor]]:
        for start in range(0, len(rows), _BLOCK):
            part = rows[start : start + _BLOCK]
            yield part, torch.from_numpy(feats_nd[part].astype(np.float32)).sub_(self._mean).mul_(self._factor)


class _FoldSums:
    """Sums over samples: how many, of features, of targets, and of their products."""

    def __init__(self, feats_nd: NDArray[np.float16], wanted: torch.Tensor, rows: NDArray[np.int64], scale: _Scaled) -> None:
        dim, outputs = feats_nd.shape[1], wanted.shape[1]
        self.count = 0
        self.feats, self.wanted = torch.zeros(dim), torch.zeros(outputs)
        self.square, self.cross = torch.zeros(dim, dim), torch.zeros(dim, outputs)
        for part, block in scale.blocks(feats_nd, rows):
            goal = wanted[torch.from_numpy(part)]
            self.count += len(block)
            self.feats += block.sum(dim=0)
            self.wanted += goal.sum(dim=0)
            self.square.addmm_(block.T, block)
            self.cross.addmm_(block.T, goal)


def answer_held_out(
    feats_nd: NDArray[np.float16], wanted_nt: Floats, folds_n: NDArray[np.int64], *, loss: Callable[[Floats], float]
) -> FoldAnswers:
    """Outputs for every sample, at the strength whose outputs have the least `loss`; it stops where that begins to rise."""
    scale, wanted = _Scaled(feats_nd), torch.from_numpy(np.ascontiguousarray(wanted_nt, dtype=np.float32))
    order = [np.flatnonzero(folds_n == fold) for fold in np.unique(folds_n)]
    sums = [_FoldSums(feats_nd, wanted, rows, scale) for rows in order]
    best: FoldAnswers | None = None
    least = np.inf
    for strength in STRENGTHS:
        outputs = np.empty(wanted_nt.shape, np.float32)
        for place, rows in enumerate(order):
            weight, bias = _solve([one for other, one in enumerate(sums) if other != place], strength)
            for part, block in scale.blocks(feats_nd, rows):
                outputs[part] = (block @ weight + bias).numpy()
        found = loss(outputs)
        if found >= least:
            break
        best, least = FoldAnswers(outputs, strength), found
    assert best is not None
    return best


def solve_all(feats_nd: NDArray[np.float16], wanted_nt: Floats, strength: float) -> Callable[[NDArray[np.float16]], Floats]:
    """Learns from every sample; what is returned answers for others."""
    scale, wanted = _Scaled(feats_nd), torch.from_numpy(np.ascontiguousarray(wanted_nt, dtype=np.float32))
    weight, bias = _solve([_FoldSums(feats_nd, wanted, np.arange(len(feats_nd)), scale)], strength)

    def answer(rows: NDArray[np.float16]) -> Floats:
        everyone = np.arange(len(rows))
        parts = [(block @ weight + bias).numpy() for _, block in scale.blocks(rows, everyone)]
        found: Floats = np.concatenate(parts) if parts else np.empty((0, wanted_nt.shape[1]), np.float32)
        return found

    return answer


def _solve(parts: list[_FoldSums], strength: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights (dim, outputs) and biases; the bias is free."""
    count = sum(one.count for one in parts)
    feats, wanted = sum(one.feats for one in parts), sum(one.wanted for one in parts)
    assert isinstance(feats, torch.Tensor) and isinstance(wanted, torch.Tensor)
    square = parts[0].square.clone()
    cross = parts[0].cross.clone()
    for one in parts[1:]:
        square += one.square
        cross += one.cross
    dim = len(feats)
    square.addmm_(feats[:, None], feats[None] / count, alpha=-1)
    cross.addmm_(feats[:, None], wanted[None] / count, alpha=-1)
    square.div_(dim).diagonal().add_(strength)
    weight = torch.cholesky_solve(cross.div_(dim), torch.linalg.cholesky(square))
    return weight, (wanted - feats @ weight) / count


def one_hot(targets: NDArray[np.int64], num_classes: int) -> Floats:
    found: Floats = np.eye(num_classes, dtype=np.float32)[targets]
    return found


def choose_temperature(outputs: Floats, targets: NDArray[np.int64]) -> float:
    """What outputs are multiplied with to become logits: the factor with the lowest log loss."""
    step = max(1, len(targets) // _MAX_TEMPERED)
    some, given = outputs[::step], targets[::step]
    losses = [_log_loss(softmax(some * temperature), given) for temperature in _TEMPERATURES]
    return float(_TEMPERATURES[int(np.argmin(losses))])


def class_loss(targets: NDArray[np.int64]) -> Callable[[Floats], float]:
    """The log loss of outputs, each at its best temperature."""
    return lambda outputs: _log_loss(softmax(outputs * choose_temperature(outputs, targets)), targets)


def value_loss(wanted_nt: Floats) -> Callable[[Floats], float]:
    """Squares, on the scale of the targets."""
    return lambda outputs: float(((outputs - wanted_nt) ** 2).mean())


def _log_loss(probs: Floats, targets: NDArray[np.int64]) -> float:
    return float(-np.log(probs[np.arange(len(targets)), targets] + 1e-9).mean())
