"""From a source to the device: read ahead in threads, copied when asked for, with a clock on the waiting.

In: a source and the batches of an epoch. Out: the batches in order, each still in ordinary (perhaps pinned) memory; `Fed.part`
copies a part of one to the device and prepares it there. A batch too large for the device can so be shown in parts, as often as
needed. What is read depends on positions and epoch alone, never on the number of threads. It trains nothing and chooses nothing.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch

from unchoke.decode.pipeline import map_ahead
from unchoke.device.backend import is_cpu, to_device
from unchoke.train.data import Positions
from unchoke.train.sources import Source

AHEAD_BYTES = 512 * 2**20
"""How much may be read ahead: many threads and large samples would otherwise fill memory."""


@dataclass
class Waits:
    """Seconds spent waiting for data, copying and preparing it, and all seconds of the epochs fed."""

    wait_s: float = 0.0
    prepare_s: float = 0.0
    total_s: float = 0.0

    @property
    def share(self) -> float:
        """The share of time in which there was nothing to compute on."""
        return self.wait_s / self.total_s if self.total_s > 0 else 0.0

    @property
    def prepare_share(self) -> float:
        """The share of time spent copying and preparing. On an accelerator this is what the CPU spends on asking for it."""
        return self.prepare_s / self.total_s if self.total_s > 0 else 0.0


@dataclass(frozen=True, eq=False)
class Fed:
    """One batch as it was read. `raw` stays in ordinary memory for as long as the batch lives."""

    positions: Positions
    raw: torch.Tensor
    source: Source
    epoch: int | None
    device: torch.device
    waits: Waits

    def __len__(self) -> int:
        return len(self.positions)

    def part(self, start: int, stop: int) -> torch.Tensor:
        """Samples `start` to `stop` as float32 network input on the device."""
        started_s = time.perf_counter()
        raw = to_device(self.raw[start:stop], self.device, non_blocking=True)
        prepared = self.source.prepare(raw, self.positions[start:stop], self.epoch)
        self.waits.prepare_s += time.perf_counter() - started_s
        return prepared

    def whole(self) -> torch.Tensor:
        """Every sample of the batch."""
        return self.part(0, len(self))


def feed(
    source: Source,
    batches: Sequence[Positions],
    *,
    epoch: int | None,
    device: torch.device,
    workers: int,
    pin: bool = False,
    waits: Waits | None = None,
) -> Generator[Fed, None, None]:
    """The batches, in order, read ahead by `workers` threads (0: by the caller's own, when it asks)."""
    clock = waits if waits is not None else Waits()
    pinned = pin and not is_cpu(device)

    def read(positions: Positions) -> Fed:
        return Fed(positions, source.read(positions, epoch, pin=pinned), source, epoch, device, clock)

    return _timed(map_ahead(read, batches, threads=workers, ahead=_ahead(source, batches, workers)), clock)


def _ahead(source: Source, batches: Sequence[Positions], workers: int) -> int:
    """Batches in flight beside the one at hand: one for each thread and one more, as far as memory goes, at least two."""
    return num_ahead(source.sample_bytes * max((len(batch) for batch in batches), default=0), workers)


def num_ahead(batch_bytes: int, workers: int) -> int:
    """How many batches of that size are read ahead; without threads, none are."""
    return max(2, min(workers + 1, AHEAD_BYTES // max(1, batch_bytes))) if workers else 0


def _timed(found: Generator[Fed, None, None], waits: Waits) -> Generator[Fed, None, None]:
    asked_s = time.perf_counter()
    try:
        while True:
            fed = next(found, None)
            given_s = time.perf_counter()
            waits.wait_s += given_s - asked_s
            waits.total_s += given_s - asked_s
            if fed is None:
                return
            yield fed
            asked_s = time.perf_counter()
            waits.total_s += asked_s - given_s
    finally:
        found.close()


class Begun:
    """The same batches, the first of them being read already, in a thread, while the caller does something else."""

    def __init__(self, fed: Generator[Fed, None, None]) -> None:
        self._fed = fed
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="unchoke-begun")
        self._first: Future[Fed | None] | None = self._thread.submit(next, fed, None)

    def __iter__(self) -> Generator[Fed, None, None]:
        """The batches. What waiting for the first costs is not told apart from whatever the caller did meanwhile."""
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

    def _take(self) -> Fed | None:
        first, self._first = self._first, None
        return None if first is None else first.result()
