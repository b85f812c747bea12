"""What single pixels' spectra say of their class, as a network: the very scores of `PixelScorer`, for graphs that leave Python.

In: a `PixelScorer`. Out: a module from standardised bands (n, bands, h, w), rounded to float16, to scores (n, classes, h, w).
Which leaf a pixel falls into is found with comparisons and sums of small whole numbers, which are exact everywhere; leaves are
added up in float32, so that a score may differ by one step of float16.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from unchoke.features.engines import round_to_half
from unchoke.masks.pixel_trees import LIMIT, NUM_LEAVES, PixelIndex, PixelScorer

_AT_ONCE = 16
"""Trees that are looked at together: each takes eight numbers for a pixel meanwhile."""
_STEEPEST = 3.0


class ScoreNetwork(nn.Module):
    """Trees and, where there is one, an index, added up."""

    start: torch.Tensor
    up_to: torch.Tensor

    def __init__(self, scorer: PixelScorer) -> None:
        super().__init__()
        trees = scorer.trees
        self.index = scorer.index
        self.num_classes, self.classes, self.num_scores = trees.num_classes, trees.classes, len(trees.start)
        self.register_buffer("start", torch.from_numpy(trees.start).float()[None, :, None, None])
        self.groups = [slice(first, first + _AT_ONCE) for first in range(0, trees.num_trees, _AT_ONCE)]
        for number, group in enumerate(self.groups):
            columns, thresholds = torch.from_numpy(trees.columns[group]).long(), torch.from_numpy(trees.thresholds[group])
            ruled_out = torch.from_numpy(trees.ruled_out[group]).long()[:, None] >> torch.arange(NUM_LEAVES)[None, :, None] & 1
            values = torch.zeros((self.num_scores, len(columns), NUM_LEAVES))
            for place in range(len(columns)):
                values[(group.start + place) % self.num_scores, place] = torch.from_numpy(
                    trees.values[group.start + place]
                ).float()
            self.register_buffer(f"columns_{number}", columns.flatten())
            self.register_buffer(f"thresholds_{number}", thresholds.flatten()[None, :, None, None])
            self.register_buffer(f"ruled_out_{number}", ruled_out.flatten(0, 1).float()[..., None, None])
            self.register_buffer(f"values_{number}", values.flatten(1)[..., None, None])
        self.register_buffer("up_to", torch.ones(NUM_LEAVES, NUM_LEAVES).tril()[..., None, None])

    def forward(self, bands: torch.Tensor) -> torch.Tensor:
        sums = self.start
        for number in range(len(self.groups)):
            sums = sums + self._leaves(bands, number)
        scores = [sums[:, place : place + 1] for place in range(self.num_scores)]
        scores = [-scores[0] / 2, scores[0] / 2] if self.num_scores == 1 else scores
        taught = dict(zip(self.classes, scores, strict=True))
        lowest = torch.full_like(bands[:, :1], -LIMIT)
        found = torch.cat([taught.get(number, lowest) for number in range(self.num_classes)], dim=1)
        found = round_to_half(found.clamp(-LIMIT, LIMIT))
        if self.index is None:
            return found
        half = _log_odds(self.index, bands) / 2
        return round_to_half((found + torch.cat([-half, half], dim=1)).clamp(-LIMIT, LIMIT))

    def _leaves(self, bands: torch.Tensor, number: int) -> torch.Tensor:
        """What the trees of a group say: of each the value of the first leaf that no node rules out."""
        of_group = {name: getattr(self, f"{name}_{number}") for name in ("columns", "thresholds", "ruled_out", "values")}
        trees = of_group["values"].shape[1] // NUM_LEAVES
        over = (bands.index_select(1, of_group["columns"]) > of_group["thresholds"]).float()
        left = (F.conv2d(over, of_group["ruled_out"], groups=trees) < 0.5).float()
        first = (F.conv2d(left, self.up_to.repeat(trees, 1, 1, 1), groups=trees) < 1.5).float() * left
        return F.conv2d(first, of_group["values"])


def _log_odds(index: PixelIndex, bands: torch.Tensor) -> torch.Tensor:
    """`PixelIndex.log_odds` of a batch."""
    mean, std, other_mean, other_std = index.scale
    first = bands[:, index.first : index.first + 1] * std + mean
    second = bands[:, index.second : index.second + 1] * other_std + other_mean
    total = first + second
    none = total == 0
    found = torch.where(none, torch.zeros_like(total), (first - second) / torch.where(none, torch.ones_like(total), total))
    return (index.slope if index.over else -index.slope) * (found.clamp(-_STEEPEST, _STEEPEST) - index.cut)
