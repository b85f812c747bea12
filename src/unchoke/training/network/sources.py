"""What the loop shows a network: cached activations, or pixels, by position.

In: a feature store or a pixel cache. Out: raw rows read on the CPU (from any thread), and from them, on the device, float32
network input. What a sample looks like in an epoch is a function of (seed, epoch, sample id): its batch, the order, threads and
processes change nothing. Labels, batches and order are decided elsewhere.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.clock import during
from unchoke.core.errors import DataError
from unchoke.core.mixing import Hashes, hash_ids
from unchoke.machine.backend import send
from unchoke.pixels.augment_batch import AugmentSpec, BatchPlan, augment, crop_inputs, plain, plan_batch, read_frames
from unchoke.pixels.canvas import Canvas
from unchoke.pixels.image import DecodeError, Pixels
from unchoke.pixels.pixel_cache import PixelCache
from unchoke.training.data import Positions
from unchoke.training.sampling import epoch_views

Draws = NDArray[np.float32]
"""What was drawn for the samples of a batch, a row of numbers for each."""


class InputSource(Protocol):
    """What the loop reads from."""

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Of what `prepare` returns for one sample: (tiles, 3, size, size) pixels or (tiles, *activation)."""
        ...

    @property
    def sample_bytes(self) -> int:
        """Of one sample as `read` returns it for training."""
        ...

    def read(self, positions: Positions, epoch: int | None, *, pin: bool = False) -> torch.Tensor:
        """The rows as they are stored, on the CPU. `epoch` None asks for the plain view, as evaluation wants it.

        `pin` puts them into memory that a GPU can fetch from by itself.
        """
        ...

    def prepare(self, raw: torch.Tensor, positions: Positions, epoch: int | None) -> torch.Tensor:
        """What `read` gave, moved to the device, as float32 (n, *sample_shape): augmented for an epoch, and normalised."""
        ...


class DrawnSource(ABC):
    """An `InputSource` whose inputs follow from rows and a few numbers alone: with both on a device, nothing is asked of the
    host.
    """

    sample_shape: tuple[int, ...]
    sample_bytes: int

    @abstractmethod
    def read(self, positions: Positions, epoch: int | None, *, pin: bool = False) -> torch.Tensor: ...

    @abstractmethod
    def draws(self, positions: Positions, epoch: int | None) -> Draws | None:
        """What `prepare` draws for the samples; None where rows are shown as they are."""

    @abstractmethod
    def shown(self, raw: torch.Tensor, draws: torch.Tensor | None) -> torch.Tensor:
        """What `prepare` gives for rows that were read, and for what was drawn for them."""

    def prepare(self, raw: torch.Tensor, positions: Positions, epoch: int | None) -> torch.Tensor:
        draws = self.draws(positions, epoch)
        return self.shown(raw, None if draws is None else send(torch.from_numpy(draws), raw.device))


class NumberedSource(DrawnSource):
    """A source whose rows are numbered, so that all of them can be read once and kept on a GPU."""

    row_shape: tuple[int, ...]
    row_dtype: torch.dtype

    @abstractmethod
    def row_numbers(self, positions: Positions, epoch: int | None) -> Positions:
        """The row that each sample shows."""

    @abstractmethod
    def read_rows(self, numbers: Positions, out: torch.Tensor) -> None:
        """Put the rows with these numbers into `out`, on the CPU."""

    def shown_whole(self, rows: torch.Tensor, draws: torch.Tensor | None) -> torch.Tensor:
        """What `shown` gives, from rows as `read_rows` has them."""
        return self.shown(rows, draws)


class Rows(Protocol):
    """Cached activations by position: what `FeatureStore` is. View 0 is the plain picture."""

    @property
    def num_views(self) -> int: ...
    @property
    def row_shape(self) -> tuple[int, ...]: ...

    def rows(
        self, positions: Positions, views: Positions | int = 0, *, out: NDArray[np.float16] | None = None
    ) -> NDArray[np.float16]: ...


class ActivationSource(NumberedSource):
    """Cached activations of the frozen part. With augmented views, each epoch shows one of each sample's views.

    A picture that was cached as one vector is shown as a single tile.
    """

    def __init__(self, store: Rows, hashes: Hashes, seed: int) -> None:
        self._store, self._hashes, self._seed = store, hashes, seed
        self.sample_shape = store.row_shape if len(store.row_shape) > 1 else (1, *store.row_shape)
        self.row_shape, self.row_dtype = store.row_shape, torch.float16
        self.sample_bytes = 2 * int(np.prod(store.row_shape, dtype=np.int64))

    def read(self, positions: Positions, epoch: int | None, *, pin: bool = False) -> torch.Tensor:
        views = self._views(positions, epoch)
        if not pin:
            with during("read"):
                return torch.from_numpy(self._store.rows(positions, views))
        rows = torch.empty((len(positions), *self._store.row_shape), dtype=torch.float16, pin_memory=True)
        with during("read"):
            self._store.rows(positions, views, out=rows.numpy())
        return rows

    def draws(self, positions: Positions, epoch: int | None) -> None:
        return None

    def shown(self, raw: torch.Tensor, draws: torch.Tensor | None) -> torch.Tensor:
        return raw.float().view(-1, *self.sample_shape)

    def row_numbers(self, positions: Positions, epoch: int | None) -> Positions:
        return positions * self._store.num_views + self._views(positions, epoch)

    def read_rows(self, numbers: Positions, out: torch.Tensor) -> None:
        with during("read"):
            self._store.rows(*np.divmod(numbers, self._store.num_views), out=out.numpy())

    def _views(self, positions: Positions, epoch: int | None) -> Positions | int:
        if epoch is None or self._store.num_views == 1:
            return 0
        return epoch_views(self._hashes[positions], seed=self._seed, epoch=epoch, num_views=self._store.num_views)


