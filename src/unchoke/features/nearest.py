"""The nearest photos of every photo in feature space, by products of blocks.

In: features (half precision). Out: for each row the rows most like it and their cosines, after centring. Candidates are found in
fewer dimensions, turned so that they hold most of what differs. A distance never grows by leaving dimensions out, so that a row
nearer than a candidate's distance there cannot be missed; cosines are then worked out in all dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

NUM_NEAREST = 16
_DIMS = 128
_SPARE = 8
"""Candidates beyond those that are wanted."""
_MOST_TURNED = 8192
"""Rows that the turning is worked out from."""
_SCORES = 24_000_000
"""Entries of a block of scores: 100 MB."""
_BLOCK = 2048
_GATHERED = 128


@dataclass(frozen=True, eq=False)
class NearestRows:
    """`rows` (n, k) of the most alike, the most alike first, and their `cosines` (n, k)."""

    rows: NDArray[np.int64]
    cosines: NDArray[np.float32]


class UnitRows:
    """Rows of features, centred and of length one, made in blocks."""

    def __init__(self, feats_nd: NDArray[np.float16]) -> None:
        self._feats = feats_nd
        total = np.zeros(feats_nd.shape[1], np.float64)
        for start in range(0, len(feats_nd), _BLOCK):
            total += feats_nd[start : start + _BLOCK].astype(np.float32).sum(axis=0)
        self._mean = torch.from_numpy((total / max(1, len(feats_nd))).astype(np.float32))

    def __len__(self) -> int:
        return len(self._feats)

    def __call__(self, rows: NDArray[np.int64] | slice) -> torch.Tensor:
        return self.of(self._feats[rows])

    def of(self, feats: NDArray[np.float16]) -> torch.Tensor:
        """Other features the same way."""
        found = torch.from_numpy(feats.astype(np.float32)).sub_(self._mean)
        return found.div_(found.norm(dim=-1, keepdim=True).clamp(min=1e-6))

    def cosines(self, pairs: NDArray[np.int64]) -> NDArray[np.float32]:
        """How alike the rows of each pair are."""
        found = np.empty(len(pairs), np.float32)
        for start in range(0, len(pairs), _BLOCK):
            part = pairs[start : start + _BLOCK]
            found[start : start + len(part)] = (self(part[:, 0]) * self(part[:, 1])).sum(dim=1).numpy()
        return found


def find_nearest(feats_nd: NDArray[np.float16], *, num: int = NUM_NEAREST) -> NearestRows:
    """The `num` nearest of every row, or all others where there are no more."""
    units = UnitRows(feats_nd)
    count = len(units)
    num = min(num, count - 1)
    if num < 1:
        return NearestRows(np.empty((count, 0), np.int64), np.empty((count, 0), np.float32))
    turned = _turned(units)
    half = turned.square().sum(dim=1).div_(2)
    rows = np.empty((count, num), np.int64)
    cosines = np.empty((count, num), np.float32)
    wanted, block = min(num + _SPARE, count - 1), max(16, min(_BLOCK, _SCORES // count))
    for start in range(0, count, block):
        stop = min(count, start + block)
        scores = torch.addmm(half[None], turned[start:stop], turned.T, beta=-1)
        scores[torch.arange(stop - start), torch.arange(start, stop)] = -torch.inf
        found = scores.topk(wanted, dim=1, sorted=False).indices.numpy()
        rows[start:stop], cosines[start:stop] = _refined(units, found, start, num)
    return NearestRows(rows, cosines)


def _turned(units: UnitRows) -> torch.Tensor:
    """The rows in the directions in which they differ most; as they are where they are too few to tell, and cheap anyway."""
    step = max(1, len(units) // _MOST_TURNED)
    some = units(np.arange(0, len(units), step))
    if len(some) <= some.shape[1]:
        return units(slice(0, len(units)))
    spread = (some.T @ some).double().numpy()  # eigenvalues that repeat need not converge in single precision
    basis = torch.from_numpy(np.linalg.eigh(spread).eigenvectors[:, -_DIMS:].astype(np.float32))
    return torch.cat([units(slice(start, start + _BLOCK)) @ basis for start in range(0, len(units), _BLOCK)])


def _refined(
    units: UnitRows, candidates: NDArray[np.int64], start: int, num: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The best `num` of candidates by their cosines in all dimensions."""
    rows = np.empty((len(candidates), num), np.int64)
    cosines = np.empty((len(candidates), num), np.float32)
    for first in range(0, len(candidates), _GATHERED):
        part = candidates[first : first + _GATHERED]
        own = units(slice(start + first, start + first + len(part)))
        others = units(part.reshape(-1)).reshape(*part.shape, -1)
        found = torch.bmm(others, own[:, :, None])[:, :, 0]
        values, places = found.topk(num, dim=1)
        rows[first : first + len(part)] = np.take_along_axis(part, places.numpy(), axis=1)
        cosines[first : first + len(part)] = values.numpy()
    return rows, cosines
