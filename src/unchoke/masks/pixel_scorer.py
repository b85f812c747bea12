"""What the spectrum of a pixel says of its class: trees over the bands, and of two classes also an index of two bands.

In: standardised bands. Out: one score per class and pixel. Trees fit what they were shown closely; an index with a threshold has
three numbers to get wrong and holds on scenes unlike any that was shown. Added up they do better than either. Everything is kept
as arrays and plain values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.masks.patches import BandStandard
from unchoke.masks.pixel_trees import LIMIT, PixelTrees

_MOST_BANDS = 16
"""Of more bands there are too many pairs."""
_NUM_CUTS, _MOST_PIXELS = 64, 20_000
_STEEPEST = 200.0


@dataclass(frozen=True)
class PixelIndex:
    """(first − second) / (first + second), `over` or under `cut` where the second class is; `slope` makes it log-odds.

    `scale` are mean and deviation of the first band, then of the second: standardised bands are taken back to what they were.
    """

    first: int
    second: int
    scale: tuple[float, float, float, float]
    over: bool
    cut: float
    slope: float

    def log_odds(self, bands_chw: NDArray[Any]) -> NDArray[np.float32]:
        """Of the second class, for every pixel; 0 at the threshold."""
        mean, std, other_mean, other_std = self.scale
        first = bands_chw[self.first].astype(np.float32) * np.float32(std) + np.float32(mean)
        second = bands_chw[self.second].astype(np.float32) * np.float32(other_std) + np.float32(other_mean)
        away = normalised_difference(first, second) - np.float32(self.cut)
        return np.asarray((self.slope if self.over else -self.slope) * away, np.float32)

    def text(self, names: Sequence[str]) -> str:
        """As an expression over bands."""
        one, other = (name if name.isidentifier() else f"`{name}`" for name in (names[self.first], names[self.second]))
        return f"({one}-{other})/({one}+{other}) {'>' if self.over else '<'} {self.cut:.3g}"


def normalised_difference(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float32]:
    """Within −3 and 3; 0 where the sum is."""
    total = first + second
    with np.errstate(all="ignore"):
        found = np.where(total == 0, 0, (first - second) / total)
    return np.clip(found, -3, 3).astype(np.float32)


def find_index(bands: NDArray[np.float32], classes: NDArray[np.uint8], standard: BandStandard) -> PixelIndex | None:
    """The pair of bands and the threshold that tell class 1 from class 0 best on these pixels (n, bands), by IoU."""
    if not 2 <= bands.shape[1] <= _MOST_BANDS or set(np.unique(classes).tolist()) != {0, 1}:
        return None
    step = max(1, len(bands) // _MOST_PIXELS)
    bands, classes = bands[::step], classes[::step]
    values = bands * np.array(standard.std, np.float32) + np.array(standard.mean, np.float32)
    truth = classes == 1
    pairs = list(combinations(range(bands.shape[1]), 2))
    found = [_best_cut(normalised_difference(values[:, one], values[:, other]), truth) for one, other in pairs]
    iou, over, cut = max(found)
    if iou <= 0:
        return None
    first, second = pairs[found.index((iou, over, cut))]
    scale = standard.mean[first], standard.std[first], standard.mean[second], standard.std[second]
    away = (normalised_difference(values[:, first], values[:, second]) - cut) * (1 if over else -1)
    return PixelIndex(first, second, scale, over, cut, _slope(away.astype(np.float64), truth))


def _best_cut(index: NDArray[np.float32], truth: NDArray[np.bool_]) -> tuple[float, bool, float]:
    """The IoU of the true ones, whether they lie over the threshold, and the threshold, tried at quantiles both ways."""
    best = (0.0, True, 0.0)
    for cut in np.unique(np.quantile(index, np.linspace(0.01, 0.99, _NUM_CUTS)).astype(np.float64).round(3)).tolist():
        over = index > cut
        for says, above in ((over, True), (~over, False)):
            union = int((says | truth).sum())
            best = max(best, (float((says & truth).sum() / union) if union else 0.0, above, cut))
    return best


def _slope(away: NDArray[np.float64], truth: NDArray[np.bool_]) -> float:
    """Of a logistic regression on one number, by Newton's method; at least 1, and never so steep that nothing else counts."""
    design = np.stack([np.ones_like(away), away], axis=1)
    weights = np.array([0.0, 1.0])
    for _ in range(25):
        share = 1 / (1 + np.exp(-np.clip(design @ weights, -30, 30)))
        curved = (design * (share * (1 - share))[:, None]).T @ design + 1e-6 * len(away) * np.eye(2)
        weights = np.clip(weights + np.linalg.solve(curved, design.T @ (truth - share)), -_STEEPEST, _STEEPEST)
    return float(np.clip(weights[1], 1.0, _STEEPEST))


@dataclass(frozen=True, eq=False)
class PixelScorer:
    """Trees and, where there is one, an index, added up."""

    trees: PixelTrees
    index: PixelIndex | None = None

    def scores(self, bands_chw: NDArray[Any]) -> NDArray[np.float16]:
        """(classes, h, w): how much speaks for each class."""
        scores = self.trees.scores(bands_chw)
        if self.index is None:
            return scores
        half = self.index.log_odds(bands_chw) / 2
        both = scores.astype(np.float32) + np.stack([-half, half])
        return both.clip(-LIMIT, LIMIT).astype(np.float16)

    def to_dict(self) -> dict[str, Any]:
        """Tensors and plain values."""
        index = None if self.index is None else {**asdict(self.index), "scale": list(self.index.scale)}
        return {"trees": self.trees.to_dict(), "index": index}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PixelScorer:
        index = values["index"]
        trees = PixelTrees.from_dict(values["trees"])
        return cls(trees, None if index is None else PixelIndex(**{**index, "scale": tuple(index["scale"])}))
