from __future__ import annotations

import mmap
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from unchoke.machine.memory.memory_watch import Gauge, MemoryWatch, own_bytes, return_unused_memory

MB = 10**6
CPU = torch.device("cpu")


def test_the_watch_sees_a_block_that_comes_and_goes() -> None:
    return_unused_memory()
    with MemoryWatch(interval_s=0.005) as watch:
        block = bytearray(b"x") * (80 * MB)
        threading.Event().wait(0.1)
        del block
    assert watch.peak_bytes - watch.start_bytes > 60 * MB


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells mapped files apart")
def test_pages_of_a_mapped_file_do_not_count(tmp_path: Path) -> None:
    file = tmp_path / "mapped"
    file.write_bytes(b"x" * (80 * MB))
    with (
        MemoryWatch(interval_s=0.005) as watch,
        file.open("rb") as opened,
        mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
    ):
        assert mapped[:: mmap.PAGESIZE].count(b"x") == 80 * MB // mmap.PAGESIZE + 1
        threading.Event().wait(0.05)
    assert watch.peak_bytes - watch.start_bytes < 40 * MB


def test_the_watch_ends_its_thread_also_after_an_error() -> None:
    before = threading.active_count()
    with pytest.raises(ValueError, match="no"), MemoryWatch():
        raise ValueError("no")
    assert threading.active_count() == before


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux's kernel keeps a peak that can be begun anew")
def test_an_exact_watch_sees_what_no_sample_could() -> None:
    earlier = bytearray(b"x") * (100 * MB)
    del earlier
    return_unused_memory()  # whatever allocator settings earlier tests left: what is freed is held no longer
    with MemoryWatch(interval_s=60, exact=True) as watch:
        block = bytearray(b"x") * (80 * MB)
        del block
    assert 75 * MB < watch.peak_bytes - watch.start_bytes < 100 * MB


def test_every_new_peak_is_heard() -> None:
    readings, heard = iter([5, 3, 9, 7, 12]), []
    with MemoryWatch(interval_s=0.001, read=lambda: next(readings, 1), on_peak=heard.append):
        threading.Event().wait(0.05)
    assert heard == [9, 12]


def test_a_watch_can_be_handed_something_else_to_read() -> None:
    readings = iter([5, 9, 2])
    with MemoryWatch(interval_s=0.001, read=lambda: next(readings, 1)) as watch:
        threading.Event().wait(0.05)
    assert (watch.start_bytes, watch.peak_bytes) == (5, 9)


def test_memory_of_another_process_until_it_ends() -> None:
    code = "import sys; block = bytearray(b'x') * 80_000_000; sys.stdout.write('.'); sys.stdout.flush(); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.read(1)
        assert own_bytes(child.pid) > 80 * MB
        child.communicate()
    assert own_bytes(child.pid) == 0


def hold(size_bytes: int) -> None:
    np.ones(size_bytes, np.uint8).sum()


def test_the_peak_of_a_process_is_seen_even_if_it_is_brief() -> None:
    return_unused_memory()
    with Gauge(CPU) as gauge:
        hold(100 * MB)
    assert gauge.baseline_bytes > 0
    assert 90 * MB < gauge.peak_bytes - gauge.baseline_bytes < 150 * MB


def test_passing_the_limit_is_told_once_with_what_was_held() -> None:
    return_unused_memory()
    told: list[int] = []
    with Gauge(CPU) as gauge:
        pass
    limit_bytes = gauge.peak_bytes + 50 * MB
    with Gauge(CPU, limit_bytes=limit_bytes, on_over=told.append):
        hold(10 * MB)
    assert not told
    with Gauge(CPU, limit_bytes=limit_bytes, on_over=told.append):
        hold(150 * MB)
        hold(200 * MB)
    assert len(told) == 1
    assert told[0] > limit_bytes


def test_the_peak_is_known_after_a_failure_too() -> None:
    return_unused_memory()
    gauge = Gauge(CPU)
    with pytest.raises(ValueError, match="odd"), gauge:
        hold(100 * MB)
        raise ValueError("odd")
    assert gauge.peak_bytes - gauge.baseline_bytes > 90 * MB


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_card_the_allocator_keeps_to_the_limit() -> None:
    device = torch.device("cuda")
    with Gauge(device, limit_bytes=1_500 * MB) as gauge:
        torch.zeros(200 * MB, dtype=torch.uint8, device=device)
        with pytest.raises(torch.OutOfMemoryError):
            torch.zeros(1_500 * MB, dtype=torch.uint8, device=device)
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert 200 * MB <= gauge.peak_bytes - gauge.baseline_bytes < 1_500 * MB
    assert gauge.baseline_bytes > 0
