"""Feeding: the same batches in the same order with any number of threads, copied in parts, with the waiting counted."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import torch

from unchoke.core.clock import Clock, Loading
from unchoke.training.network.feeding import AHEAD_BYTES, HostBatch, feed

CPU = torch.device("cpu")


class Counting:
    """A source whose values say which position and epoch they are of; it can be slow, or break at a position."""

    num_samples = 1000
    sample_shape = (2,)

    def __init__(self, *, delay_s: float = 0.0, breaks_at: int | None = None, sample_bytes: int = 4) -> None:
        self.delay_s, self.breaks_at, self.sample_bytes = delay_s, breaks_at, sample_bytes
        self.reads: list[np.ndarray] = []
        self.threads: set[str] = set()
        self.prepared: list[int] = []

    def read(self, positions: np.ndarray, epoch: int | None, *, pin: bool = False) -> torch.Tensor:
        self.reads.append(positions)
        self.threads.add(threading.current_thread().name)
        time.sleep(self.delay_s)
        if self.breaks_at is not None and self.breaks_at in positions:
            raise RuntimeError(f"position {self.breaks_at}")
        return torch.stack([torch.from_numpy(positions), torch.full((len(positions),), -1 if epoch is None else epoch)], dim=1)

    def prepare(self, raw: torch.Tensor, positions: np.ndarray, epoch: int | None) -> torch.Tensor:
        assert raw[:, 0].tolist() == positions.tolist()
        self.prepared.append(len(raw))
        return raw.float() + 0.5


def in_batches(num: int, size: int) -> list[np.ndarray]:
    order = np.random.default_rng(0).permutation(num)
    return [order[start : start + size] for start in range(0, num, size)]


def fed(source: Counting, batches: list[np.ndarray], **options: object) -> list[HostBatch]:
    return list(feed(source, batches, **{"epoch": 3, "device": CPU, "workers": 2, **options}))  # type: ignore[arg-type]


@pytest.mark.parametrize("workers", [0, 1, 2, 5])
def test_batches_same_with_any_number_of_threads(workers: int) -> None:
    batches = in_batches(50, 8)
    found = fed(Counting(delay_s=0.001), batches, workers=workers)
    assert [batch.positions.tolist() for batch in found] == [batch.tolist() for batch in batches]
    for batch in found:
        assert batch.part(0, len(batch))[:, 0].tolist() == [position + 0.5 for position in batch.positions]
        assert set(batch.part(0, len(batch))[:, 1].tolist()) == {3.5}


def test_micro_batches_prepared_as_often_as_asked() -> None:
    source = Counting()
    [batch] = fed(source, in_batches(10, 10))
    parts = torch.cat([batch.part(0, 4), batch.part(4, 8), batch.part(8, 10)])
    assert torch.equal(parts, batch.part(0, len(batch)))
    assert source.prepared == [4, 4, 2, 10]
    assert len(source.reads) == 1


def test_without_an_epoch_the_plain_view_is_read() -> None:
    [batch] = fed(Counting(), in_batches(3, 3), epoch=None)
    assert set(batch.part(0, len(batch))[:, 1].tolist()) == {-0.5}


def test_feeding_nothing_and_empty_batches() -> None:
    assert fed(Counting(), []) == []
    lengths = [len(batch) for batch in fed(Counting(), [np.arange(3), np.arange(0), np.arange(2)])]
    assert lengths == [3, 0, 2]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_failure_comes_after_the_batches_before_it(workers: int) -> None:
    found = feed(Counting(breaks_at=5), [np.arange(3), np.arange(3, 6), np.arange(6, 9)], epoch=0, device=CPU, workers=workers)
    assert next(found).positions.tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match="position 5"):
        next(found)


def test_prefetch_in_threads_is_bounded() -> None:
    source = Counting()
    found = feed(source, in_batches(100, 5), epoch=0, device=CPU, workers=2)
    next(found)
    time.sleep(0.2)
    assert 2 <= len(source.reads) <= 4
    assert threading.current_thread().name not in source.threads
    found.close()
    assert len(source.reads) <= 4


def test_large_samples_are_not_read_far_ahead() -> None:
    source = Counting(sample_bytes=AHEAD_BYTES // 10)
    found = feed(source, in_batches(100, 5), epoch=0, device=CPU, workers=8)
    next(found)
    time.sleep(0.2)
    assert len(source.reads) <= 3
    found.close()


def test_waiting_is_told_apart_from_copying_and_computing() -> None:
    slow = Clock()
    for _ in slow.each("wait", feed(Counting(delay_s=0.02), in_batches(30, 5), epoch=0, device=CPU, workers=0, clock=slow)):
        pass
    assert slow.share("wait") > 0.9
    quick = Clock()
    for batch in quick.each("wait", feed(Counting(), in_batches(30, 5), epoch=0, device=CPU, workers=1, clock=quick)):
        batch.part(0, len(batch))
        time.sleep(0.02)
    assert quick.share("wait") < 0.5
    assert quick.tally()["copy"][1] == 6
    assert quick.wall_s >= 0.12


def test_worker_times_summed_and_handover_counted() -> None:
    loading = Loading()
    for _ in feed(Counting(delay_s=0.01), in_batches(30, 5), epoch=0, device=CPU, workers=3, loading=loading):
        pass
    tally = loading.tally()
    assert {name: calls for name, (_, calls) in tally.items()} == {"collate": 6, "hand over": 6}
    assert tally["collate"][0] >= 0.06
    assert 1 <= loading.num_threads <= 3


def test_on_a_cpu_nothing_is_pinned() -> None:
    [batch] = fed(Counting(), in_batches(4, 4), pin=True)
    assert not batch.raw.is_pinned()
