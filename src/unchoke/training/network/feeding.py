"""Which samples each step sees, and how they reach the device: read ahead in threads, copied when asked for.

In: the train split and a source. Out: the batches of an epoch as positions (`Batches`: all of it follows from seed, epoch and
sample id, so that nothing needs to be remembered to go on after a kill), and the same batches read, in order, each still in
ordinary (perhaps pinned) memory. `HostBatch.part` copies a part of one to the device and prepares it there: a batch too large for
the device can so be shown as micro-batches, as often as needed. What is read depends on positions and epoch alone, never on the
number of threads. How long the caller waits for a batch is the caller's to measure (`Clock.each`).
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.ahead import map_ahead
from unchoke.core.clock import Clock, Loading, during
from unchoke.core.fingerprint import hash_int
from unchoke.core.mixing import Hashes
from unchoke.machine.backend import is_cpu, to_device
from unchoke.training.data import Positions
from unchoke.training.network.parallel import Ranks
from unchoke.training.network.sources import InputSource
from unchoke.training.sampling import epoch_order

MixShares = NDArray[np.float32]
"""Mixup: how much of each sample is kept; the rest is taken from the one after it."""
AHEAD_BYTES = 512 * 2**20
"""How much may be read ahead: many threads and large samples would otherwise fill memory."""


@dataclass(frozen=True, eq=False)
class Batches:
    """`train` and `hashes` belong together, sample by sample; `mixup` is the alpha of its beta distribution."""

    train: Positions
    hashes: Hashes
    batch_size: int
    mixup: float
    seed: int
    ranks: Ranks

    @property
    def per_epoch(self) -> int:
        return -(-len(self.train) // self.batch_size)

    def plan(self, epoch: int, first: int) -> tuple[list[Positions], list[MixShares | None]]:
        """The global batches of an epoch from step `first` on, and for mixup how much of each of our samples is kept."""
        order = self.train[epoch_order(self.hashes, seed=self.seed, epoch=epoch)]
        starts = range(first * self.batch_size, len(order), self.batch_size)
        batches = [order[start : start + self.batch_size] for start in starts]
        return batches, [self.mixing(epoch, step, len(batch)) for step, batch in enumerate(batches, start=first)]

    def mixing(self, epoch: int, step: int, num_global: int) -> MixShares | None:
        """Mixup: how much of each of our samples is kept; the rest is taken from the next one in the global batch."""
        if not self.mixup or num_global < 2:
            return None
        random = np.random.Generator(np.random.PCG64(hash_int("mixup", self.seed, epoch, step)))
        kept = random.beta(self.mixup, self.mixup, size=num_global)
        return self.ranks.share(kept.astype(np.float32))

    def own(self, batch: Positions, kept: MixShares | None) -> Positions:
        """Our share of a global batch and, for mixup, the one sample more that the last of ours is mixed with."""
        share = self.ranks.share(batch)
        return share if kept is None else np.concatenate([share, self.ranks.share(np.roll(batch, -1))[-1:]])


@dataclass(frozen=True, eq=False)
class HostBatch:
    """One batch as it was read, at `ready_s`. `raw` stays in ordinary memory for as long as the batch lives.

    `clock` is that of the thread that asks for parts, or None where nobody counts.
    """

    positions: Positions
    raw: torch.Tensor
    source: InputSource
    epoch: int | None
    device: torch.device
    ready_s: float = 0.0
    clock: Clock | None = None

    def __len__(self) -> int:
        return len(self.positions)

    def part(self, start: int, stop: int) -> torch.Tensor:
        """Samples `start` to `stop` as float32 network input on the device."""
        with nullcontext() if self.clock is None else self.clock.stage("copy"):
            raw = to_device(self.raw[start:stop], self.device, non_blocking=True)
        return self.source.prepare(raw, self.positions[start:stop], self.epoch)


def feed(
    source: InputSource,
    batches: Sequence[Positions],
    *,
    epoch: int | None,
    device: torch.device,
    workers: int,
    pin: bool = False,
    clock: Clock | None = None,
    loading: Loading | None = None,
) -> Generator[HostBatch, None, None]:
    """The batches, in order, read ahead by `workers` threads (0: by the caller's own, when it asks).

    `clock` counts what the caller does with a batch, `loading` what the readers do for it.
    """
    account = Loading() if loading is None else loading
    pinned = pin and not is_cpu(device)

    def read(positions: Positions) -> HostBatch:
        with account.here(), during("collate"):
            raw = source.read(positions, epoch, pin=pinned)
        return HostBatch(positions, raw, source, epoch, device, time.perf_counter(), clock)

    batch_bytes = source.sample_bytes * max((len(batch) for batch in batches), default=0)
    found = map_ahead(read, batches, threads=workers, ahead=num_ahead(batch_bytes, workers))
    try:
        while True:
            asked_s = time.perf_counter()
            fed = next(found, None)
            if fed is None:
                return
            # what passes between a batch being both ready and asked for, and being here
            account.add_all({"hand over": (time.perf_counter() - max(asked_s, fed.ready_s), 1)})
            yield fed
    finally:
        found.close()


def num_ahead(batch_bytes: int, workers: int) -> int:
    """Batches of that size in flight beside the one at hand: one for each thread and one more, as far as memory goes, at least
    two; without threads, none.
    """
    return max(2, min(workers + 1, AHEAD_BYTES // max(1, batch_bytes))) if workers else 0


class Prefetch:
    """The same batches, the first of them being read already, in a thread, while the caller does something else."""

    def __init__(self, fed: Generator[HostBatch | None, None, None]) -> None:
        self._fed = fed
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="unchoke-begun")
        self._first: Future[HostBatch | None] | None = self._thread.submit(next, fed, None)

    def __iter__(self) -> Generator[HostBatch | None, None, None]:
        """The batches, the first as soon as it is there."""
        try:
            first = self._take()
            if first is not None:
                yield first
                yield from self._fed
        finally:
            self.close()

    def close(self) -> None:
        """Stop reading. Harmless to repeat."""
        self._take()
        self._fed.close()
        self._thread.shutdown()

    def _take(self) -> HostBatch | None:
        first, self._first = self._first, None
        return None if first is None else first.result()
