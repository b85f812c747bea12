"""The class of a pixel by its spectrum alone: gradient-boosted trees over its bands, and of two classes an index of two bands.

In: standardised bands (bands, h, w) as they are kept and read. Out: one score per class and pixel; the softmax of the trees' is
their probability. Trees fit what they were shown closely; an index with a threshold has three numbers to get wrong and holds on
scenes unlike any that was shown. Added up they do better than either. Nothing is grown here (`grow_trees.py` does that with
scikit-learn), and everything is stored as arrays and plain values, never as code.

A tree has at most eight leaves, numbered from left to right. A pixel that is over a node's threshold rules out the leaves on its
left: a byte per pixel and tree holds those, and the first leaf that is left is the pixel's. So a tree costs a comparison and two
operations on bytes for each of its nodes, whatever way the pixels go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.masks.patches import BandStandard

NUM_LEAVES = 8
_NUM_NODES = NUM_LEAVES - 1
LIMIT = 8.0
"""Scores are kept within this: beyond it a probability is 0 or 1 for all that a decoder can learn from it."""
_AT_ONCE = 2**14
"""Pixels that are looked at together: their bytes stay near the processor."""
_MOST_BANDS = 16
"""Of more bands there are too many pairs."""
_NUM_CUTS, _MOST_PIXELS = 64, 20_000
_STEEPEST = 200.0


@dataclass(frozen=True, eq=False)
class PixelTrees:
    """`columns`, `thresholds` and `ruled_out` are (trees, 7): the band a node looks at, and the leaves of no pixel above it.

    `values` (trees, 8) are the leaves', `start` (scores) is what sums begin with. Tree t adds to score t modulo their number; one
    score alone is that of the second of two `classes`. Classes that no pixel taught are scored lowest.
    """

    columns: NDArray[np.int16]
    thresholds: NDArray[np.float32]
    ruled_out: NDArray[np.uint8]
    values: NDArray[np.float64]
    start: NDArray[np.float64]
    classes: tuple[int, ...]
    num_classes: int

    @property
    def num_trees(self) -> int:
        return len(self.values)

    def scores(self, bands_chw: NDArray[Any]) -> NDArray[np.float16]:
        """(classes, h, w): how much speaks for each class."""
        flat = bands_chw.reshape(len(bands_chw), -1)
        raw = np.concatenate([self.raw(flat[:, at : at + _AT_ONCE]) for at in range(0, flat.shape[1], _AT_ONCE)], axis=1)
        found = np.full((self.num_classes, flat.shape[1]), -LIMIT, np.float64)
        found[list(self.classes)] = np.stack([-raw[0] / 2, raw[0] / 2]) if len(raw) == 1 else raw
        return found.clip(-LIMIT, LIMIT).astype(np.float16).reshape(self.num_classes, *bands_chw.shape[1:])

    def raw(self, bands_cn: NDArray[Any]) -> NDArray[np.float64]:
        """(scores, n): the very sums that scikit-learn's trees give, added up in its order."""
        bands = np.ascontiguousarray(bands_cn, np.float32)
        sums = np.repeat(self.start[:, None], bands.shape[1], axis=1)
        out = np.empty(bands.shape[1], np.uint8)
        for tree in range(self.num_trees):
            out[:] = 0
            for column, threshold, leaves in self._nodes[tree]:
                out |= (bands[column] > threshold).view(np.uint8) * leaves
            sums[tree % len(sums)] += self._tables[tree].take(out)
        return sums

    @cached_property
    def _nodes(self) -> list[list[tuple[int, np.float32, np.uint8]]]:
        """Of each tree its nodes; those that only fill up the arrays rule nothing out."""
        rows = zip(self.columns, self.thresholds, self.ruled_out, strict=True)
        return [[(int(c), t, leaves) for c, t, leaves in zip(*row, strict=True) if leaves] for row in rows]

    @cached_property
    def _tables(self) -> NDArray[np.float64]:
        """(trees, 256): the value of the first leaf that is not ruled out."""
        bits = np.arange(256)[:, None] >> np.arange(NUM_LEAVES) & 1
        tables: NDArray[np.float64] = self.values[:, bits.argmin(axis=1)]
        return tables

    @classmethod
    def mean(cls, several: Sequence[PixelTrees]) -> PixelTrees:
        """The mean of what several say, as one: they must know the same classes."""
        share, first = 1 / len(several), several[0]
        return cls(
            np.concatenate([one.columns for one in several]),
            np.concatenate([one.thresholds for one in several]),
            np.concatenate([one.ruled_out for one in several]),
            np.concatenate([one.values * share for one in several]),
            np.sum([one.start * share for one in several], axis=0),
            first.classes,
            first.num_classes,
        )

    def to_dict(self) -> dict[str, Any]:
        """Tensors and plain values."""
        arrays = {name: torch.from_numpy(getattr(self, name).copy()) for name in _ARRAYS}
        return {**arrays, "classes": list(self.classes), "num_classes": self.num_classes}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PixelTrees:
        arrays = {name: np.asarray(values[name]) for name in _ARRAYS}
        return cls(**arrays, classes=tuple(values["classes"]), num_classes=int(values["num_classes"]))


_ARRAYS = ("columns", "thresholds", "ruled_out", "values", "start")


def flatten_tree(nodes: Sequence[Any]) -> tuple[list[int], list[float], list[int], list[float]]:
    """Columns, thresholds and ruled-out leaves of the inner nodes, and the values of the leaves, padded to full length.

    `nodes` are the rows of a tree of scikit-learn; its `left` is for values up to the threshold.
    """
    columns: list[int] = []
    thresholds: list[float] = []
    ruled_out: list[int] = []
    values: list[float] = []

    def walk(number: int) -> int:
        """The leaves below a node, as bits."""
        node = nodes[number]
        if node["is_leaf"]:
            values.append(float(node["value"]))
            return 1 << (len(values) - 1)
        left = walk(int(node["left"]))
        columns.append(int(node["feature_idx"]))
        thresholds.append(floor_float32(float(node["num_threshold"])))
        ruled_out.append(left)
        return left | walk(int(node["right"]))

    walk(0)
    missing = _NUM_NODES - len(columns)
    return (
        columns + [0] * missing,
        thresholds + [np.inf] * missing,
        ruled_out + [0] * missing,
        values + [0.0] * (NUM_LEAVES - len(values)),
    )


def floor_float32(value: float) -> float:
    """The largest float32 that is not above `value`: whatever float32 is compared with it, the answer stays the same."""
    near = np.float32(value)
    return float(near if float(near) <= value else np.nextafter(near, np.float32(-np.inf)))


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
