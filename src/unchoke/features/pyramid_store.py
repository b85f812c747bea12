"""Pyramids on disk: float16 NPZ shards, one array for each level, read by memory map.

A shard is an ordinary uncompressed `.npz`: `stride_4` (n, C, h, w), `stride_8`, …, then the same of each further view
(`view1_stride_4`, …), and `sample_id`. A row is one view of a patch, all levels flattened side by side, the finest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unchoke.core.errors import DataError
from unchoke.features.feature_store import Half, Placement, map_member, save_shard
from unchoke.features.pyramid import PyramidSpec


def member_name(stride: int, view: int = 0) -> str:
    """``stride_4``, or ``view2_stride_4`` for a further view."""
    return f"stride_{stride}" if view == 0 else f"view{view}_stride_{stride}"


def save_pyramids(path: Path, rows_nvl: Half, patch_ids: Sequence[str], *, spec: PyramidSpec) -> tuple[str, int]:
    """Write a shard of (patches, views, row_length) atomically; return its SHA-256 and size. Same content, same bytes."""
    arrays: dict[str, NDArray[np.float16]] = {}
    for view in range(rows_nvl.shape[1]):
        for stride, shape, part in zip(spec.strides, spec.shapes, _level_slices(spec), strict=True):
            level = np.ascontiguousarray(rows_nvl[:, view, part])
            arrays[member_name(stride, view)] = level.reshape(len(rows_nvl), *shape)
    return save_shard(path, arrays, patch_ids)


class PyramidStore:
    """Rows by position, in the order of the patches it was opened for: what training calls `Rows`."""

    def __init__(self, placement: Placement, *, spec: PyramidSpec, num_augmented: int = 0) -> None:
        self.placement = placement
        self.spec = spec
        self.num_samples = len(placement.shard_of)
        self.num_views = 1 + num_augmented
        self.row_shape = (spec.row_length,)
        self._maps: dict[tuple[int, int], list[Half]] = {}

    def rows(self, positions: NDArray[np.int64], views: NDArray[np.int64] | int = 0, *, out: Half | None = None) -> Half:
        """(n, row_length): view 0 is the patch as it is, 1… its turned ones; one view for all, or one for each row.

        With `out` the rows are put there, each copied once.
        """
        chosen = np.broadcast_to(np.asarray(views, dtype=np.int64), positions.shape)
        if out is None:
            out = np.empty((len(positions), self.spec.row_length), np.float16)
        slices = _level_slices(self.spec)
        for place, (position, view) in enumerate(zip(positions.tolist(), chosen.tolist(), strict=True)):
            row = self.placement.row_of[position]
            for level, part in zip(self._levels(int(self.placement.shard_of[position]), view), slices, strict=True):
                out[place, part] = level[row].reshape(-1)
        return out

    def _levels(self, shard: int, view: int) -> list[Half]:
        key = (shard, view)
        found = self._maps.get(key)
        if found is None:
            path = self.placement.shards[shard]
            found = self._maps[key] = [
                _checked(map_member(path, member_name(stride, view)), shape, path)
                for stride, shape in zip(self.spec.strides, self.spec.shapes, strict=True)
            ]
        return found


def _level_slices(spec: PyramidSpec) -> list[slice]:
    ends = np.cumsum(spec.lengths).tolist()
    return [slice(end - length, end) for end, length in zip(ends, spec.lengths, strict=True)]


def _checked(level: Half, shape: tuple[int, ...], path: Path) -> Half:
    if level.shape[1:] != shape:
        raise DataError(
            f"{path.name} holds another pyramid",
            why=f"its maps are {level.shape[1:]}, not {shape}",
            try_=f"delete {path} and run the same command again: its job is done anew",
        )
    return level
