"""How unlike anything in training a photo is: relative Mahalanobis distance in the directions that tell the classes apart.

In: cached features of train and val. Out: a `Novelty` that scores features: 0 is an ordinary validation photo, 1 the limit that
99 % of them keep. Distances to the nearest class, less the distance to all photos: what is unusual for every
photo of this kind (light, sharpness) counts little (benches/bench_novelty.py compares it with other scores).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.training.data import FeatureSource, Problem

NOVELTY = "novelty"
"""Its name in the file of a head."""
_MOST_ROWS, _SHRINKAGE, _FEWEST_VAL = 5000, 0.3, 20
_KEPT = 0.99


@dataclass(frozen=True, eq=False)
class Novelty:
    """`project` (dim, directions) makes the spread within classes one; `middles` are the classes there, `spreads` that of all."""

    centre: torch.Tensor
    scale: torch.Tensor
    project: torch.Tensor
    middles: torch.Tensor
    spreads: torch.Tensor
    usual: float = 0.0
    limit: float = 1.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def score(self, feats: NDArray[Any]) -> NDArray[np.float32]:
        """Above 1: stranger than 99 % of the validation photos."""
        raw = self._raw(torch.from_numpy(feats.astype(np.float32)))
        return ((raw - self.usual) / (self.limit - self.usual)).numpy().astype(np.float32)

    def _raw(self, feats: torch.Tensor) -> torch.Tensor:
        seen = ((feats - self.centre) / self.scale) @ self.project
        own = torch.cdist(seen, self.middles).square().amin(dim=1)
        return own - (seen.square() / self.spreads).sum(dim=1)


def fit_novelty(source: FeatureSource, problem: Problem) -> Novelty | None:
    """From train, with val for its scale; None for values, and where val has too few photos to say what is usual."""
    train, val = problem.positions("train"), problem.positions("val")
    if problem.kind != "classification" or len(val) < _FEWEST_VAL:
        return None
    rows = np.sort(train)[:: 1 + len(train) // _MOST_ROWS]
    feats = torch.from_numpy(source.rows(rows).astype(np.float32))
    centre, scale = feats.mean(dim=0), feats.std(dim=0)
    scale = torch.maximum(scale, scale.median().clamp(min=1e-6))
    feats = (feats - centre) / scale
    classes, targets = np.unique(problem.targets[rows], return_inverse=True)
    own = torch.from_numpy(targets)
    middles = torch.stack([feats[own == one].mean(dim=0) for one in range(len(classes))])
    within = feats - middles[own]
    spread = within.T @ within / len(rows)
    spread = (1 - _SHRINKAGE) * spread + _SHRINKAGE * spread.diagonal().mean() * torch.eye(len(spread))
    shares = torch.bincount(own) / len(rows)
    between = (middles * shares.sqrt()[:, None]).T
    solved = torch.cholesky_solve(between, torch.linalg.cholesky(spread))
    # Directions in which classes differ, each with a spread of one within classes: elsewhere the two distances are the same.
    gains, turns = torch.linalg.eigh((between.T @ solved).double())
    kept = gains > 1e-4 * gains.max().clamp(min=1e-12)
    project = solved @ (turns[:, kept] / gains[kept].sqrt()).float()
    made = Novelty(centre, scale, project, middles @ project, 1 + gains[kept].float())
    usual = made._raw(torch.from_numpy(source.rows(np.sort(val)).astype(np.float32)))
    middle, limit = float(usual.median()), float(usual.quantile(_KEPT))
    return Novelty(centre, scale, project, made.middles, made.spreads, middle, max(limit, middle + 1e-6))
