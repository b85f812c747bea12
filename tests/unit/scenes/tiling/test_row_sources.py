"""Blocks of files on another grid are decoded once, within a bound, and a failure is nobody else's."""

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
from unchoke.scenes.tiling import row_sources as sources
from unchoke.scenes.tiling.row_sources import SharedSource, SourceBlocks

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
    monkeypatch.setattr(sources, "_LEAST_PX", 1)
    pixels = np.random.default_rng(1).integers(0, 999, (50, 40), dtype=np.uint16)
    file = write_band(tmp_path / "a.tif", pixels, tiled=True, blockxsize=16, blockysize=16)
    with rasterio.open(file) as opened:
        yield Counted(opened)


def plain(dataset: Counted, box: Box) -> Any:
    return dataset.dataset.read(1, window=Window(box.left, box.top, box.width, box.height))


def test_every_window_is_what_rasterio_reads_and_every_block_is_read_once(dataset: Counted) -> None:
    shared = SharedSource(dataset, "a.tif", SourceBlocks())
    for box in BOXES:
        np.testing.assert_array_equal(
            shared.read(1, window=Window(box.left, box.top, box.width, box.height)), plain(dataset, box)
        )
    assert dataset.num_reads == 4 * 3
    assert shared.height == 50


def test_beyond_the_bound_the_least_recently_used_goes(dataset: Counted) -> None:
    blocks = SourceBlocks(limit_bytes=3 * 16 * 16 * 2)
    for _ in range(2):
        for box in BOXES:
            np.testing.assert_array_equal(blocks.read(dataset, "a.tif", 1, box), plain(dataset, box))
    assert sum(future.result().nbytes for future in blocks._kept.values()) <= 3 * 16 * 16 * 2
    assert dataset.num_reads > 12


def test_a_failed_read_is_tried_again_by_the_next(dataset: Counted) -> None:
    blocks = SourceBlocks()
    dataset.broken = True
    with pytest.raises(OSError, match="unreadable"):
        blocks.read(dataset, "a.tif", 1, BOXES[0])
    dataset.broken = False
    np.testing.assert_array_equal(blocks.read(dataset, "a.tif", 1, BOXES[0]), plain(dataset, BOXES[0]))


def test_low_blocks_are_read_in_piles(tmp_path: Path, write_band: Callable[..., str]) -> None:
    file = write_band(tmp_path / "low.tif", np.ones((400, 300), np.uint16), blockysize=1)
    with rasterio.open(file) as opened:
        counted = Counted(opened)
        assert SourceBlocks().read(counted, file, 1, Box(0, 0, 400, 300)).all()
    assert counted.num_reads == 2


def test_threads_wait_for_each_others_blocks(tmp_path: Path, write_band: Callable[..., str]) -> None:
    pixels = np.arange(128 * 128, dtype=np.uint16).reshape(128, 128)
    file = write_band(tmp_path / "many.tif", pixels, tiled=True, blockxsize=16, blockysize=16)
    blocks, reads = SourceBlocks(), []

    def read(top: int) -> bool:
        with rasterio.open(file) as opened:
            counted = Counted(opened)
            found = blocks.read(counted, file, 1, Box(top, 5, 40, 100))
            reads.append(counted.num_reads)
        return bool((found == pixels[top : top + 40, 5:105]).all())

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(read, range(0, 88, 4)))
    assert sum(reads) <= 8 * 8
