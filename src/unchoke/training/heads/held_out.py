"""What plain linear heads answer for samples they did not see: cross-validated logistic regression, or ridge for values.

In: features of every sample, targets, and the fold each sample is in. Out: the outputs of the heads that were solved without the
sample's fold, at the one strength of penalty that was best over all folds. For comparing features with one another, in seconds:
nothing is kept, and no split of a run is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.clock import Clock
from unchoke.core.fingerprint import hash_int
from unchoke.core.timeline import TRAINING
from unchoke.machine.backend import one_thread
from unchoke.training.data import ArraySource, Problem, ProblemKind, fit_standardiser
from unchoke.training.device_targets import DeviceTargets
from unchoke.training.heads.heads import HeadConfig
from unchoke.training.heads.linear_path import PATIENCE, STRENGTHS, LinearPath, TrainingRows
from unchoke.training.heads.stack import Member
from unchoke.training.sampling import Scaler
from unchoke.training.scoring.figures import log_losses

NUM_FOLDS = 5
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class HeldOut:
    """Logits (n, classes) or values (n, T), each by heads that never saw the sample's fold, and the strength of their penalty."""

    outputs: NDArray[np.float32]
    strength: float


def cross_validate(
    feats_nd: NDArray[np.float16], kind: ProblemKind, names: Sequence[str], targets: NDArray[Any], folds_n: NDArray[np.int64]
) -> HeldOut:
    """Solve heads on all folds but one, for each fold, along the path of penalties."""
    everyone = np.arange(len(feats_nd), dtype=np.int64)
    parts = [(everyone[folds_n != fold], everyone[folds_n == fold]) for fold in np.unique(folds_n)]
    paths = [_FoldPath(feats_nd, Problem(kind, tuple(names), targets, {"train": rest}, []), out) for rest, out in parts]
    best: HeldOut | None = None
    least, worse = np.inf, 0
    with one_thread():
        for step, strength in enumerate(STRENGTHS):
            outputs = np.empty((len(feats_nd), len(names)), np.float32)
            for path, (_, out) in zip(paths, parts, strict=True):
                outputs[out] = path.advance(step)
            loss = _loss(kind, outputs, targets)
            if loss < least:
                best, least, worse = HeldOut(outputs, strength), loss, 0
            else:
                worse += 1
            if worse >= PATIENCE:
                break
    assert best is not None
    return best


class _FoldPath:
    """The heads of one fold along the path."""

    def __init__(self, feats_nd: NDArray[np.float16], problem: Problem, held_out: NDArray[np.int64]) -> None:
        source, train = ArraySource(feats_nd), problem.positions("train")
        scaler = Scaler.on(_CPU, fit_standardiser(source, train))
        self._task = DeviceTargets.of(problem, device=_CPU)
        config = HeadConfig("linear", solver="lbfgs", epochs=len(STRENGTHS))
        rows = TrainingRows(source, train, scaler)
        self._path = LinearPath(Member(0, config), rows, task=self._task, saved=None, clock=Clock(TRAINING))
        self._shown = scaler(torch.from_numpy(feats_nd[held_out].astype(np.float32)))

    @torch.no_grad()
    def advance(self, step: int) -> NDArray[np.float32]:
        """Solve for the next strength, and answer for the samples held out."""
        self._path.advance(step)
        answers: NDArray[np.float32] = self._path.outputs(self._shown)[:, 0].numpy()
        return answers if self._task.kind == "classification" else answers * self._task.scale.std + self._task.scale.mean


def _loss(kind: ProblemKind, outputs: NDArray[np.float32], targets: NDArray[Any]) -> float:
    """Log loss, or squares on the scale of each target."""
    if kind == "classification":
        return float(log_losses(outputs, targets).mean())
    spread = np.maximum(targets.std(axis=0), 1e-12)
    return float((((outputs - targets) / spread) ** 2).mean())


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
