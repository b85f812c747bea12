"""How far labels reach: the distance over which the classes of two pixels of a scene still resemble each other.

In: patches and their masks. Out: a length in pixels. Sides of a split that lie closer than this share more than the world does:
what was learnt on one is nearly told of the other. Of every scene a coarse picture of its labels is put together from its
patches, and pairs of its cells, further and further apart along rows and columns, are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from unchoke.masks.patch_arrays import PatchArrays
from unchoke.masks.patches import Patch
from unchoke.scenes.scene_facts import IGNORE

_COARSE_PX = 512
"""At most so many cells along a side of the coarse picture."""
_LEVEL = float(np.exp(-1))
_FEWEST_PAIRS = 100
CoarseMask = NDArray[np.uint8]


@dataclass(frozen=True)
class LabelReach:
    """At `pixels` the likeness of two labels, above chance, has fallen to 1/e; `at_least`: it has not at the longest distance."""

    pixels: int
    at_least: bool = False

    @property
    def words(self) -> str:
        return f"{'over' if self.at_least else 'about'} {self.pixels:,} pixels"


def measure_reach(arrays: PatchArrays, patches: Sequence[Patch], sizes: Mapping[str, tuple[int, int]]) -> LabelReach | None:
    """Over all scenes; `sizes` are their heights and widths. None where every label is the same, or there is no pair."""
    longest_px = max(max(size) for size in sizes.values())
    step_px = max(1, -(-longest_px // _COARSE_PX))
    coarse = list(_coarse_masks(arrays, patches, sizes, step_px))
    counts = np.sum([np.bincount(one.ravel(), minlength=IGNORE + 1)[:IGNORE] for one in coarse], axis=0)
    shares = counts / max(1, counts.sum())
    chance = float((shares**2).sum())
    if chance >= 1 or not counts.any():
        return None
    found = [(lag, (same - chance) / (1 - chance)) for lag, same in _sameness(coarse)]
    return _first_below(found, step_px)


def _coarse_masks(
    arrays: PatchArrays, patches: Sequence[Patch], sizes: Mapping[str, tuple[int, int]], step_px: int
) -> Iterator[CoarseMask]:
    """One picture per scene: the label of every `step_px`-th pixel that a patch has."""
    by_scene: dict[str, list[int]] = {}
    for place, patch in enumerate(patches):
        by_scene.setdefault(patch.scene_id, []).append(place)
    for scene_id, places in by_scene.items():
        height, width = sizes[scene_id]
        whole = np.full((-(-height // step_px), -(-width // step_px)), IGNORE, np.uint8)
        for place in places:
            box, mask = patches[place].box, arrays.masks(np.array([place]))[0]
            rows = np.arange(-(-box.top // step_px) * step_px, min(box.bottom, height), step_px)
            columns = np.arange(-(-box.left // step_px) * step_px, min(box.right, width), step_px)
            whole[np.ix_(rows // step_px, columns // step_px)] = mask[np.ix_(rows - box.top, columns - box.left)]
        yield whole


def _sameness(coarse: Sequence[CoarseMask]) -> Iterator[tuple[int, float]]:
    """Distances in cells, and how often two labels that far apart are the same; up to half the longest side."""
    longest = max(max(one.shape) for one in coarse) // 2
    lags = sorted({*range(1, 9), *(round(8 * 1.25**n) for n in range(1, 24))})
    for lag in (lag for lag in lags if lag <= longest):
        same = pairs = 0
        for one in coarse:
            for first, second in ((one[lag:], one[:-lag]), (one[:, lag:], one[:, :-lag])):
                known = (first != IGNORE) & (second != IGNORE)
                pairs += int(known.sum())
                same += int(((first == second) & known).sum())
        if pairs >= _FEWEST_PAIRS:
            yield lag, same / pairs


def _first_below(found: Sequence[tuple[int, float]], step_px: int) -> LabelReach | None:
    """Where the resemblance first falls below 1/e, between the two distances around it."""
    if not found:
        return None
    before = [(0, 1.0), *found]
    for (near, high), (far, low) in pairwise(before):
        if low < _LEVEL:
            share = (high - _LEVEL) / max(high - low, 1e-9)
            return LabelReach(max(1, round((near + share * (far - near)) * step_px)))
    return LabelReach(found[-1][0] * step_px, at_least=True)
