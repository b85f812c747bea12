"""Whether two photos look the same, by their small grey pictures: also when one is brighter, or was cut a little.

In: small pictures of both. Out: how well they agree, as a correlation. Light and contrast do not matter; a few percent that one
lacks at its edges are tried at several places.
"""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from unchoke.curation.photo_measures import LOOK_PX

Looks = NDArray[np.float32]
_CUTS = (0.03, 0.06, 0.1)
_SURE, _HOPELESS = 0.985, 0.3
_CHUNK = 4096


def compare_looks(looks: NDArray[np.uint8], pairs: NDArray[np.int64]) -> NDArray[np.float32]:
    """The best agreement of each pair of rows, from -1 to 1."""
    found = np.empty(len(pairs), np.float32)
    for start in range(0, len(pairs), _CHUNK):
        part = pairs[start : start + _CHUNK]
        left, right = (looks[part[:, side]].astype(np.float32) for side in (0, 1))
        found[start : start + len(part)] = _agreement(left, right)
    return found


def _agreement(left: Looks, right: Looks) -> NDArray[np.float32]:
    whole = (_normed(left), _normed(right))
    best: NDArray[np.float32] = (whole[0] * whole[1]).sum(axis=(1, 2))
    open_ = np.flatnonzero((best < _SURE) & (best > _HOPELESS))
    if not len(open_):
        return best
    for shown, other in ((left, whole[1]), (right, whole[0])):
        for rows, columns in _windows():
            cut = _normed((rows @ shown[open_] @ columns.T).astype(np.float32))
            best[open_] = np.maximum(best[open_], (cut * other[open_]).sum(axis=(1, 2)))
    return best


def _normed(looks: Looks) -> Looks:
    """Without their mean, and of length one; a plain surface agrees with nothing."""
    centred = looks - looks.mean(axis=(1, 2), keepdims=True)
    length = np.sqrt((centred**2).sum(axis=(1, 2), keepdims=True))
    found: Looks = np.where(length > LOOK_PX, centred / np.maximum(length, 1e-6), 0.0).astype(np.float32)
    return found


@cache
def _windows() -> tuple[tuple[Looks, Looks], ...]:
    """Resampling of rows and columns that shows a part of a picture at its full size."""
    shown = []
    for cut in _CUTS:
        ways = [_resampling(cut, offset) for offset in (0.0, 0.5, 1.0)]
        shown += list(product(ways, ways))
    return tuple(shown)


def _resampling(cut: float, offset: float) -> Looks:
    """A matrix that stretches what is left after `cut` of the length is gone, `offset` of it at the beginning."""
    centres = (np.arange(LOOK_PX) + 0.5) * (1 - cut) + offset * cut * LOOK_PX - 0.5
    below = np.clip(np.floor(centres).astype(int), 0, LOOK_PX - 2)
    share = np.clip(centres - below, 0, 1)
    found = np.zeros((LOOK_PX, LOOK_PX), np.float32)
    found[np.arange(LOOK_PX), below] = 1 - share
    found[np.arange(LOOK_PX), below + 1] += share
    return found
