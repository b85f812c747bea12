"""Blocks that several strips need are decoded once, within a bound, and a failure is nobody else's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from rasterio.windows import Window

from unchoke.core.boxes import Box
from unchoke.scenes.scene_facts import SceneFacts
from unchoke.scenes.tiling import shared_blocks
from unchoke.scenes.tiling.shared_blocks import PixelBlock, SharedRows, SharedSource, SourceBlocks, plan_shared

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


def plain(dataset: Counted, box: Box) -> Any:
    return dataset.dataset.read(1, window=Window(box.left, box.top, box.width, box.height))


def test_windows_equal_rasterio_blocks_read_once(dataset: Counted) -> None:
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


MakeScene = Callable[..., SceneFacts]
UPPER, SHARED, LOWER = Box(0, 0, 10, 4), Box(10, 0, 6, 4), Box(16, 0, 9, 4)
PIECES = {("s", 0): (UPPER, SHARED), ("s", 1): (SHARED, LOWER)}


def pixels(box: Box, *, value: int = 1) -> PixelBlock:
    return PixelBlock(np.full((1, box.height, box.width), value), np.ones((box.height, box.width), np.bool_), None)


class Reader:
    """Reads pieces and remembers which."""

    def __init__(self) -> None:
        self.boxes: list[Box] = []

    def __call__(self, box: Box) -> PixelBlock:
        self.boxes.append(box)
        return pixels(box)


def take(shared: SharedRows, number: int, read: Callable[[Box], PixelBlock]) -> list[Box]:
    used: list[Box] = []
    shared.take("s", shared.pieces("s", number), read, lambda box, _: used.append(box))
    return used


def test_aligned_strips_are_one_piece_each(make_scene: MakeScene) -> None:
    facts = make_scene((1, 64, 48), tiled=True, blockxsize=16, blockysize=16)
    boxes = [Box(0, 0, 32, 48), Box(32, 0, 32, 48)]
    assert plan_shared(facts, boxes) == [(boxes[0],), (boxes[1],)]


def test_shared_block_row_is_its_own_piece(make_scene: MakeScene) -> None:
    facts = make_scene((1, 64, 48), tiled=True, blockxsize=16, blockysize=16)
    upper, lower = plan_shared(facts, [Box(0, 0, 40, 48), Box(40, 0, 24, 48)])
    assert upper == (Box(0, 0, 32, 48), Box(32, 0, 16, 48))
    assert lower == (Box(32, 0, 16, 48), Box(48, 0, 16, 48))


def test_columns_are_shared_as_well(make_scene: MakeScene) -> None:
    facts = make_scene((1, 32, 64), tiled=True, blockxsize=16, blockysize=16)
    left, right = plan_shared(facts, [Box(0, 0, 32, 24), Box(0, 24, 32, 40)])
    assert set(left) & set(right) == {Box(0, 16, 32, 16)}


def test_pieces_too_large_to_wait_in_memory_are_not_shared(make_scene: MakeScene) -> None:
    facts = make_scene((1, 64, 48), tiled=True, blockxsize=16, blockysize=16)
    boxes = [Box(0, 0, 40, 48), Box(40, 0, 24, 48)]
    assert plan_shared(facts, boxes, limit_bytes=16 * 48 * 6 - 1) == [(boxes[0],), (boxes[1],)]


def test_shared_block_read_by_first_freed_by_last() -> None:
    shared, read = SharedRows(PIECES), Reader()
    assert sorted(take(shared, 0, read)) == [UPPER, SHARED]
    assert sorted(take(shared, 1, read)) == [SHARED, LOWER]
    assert sorted(read.boxes) == [UPPER, SHARED, LOWER]
    assert not shared._kept


def test_a_thread_waits_for_a_piece_that_another_is_reading() -> None:
    shared, begun, go_on = SharedRows(PIECES), threading.Event(), threading.Event()
    seen: list[int] = []

    def slow(box: Box) -> PixelBlock:
        begun.set()
        go_on.wait(10)
        return pixels(box, value=7)

    def quick(box: Box) -> PixelBlock:
        go_on.set()
        return pixels(box, value=3)

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(take, shared, 0, slow)
        begun.wait(10)
        second = threads.submit(
            shared.take, "s", shared.pieces("s", 1), quick, lambda _, found: seen.append(int(found.bands.max()))
        )
        first.result(10)
        second.result(10)
    assert seen == [3, 7]


def test_a_failed_reader_fails_alone() -> None:
    shared, read = SharedRows(PIECES), Reader()

    def broken(box: Box) -> PixelBlock:
        raise OSError("unreadable")

    with pytest.raises(OSError, match="unreadable"):
        take(shared, 0, broken)
    assert sorted(take(shared, 1, read)) == [SHARED, LOWER]
    assert sorted(take(shared, 0, read)) == [UPPER, SHARED]


def test_waiting_blocks_beyond_limit_reread() -> None:
    shared, read = SharedRows(PIECES, limit_bytes=10), Reader()
    take(shared, 0, read)
    assert not shared._kept
    take(shared, 1, read)
    assert read.boxes.count(SHARED) == 2


def test_a_strip_that_was_not_announced_has_no_pieces() -> None:
    assert SharedRows(PIECES).pieces("s", 9) == ()
