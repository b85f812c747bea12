from __future__ import annotations

import mmap
import sys
import threading
from pathlib import Path

import pytest

from unchoke.measure.memory import MemoryWatch, peak_rss_bytes, process_memory

MB = 10**6


def test_the_process_holds_something_and_never_more_than_its_peak() -> None:
    memory = process_memory()
    assert 0 < memory.rss_bytes <= peak_rss_bytes() + 50 * MB
    assert memory.rss_anon_bytes is None or 0 < memory.rss_anon_bytes <= memory.rss_bytes


def test_the_watch_sees_a_block_that_comes_and_goes() -> None:
    with MemoryWatch(interval_s=0.005) as watch:
        block = bytearray(b"x") * (80 * MB)
        threading.Event().wait(0.1)
        del block
    assert watch.grown_bytes > 60 * MB
    assert watch.peak_bytes == watch.start_bytes + watch.grown_bytes


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
    assert watch.grown_bytes < 40 * MB


def test_the_watch_ends_its_thread_also_after_an_error() -> None:
    before = threading.active_count()
    with pytest.raises(ValueError, match="no"), MemoryWatch():
        raise ValueError("no")
    assert threading.active_count() == before
