"""Gradient-boosted trees over the bands of one pixel, as plain arrays: what a spectrum alone says of a pixel's class.

In: standardised bands (bands, h, w) as they are kept and read. Out: one score per class and pixel, whose softmax are the trees'
probabilities. Nothing is grown here (`grow_trees.py` does that with scikit-learn) and no code is ever stored: arrays are.

A tree has at most eight leaves, numbered from left to right. A pixel that is over a node's threshold rules out the leaves on its
left: a byte per pixel and tree holds those, and the first leaf that is left is the pixel's. So a tree costs a comparison and two
operations on bytes for each of its nodes, whatever way the pixels go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

NUM_LEAVES = 8
_NUM_NODES = NUM_LEAVES - 1
LIMIT = 8.0
"""Scores are kept within this: beyond it a probability is 0 or 1 for all that a decoder can learn from it."""
_AT_ONCE = 2**14
"""Pixels that are looked at together: their bytes stay near the processor."""


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


@dataclass(frozen=True)
class TreeNode:
    """A node of a tree that was grown elsewhere; a leaf has no children. `left` is for values up to the threshold."""

    column: int
    threshold: float
    left: int
    right: int
    value: float
    is_leaf: bool


def flatten_tree(nodes: list[TreeNode]) -> tuple[list[int], list[float], list[int], list[float]]:
    """Columns, thresholds and ruled-out leaves of its inner nodes, and the values of its leaves, filled up to full length."""
    columns: list[int] = []
    thresholds: list[float] = []
    ruled_out: list[int] = []
    values: list[float] = []

    def walk(number: int) -> int:
        """The leaves below a node, as bits."""
        node = nodes[number]
        if node.is_leaf:
            values.append(node.value)
            return 1 << (len(values) - 1)
        left = walk(node.left)
        columns.append(node.column)
        thresholds.append(floor_float32(node.threshold))
        ruled_out.append(left)
        return left | walk(node.right)

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
