"""Blocks that several strips need are decoded once, within a bound, and a failed read fails alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from rasterio.windows import Window

from unchoke.core.boxes import Box
from unchoke.scenes.tiling import shared_blocks
from unchoke.scenes.tiling.shared_blocks import SharedBlocks, SharedSource

BOXES = [Box(0, 0, 50, 40), Box(7, 3, 20, 30), Box(31, 17, 19, 23), Box(49, 39, 1, 1)]


class Counted:
    """A real dataset that counts its reads, and fails when told to."""

    def __init__(self, dataset: Any) -> None:
        self.dataset, self.num_reads, self.broken = dataset, 0, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dataset, name)

    def read(self, *args: Any, **options: Any) -> Any:
        self.num_reads += 1
        if self.broken:
            raise OSError("unreadable")
        return self.dataset.read(*args, **options)


@pytest.fixture
def dataset(tmp_path: Path, write_band: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    monkeypatch.setattr(shared_blocks, "_LEAST_PX", 1)
    pixels = np.random.default_rng(1).integers(0, 999, (50, 40), dtype=np.uint16)
    file = write_band(tmp_path / "a.tif", pixels, tiled=True, blockxsize=16, blockysize=16)
    with rasterio.open(file) as opened:
        yield Counted(opened)


def window(box: Box) -> Window:
    return Window(box.left, box.top, box.width, box.height)


def read_all(dataset: Counted, blocks: SharedBlocks, own: Box | None = None) -> None:
    shared = SharedSource(dataset, "a.tif", own, blocks)
    for box in BOXES:
        expected = dataset.dataset.read(1, window=window(box))
        np.testing.assert_array_equal(shared.read(1, window=window(box)), expected)
        out = np.empty((1, box.height, box.width), np.float32)
        np.testing.assert_array_equal(shared.read([1], window=window(box), out=out)[0], expected)


def test_windows_equal_rasterio_blocks_read_once(dataset: Counted) -> None:
    read_all(dataset, SharedBlocks())
    assert dataset.num_reads == 4 * 3


def test_own_blocks_are_read_directly_and_not_kept(dataset: Counted) -> None:
    blocks = SharedBlocks()
    read_all(dataset, blocks, own=Box(0, 0, 35, 40))
    assert all(key[2].top >= 32 for key in blocks._kept)
    assert len(blocks._kept) == 2 * 3


def test_beyond_the_bound_the_least_recently_used_goes(dataset: Counted) -> None:
    blocks = SharedBlocks(limit_bytes=3 * 16 * 16 * 2)
    for _ in range(2):
        read_all(dataset, blocks)
    assert sum(future.result().nbytes for future in blocks._kept.values()) <= 3 * 16 * 16 * 2
    assert dataset.num_reads > 12


def test_a_failed_read_is_tried_again_by_the_next(dataset: Counted) -> None:
    blocks = SharedBlocks()
    dataset.broken = True
    with pytest.raises(OSError, match="unreadable"):
        read_all(dataset, blocks)
    dataset.broken = False
    read_all(dataset, blocks)


def test_low_blocks_are_read_in_piles(tmp_path: Path, write_band: Callable[..., str]) -> None:
    file = write_band(tmp_path / "low.tif", np.ones((400, 300), np.uint16), blockysize=1)
    with rasterio.open(file) as opened:
        counted = Counted(opened)
        assert SharedSource(counted, file, None, SharedBlocks()).read(1, window=Window(0, 0, 300, 400)).all()
    assert counted.num_reads == 2


def test_threads_wait_for_each_others_blocks(tmp_path: Path, write_band: Callable[..., str]) -> None:
    pixels = np.arange(128 * 128, dtype=np.uint16).reshape(128, 128)
    file = write_band(tmp_path / "many.tif", pixels, tiled=True, blockxsize=16, blockysize=16)
    blocks, reads = SharedBlocks(), []

    def read(top: int) -> bool:
        with rasterio.open(file) as opened:
            counted = Counted(opened)
            found = SharedSource(counted, file, None, blocks).read(1, window=Window(5, top, 100, 40))
            reads.append(counted.num_reads)
        return bool((found == pixels[top : top + 40, 5:105]).all())

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(read, range(0, 88, 4)))
    assert sum(reads) <= 8 * 8
