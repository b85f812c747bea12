"""Which samples a batch holds, in which order and view: functions of (run seed, epoch, sample id) and nothing else.

In: a feature source and positions. Out: an order, a view per sample, and batches of standardised float32 on the device.
The order does not depend on where a sample lies in the store, so resuming needs no random state. Only one chunk of
float16 rows and one batch of float32 are held at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from unchoke.core.clock import during
from unchoke.core.mixing import Hashes as Hashes
from unchoke.core.mixing import hash_ids as hash_ids
from unchoke.core.mixing import mix as mix
from unchoke.training.data import CHUNK_VALUES, FeatureSource, Positions, Standardiser


def epoch_order(hashes: Hashes, *, seed: int, epoch: int) -> Positions:
    """Indices into `hashes` in the order of this epoch."""
    return np.argsort(mix(hashes, seed, epoch, "order"), kind="stable").astype(np.int64)


def epoch_views(hashes: Hashes, *, seed: int, epoch: int, num_views: int) -> Positions:
    """Which cached view each sample shows in this epoch."""
    return (mix(hashes, seed, epoch, "view") % np.uint64(num_views)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Scaler:
    """A `Standardiser` on a device, applied in place to fresh float32 rows."""

    mean: torch.Tensor
    inverse_std: torch.Tensor

    @classmethod
    def on(cls, device: torch.device, standardiser: Standardiser) -> Scaler:
        std = torch.from_numpy(standardiser.std).to(device)
        return cls(torch.from_numpy(standardiser.mean).to(device), std.reciprocal())

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.float().sub_(self.mean).mul_(self.inverse_std)


@dataclass(frozen=True, eq=False)
class Batch:
    """`feats` is float32 (n, dim), or (n, views, dim) when all views were asked for."""

    positions: Positions
    feats: torch.Tensor


def batches(
    source: FeatureSource,
    positions: Positions,
    *,
    views: Positions | int | None,
    batch_size: int,
    scaler: Scaler,
) -> Iterator[Batch]:
    """Batches in the order of `positions`; `views` is one view for all, one per position, or None for all views together."""
    row_values = source.dim * (source.num_views if views is None else 1)
    chunk = max(1, CHUNK_VALUES // row_values // batch_size) * batch_size
    for start in range(0, len(positions), chunk):
        here = positions[start : start + chunk]
        shown = views[start : start + chunk] if isinstance(views, np.ndarray) else views
        with during("read"):
            rows, place = _read_chunk(source, here, views=shown, device=scaler.mean.device)
        for first in range(0, len(here), batch_size):
            with during("collate"):
                scaled = scaler(rows.index_select(0, place[first : first + batch_size]))
            yield Batch(here[first : first + batch_size], scaled)


def _read_chunk(
    source: FeatureSource, positions: Positions, *, views: Positions | int | None, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """The float16 rows read in ascending position (kind to a memory map), and where each position's row ended up."""
    ascending = np.argsort(positions, kind="stable")
    wanted = positions[ascending]
    if views is None:
        rows = source.all_views(wanted)
    else:
        rows = source.rows(wanted, views[ascending] if isinstance(views, np.ndarray) else views)
    place = np.empty(len(positions), dtype=np.int64)
    place[ascending] = np.arange(len(positions))
    return torch.from_numpy(np.ascontiguousarray(rows)).to(device), torch.from_numpy(place).to(device)