@dataclass(frozen=True, eq=False)
class NoiseRows:
    """Noise in the place of cached activations: the same row for every sample."""

    row_shape: tuple[int, ...]
    num_views: int = 1
    _row: list[NDArray[np.float16]] = field(default_factory=list, repr=False)

    def rows(
        self, positions: Positions, views: Positions | int = 0, *, out: NDArray[np.float16] | None = None
    ) -> NDArray[np.float16]:
        if not self._row:
            noise = np.random.default_rng(0).standard_normal(math.prod(self.row_shape), np.float32)
            self._row.append(noise.astype(np.float16).reshape(self.row_shape))
        found = np.empty((len(positions), *self.row_shape), np.float16) if out is None else out
        found[:] = self._row[0]
        return found


class PixelSource(NumberedSource):
    """Decoded pictures, augmented on the device. `rows[i]` is where sample i lies in the cache (by default at i).

    Evaluation, and training without augmentation, get the very pixels that `fit_to_input` (or the tile cutter) gives, normalised
    as the frozen path normalises them.
    """

    def __init__(
        self,
        cache: PixelCache,
        canvas: Canvas,
        sample_ids: Sequence[str],
        *,
        seed: int,
        augment: AugmentSpec,
        rows: Positions | None = None,
    ) -> None:
        self._cache, self._canvas, self._seed, self._spec = cache, canvas, seed, augment
        self._sample_ids, self._hashes = sample_ids, hash_ids(sample_ids)
        self._rows = np.arange(len(sample_ids)) if rows is None else rows
        tiles, size_px, _, _ = canvas.input_shape
        self.sample_shape = (tiles, 3, size_px, size_px)
        self.sample_bytes = math.prod(canvas.raw_shape)
        self.row_shape, self.row_dtype = canvas.raw_shape, torch.uint8

    def read(self, positions: Positions, epoch: int | None, *, pin: bool = False) -> torch.Tensor:
        shape = (len(positions), *self._canvas.row_shape, 3)
        rows = self._read_rows(positions, torch.empty(shape, dtype=torch.uint8, pin_memory=pin).numpy())
        if epoch is not None and not self._spec.is_none:
            return torch.from_numpy(rows.reshape(len(rows), *self._canvas.raw_shape))
        with during("transform"):
            return torch.from_numpy(self._canvas.inputs(rows))

    def draws(self, positions: Positions, epoch: int | None) -> Draws | None:
        if epoch is None or self._spec.is_none:
            return None
        return np.asarray(plan_batch(self._spec, self._hashes[positions], seed=self._seed, epoch=epoch).values)

    def shown(self, raw: torch.Tensor, draws: torch.Tensor | None) -> torch.Tensor:
        preprocess, spec = self._canvas.preprocess, self._spec
        if draws is None:
            return plain(raw, mean=preprocess.mean, std=preprocess.std)
        pixels, frames = read_frames(raw) if self._canvas.long_px else (raw, None)
        plan = BatchPlan(draws, turns=spec.rotation > 0, colours=spec.colours)
        return augment(pixels, plan, size_px=preprocess.size_px, mean=preprocess.mean, std=preprocess.std, frames=frames)

    def row_numbers(self, positions: Positions, epoch: int | None) -> Positions:
        return positions

    def read_rows(self, numbers: Positions, out: torch.Tensor) -> None:
        self._read_rows(numbers, out.numpy().reshape(len(numbers), *self._canvas.row_shape, 3))

    def shown_whole(self, rows: torch.Tensor, draws: torch.Tensor | None) -> torch.Tensor:
        evaluated = draws is None and self._canvas.long_px
        return self.shown(crop_inputs(rows, self._canvas.preprocess.size_px) if evaluated else rows, draws)

    def _read_rows(self, positions: Positions, rows: Pixels) -> Pixels:
        for place, position in enumerate(positions):
            try:
                self._cache.read_into(int(self._rows[position]), rows[place])
            except DecodeError as error:
                raise DataError(
                    f"the picture {self._sample_ids[position]} cannot be read any more",
                    code="unreadable-photos",
                    why=str(error),
                    try_="put the file back, or run the training again: what changed is looked at anew, what fails is set aside",
                ) from error
        return rows
