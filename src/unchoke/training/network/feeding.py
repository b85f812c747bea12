"""From a source to the device: read ahead in threads, copied when asked for, with clocks on the reading and the copying.

In: a source and the batches of an epoch. Out: the batches in order, each still in ordinary (perhaps pinned) memory; `Fed.part`
copies a part of one to the device and prepares it there. A batch too large for the device can so be shown in parts, as often as
needed. What is read depends on positions and epoch alone, never on the number of threads. It trains nothing and chooses nothing.
How long the caller waits for a batch is the caller's to measure (`Clock.each`).
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass

import torch

from unchoke.core.ahead import map_ahead
from unchoke.core.clock import Clock, Loading, during
from unchoke.machine.backend import is_cpu, to_device
from unchoke.training.data import Positions
from unchoke.training.network.sources import Source

AHEAD_BYTES = 512 * 2**20
"""How much may be read ahead: many threads and large samples would otherwise fill memory."""


@dataclass(frozen=True, eq=False)
class Fed:
    """One batch as it was read, at `ready_s`. `raw` stays in ordinary memory for as long as the batch lives.

    `clock` is that of the thread that asks for parts, or None where nobody counts.
    """

    positions: Positions
    raw: torch.Tensor
    source: Source
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
    clock: Clock | None = None,
    loading: Loading | None = None,
) -> Generator[Fed, None, None]:
    """The batches, in order, read ahead by `workers` threads (0: by the caller's own, when it asks).

    `clock` counts what the caller does with a batch, `loading` what the readers do for it.
    """
    account = Loading() if loading is None else loading
    pinned = pin and not is_cpu(device)

    def read(positions: Positions) -> Fed:
        with account.here(), during("collate"):
            raw = source.read(positions, epoch, pin=pinned)
        return Fed(positions, raw, source, epoch, device, time.perf_counter(), clock)

    return _handed_over(map_ahead(read, batches, threads=workers, ahead=_ahead(source, batches, workers)), account)


def _ahead(source: Source, batches: Sequence[Positions], workers: int) -> int:
    """Batches in flight beside the one at hand: one for each thread and one more, as far as memory goes, at least two."""
    return num_ahead(source.sample_bytes * max((len(batch) for batch in batches), default=0), workers)


def num_ahead(batch_bytes: int, workers: int) -> int:
    """How many batches of that size are read ahead; without threads, none are."""
    return max(2, min(workers + 1, AHEAD_BYTES // max(1, batch_bytes))) if workers else 0


def _handed_over(found: Generator[Fed, None, None], account: Loading) -> Generator[Fed, None, None]:
    """The same batches. What passes between a batch being both ready and asked for, and being here, is the hand-over."""
    try:
        while True:
            asked_s = time.perf_counter()
            fed = next(found, None)
            if fed is None:
                return
            account.add("hand over", time.perf_counter() - max(asked_s, fed.ready_s))
            yield fed
    finally:
        found.close()


class Begun:
    """The same batches, the first of them being read already, in a thread, while the caller does something else."""

    def __init__(self, fed: Generator[Fed, None, None]) -> None:
        self._fed = fed
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="unchoke-begun")
        self._first: Future[Fed | None] | None = self._thread.submit(next, fed, None)

    def __iter__(self) -> Generator[Fed, None, None]:
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

    def _take(self) -> Fed | None:
        first, self._first = self._first, None
        return None if first is None else first.result()
