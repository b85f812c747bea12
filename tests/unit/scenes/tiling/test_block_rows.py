"""Blocks that neighbours share are read once and handed on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from unchoke.core.boxes import Box
from unchoke.scenes.scene_facts import SceneFacts
from unchoke.scenes.tiling.block_rows import Pixels, SharedRows, plan_shared

MakeScene = Callable[..., SceneFacts]
UPPER, SHARED, LOWER = Box(0, 0, 10, 4), Box(10, 0, 6, 4), Box(16, 0, 9, 4)
PIECES = {("s", 0): (UPPER, SHARED), ("s", 1): (SHARED, LOWER)}


def pixels(box: Box, *, value: int = 1) -> Pixels:
    return Pixels(np.full((1, box.height, box.width), value), np.ones((box.height, box.width), np.bool_), None)


class Reader:
    """Reads pieces and remembers which."""

    def __init__(self) -> None:
        self.boxes: list[Box] = []

    def __call__(self, box: Box) -> Pixels:
        self.boxes.append(box)
        return pixels(box)


def take(shared: SharedRows, number: int, read: Callable[[Box], Pixels]) -> list[Box]:
    used: list[Box] = []
    shared.take("s", shared.pieces("s", number), read, lambda box, _: used.append(box))
    return used


def test_aligned_strips_are_one_piece_each(make_scene: MakeScene) -> None:
    facts = make_scene((1, 64, 48), tiled=True, blockxsize=16, blockysize=16)
    boxes = [Box(0, 0, 32, 48), Box(32, 0, 32, 48)]
    assert plan_shared(facts, boxes) == [(boxes[0],), (boxes[1],)]


def test_a_row_of_blocks_that_two_strips_need_is_a_piece_of_its_own(make_scene: MakeScene) -> None:
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


def test_what_two_need_is_read_by_the_first_and_let_go_by_the_last() -> None:
    shared, read = SharedRows(PIECES), Reader()
    assert sorted(take(shared, 0, read)) == [UPPER, SHARED]
    assert sorted(take(shared, 1, read)) == [SHARED, LOWER]
    assert sorted(read.boxes) == [UPPER, SHARED, LOWER]
    assert not shared._kept


def test_a_thread_waits_for_a_piece_that_another_is_reading() -> None:
    shared, begun, go_on = SharedRows(PIECES), threading.Event(), threading.Event()
    seen: list[int] = []

    def slow(box: Box) -> Pixels:
        begun.set()
        go_on.wait(10)
        return pixels(box, value=7)

    def quick(box: Box) -> Pixels:
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

    def broken(box: Box) -> Pixels:
        raise OSError("unreadable")

    with pytest.raises(OSError, match="unreadable"):
        take(shared, 0, broken)
    assert sorted(take(shared, 1, read)) == [SHARED, LOWER]
    assert sorted(take(shared, 0, read)) == [UPPER, SHARED]


def test_beyond_the_limit_what_waits_is_let_go_and_read_again() -> None:
    shared, read = SharedRows(PIECES, limit_bytes=10), Reader()
    take(shared, 0, read)
    assert not shared._kept
    take(shared, 1, read)
    assert read.boxes.count(SHARED) == 2


def test_a_strip_that_was_not_announced_has_no_pieces() -> None:
    assert SharedRows(PIECES).pieces("s", 9) == ()
