"""Which samples a batch holds, in which order and view: functions of (run seed, epoch, sample id) and nothing else.

In: a feature source and positions. Out: an order, a view per sample, and batches of standardised float32 on the device.
The order does not depend on where a sample lies in the store, so resuming needs no random state.
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

CHUNK_ROWS = 2048
"""Rows that are worked on together where all of them are; sums over chunks do not depend on how many cores there are."""


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


def batches(
    source: FeatureSource, positions: Positions, *, views: Positions | int | None, batch_size: int, scaler: Scaler
) -> Iterator[Batch]:
    """Batches in the order of `positions`; `views` is one view for all, one per position, or None for all views together.

    Only one chunk of float16 rows and one batch of float32 are held at a time.
    """
    device = scaler.mean.device
    row_values = source.dim * (source.num_views if views is None else 1)
    size = max(1, CHUNK_VALUES // row_values // batch_size) * batch_size
    for start in range(0, len(positions), size):
        here = positions[start : start + size]
        shown = views[start : start + size] if isinstance(views, np.ndarray) else views
        with during("read"):
            ascending = np.argsort(here, kind="stable")  # kind to a memory map
            read = _read(source, here[ascending], shown[ascending] if isinstance(shown, np.ndarray) else shown, device)
            place, where = (torch.from_numpy(numbers).to(device) for numbers in (np.argsort(ascending, kind="stable"), here))
        for first in range(0, len(here), batch_size):
            part = slice(first, first + batch_size)
            with during("collate"):
                scaled = scaler(read.index_select(0, place[part]))
            yield Batch(here[part], where[part], scaled)
            del scaled
        del read  # before the next chunk is there


def _read(source: FeatureSource, positions: Positions, views: Positions | int | None, device: torch.device) -> torch.Tensor:
    rows = source.all_views(positions) if views is None else source.rows(positions, views)
    return torch.from_numpy(np.ascontiguousarray(rows)).to(device)


class Rows:
    """Standardised rows of the samples at `positions`, which are in ascending order: read when they are asked for, or held."""

    def __init__(self, source: FeatureSource, positions: Positions, scaler: Scaler) -> None:
        self.source, self.positions, self.scaler = source, np.sort(positions), scaler
        self._held: torch.Tensor | None = None

    @property
    def device(self) -> torch.device:
        return self.scaler.mean.device

    @property
    def count(self) -> int:
        """How many rows there are, each cached view of a sample being one."""
        return len(self.positions) * self.source.num_views

    def hold(self, limit_bytes: float) -> None:
        """Keep all rows as float32 (views, samples, dim) if that takes no more."""
        if self._held is None and 4 * self.count * self.source.dim <= limit_bytes:
            shape = (self.source.num_views, len(self.positions), self.source.dim)
            held = torch.empty(shape, dtype=torch.float32, device=self.device)
            for number in range(self.num_chunks):
                view, part = self._part(number)
                held[view, part] = self.chunk(number)[0]
            self._held = held

    @property
    def num_chunks(self) -> int:
        return self.source.num_views * -(-len(self.positions) // CHUNK_ROWS)

    def _part(self, number: int) -> tuple[int, slice]:
        view, place = divmod(number, self.num_chunks // self.source.num_views)
        return view, slice(place * CHUNK_ROWS, (place + 1) * CHUNK_ROWS)

    def chunk(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The rows of one view of up to `CHUNK_ROWS` samples, and their positions."""
        view, part = self._part(number)
        here = self.positions[part]
        where = torch.from_numpy(here).to(self.device)
        if self._held is not None:
            return self._held[view, part], where
        return self.scaler(_read(self.source, here, view, self.device)), where

    def batches(
        self, order: Positions, *, views: Positions | int | None, batch_size: int
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Rows and positions in `order`, which are places among the samples; `views` as for `batches`."""
        if (held := self._held) is None:
            stream = batches(self.source, self.positions[order], views=views, batch_size=batch_size, scaler=self.scaler)
            yield from ((batch.feats, batch.where) for batch in stream)
            return
        where, places = (torch.from_numpy(numbers).to(self.device) for numbers in (self.positions[order], order))
        shown = torch.from_numpy(views).to(self.device) if isinstance(views, np.ndarray) else views
        for first in range(0, len(order), batch_size):
            part = slice(first, first + batch_size)
            if shown is None:
                yield held[:, places[part]].transpose(0, 1), where[part]
            else:
                yield held[shown[part] if isinstance(shown, torch.Tensor) else shown, places[part]], where[part]
