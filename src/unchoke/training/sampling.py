"""Which samples a batch holds, in which order and view: functions of (run seed, epoch, sample id) and nothing else.

In: a feature source and positions. Out: an order, a view per sample, and batches of standardised float32 on the device.
The order does not depend on where a sample lies in the store, so resuming needs no random state. Only one chunk of
float16 rows and one batch of float32 are held at a time, or, on a card, all rows as float16 where they are small beside it.
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
from unchoke.machine.backend import device_free_bytes, is_cpu
from unchoke.training.data import CHUNK_VALUES, FeatureSource, Positions, Standardiser

_HELD_PART = 8
"""Features may take one part in so many of what is free on a card."""


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
    """`feats` is float32 (n, dim), or (n, views, dim) when all views were asked for; `where` are the positions on its device."""

    positions: Positions
    where: torch.Tensor
    feats: torch.Tensor


def hold_features(source: FeatureSource, device: torch.device) -> torch.Tensor | None:
    """All rows (samples, views, dim) as float16 on `device`, where that is a card and they are small beside it; else None."""
    if is_cpu(device) or 2 * source.num_samples * source.num_views * source.dim > device_free_bytes(device) // _HELD_PART:
        return None
    return load_features(source, device)


def load_features(source: FeatureSource, device: torch.device) -> torch.Tensor:
    """All rows on `device`, read chunk by chunk."""
    held = torch.empty((source.num_samples, source.num_views, source.dim), dtype=torch.float16, device=device)
    chunk = max(1, CHUNK_VALUES // (source.dim * source.num_views))
    for start in range(0, source.num_samples, chunk):
        positions = np.arange(start, min(start + chunk, source.num_samples), dtype=np.int64)
        held[start : start + chunk] = torch.from_numpy(np.ascontiguousarray(source.all_views(positions))).to(device)
    return held


def batches(
    source: FeatureSource,
    positions: Positions,
    *,
    views: Positions | int | None,
    batch_size: int,
    scaler: Scaler,
    held: torch.Tensor | None = None,
) -> Iterator[Batch]:
    """Batches in the order of `positions`; `views` is one view for all, one per position, or None for all views together.

    Rows are taken from `held` where it is given (`hold_features`), with the same bytes.
    """
    if held is not None:
        yield from _held_batches(held, positions, views=views, batch_size=batch_size, scaler=scaler)
        return
    row_values = source.dim * (source.num_views if views is None else 1)
    chunk = max(1, CHUNK_VALUES // row_values // batch_size) * batch_size
    for start in range(0, len(positions), chunk):
        here = positions[start : start + chunk]
        shown = views[start : start + chunk] if isinstance(views, np.ndarray) else views
        with during("read"):
            rows, place = _read_chunk(source, here, views=shown, device=scaler.mean.device)
            where = torch.from_numpy(here).to(scaler.mean.device)
        for first in range(0, len(here), batch_size):
            with during("collate"):
                scaled = scaler(rows.index_select(0, place[first : first + batch_size]))
            yield Batch(here[first : first + batch_size], where[first : first + batch_size], scaled)


def _held_batches(
    held: torch.Tensor, positions: Positions, *, views: Positions | int | None, batch_size: int, scaler: Scaler
) -> Iterator[Batch]:
    """Two copies to the device for all batches together: the positions, and which view of each."""
    where = torch.from_numpy(positions).to(held.device)
    shown = torch.from_numpy(views).to(held.device) if isinstance(views, np.ndarray) else views
    for first in range(0, len(positions), batch_size):
        part = slice(first, first + batch_size)
        with during("collate"):
            if shown is None:
                rows = held[where[part]]
            else:
                rows = held[where[part], shown[part] if isinstance(shown, torch.Tensor) else shown]
            scaled = scaler(rows)
        yield Batch(positions[part], where[part], scaled)


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
