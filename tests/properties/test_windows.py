"""Windows cover every pixel, once or with exactly the overlap asked for; spatial splits never leak."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from unchoke.core.boxes import Box, plan_boxes, plan_starts
from unchoke.scenes.blocks import BUFFER, WindowPlace, assign_splits

lengths = st.integers(1, 60)
sizes = st.integers(2, 40)


@settings(max_examples=60, deadline=None)
@given(height=lengths, width=lengths, size=sizes)
def test_without_overlap_each_pixel_is_in_one_window(height: int, width: int, size: int) -> None:
    covered = np.zeros((height, width), np.int64)
    for box in plan_boxes(height, width, size_px=size):
        covered[box.top : box.bottom, box.left : box.right] += 1
    assert (covered == 1).all()


@settings(max_examples=60, deadline=None)
@given(height=lengths, width=lengths, size=sizes, data=st.data())
def test_overlap_covers_all_and_shares_what_was_asked(height: int, width: int, size: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, size - 1))
    covered = np.zeros((height, width), np.bool_)
    for box in plan_boxes(height, width, size_px=size, overlap_px=overlap):
        assert box.within(height, width) == box
        covered[box.top : box.bottom, box.left : box.right] = True
    assert covered.all()
    starts = plan_starts(height, size, overlap)
    assert all(second - first == size - overlap for first, second in pairwise(starts))
    assert starts[-1] < height


@settings(max_examples=60, deadline=None)
@given(height=lengths, width=lengths, size=sizes, data=st.data())
def test_padded_windows_are_the_smaller_ones_made_full(height: int, width: int, size: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, size - 1))
    smaller = plan_boxes(height, width, size_px=size, overlap_px=overlap)
    padded = plan_boxes(height, width, size_px=size, overlap_px=overlap, edges="padded")
    assert {(box.height, box.width) for box in padded} == {(size, size)}
    assert [box.within(height, width) for box in padded] == smaller


@st.composite
def placements(draw: st.DrawFn) -> tuple[list[WindowPlace], int]:
    """A few scenes on one map, some over the same ground, some of one group."""
    size = draw(st.integers(4, 16))
    overlap = draw(st.integers(0, size - 1)) // 2
    windows = []
    for number in range(draw(st.integers(1, 8))):
        height, width = draw(st.integers(1, 60)), draw(st.integers(1, 60))
        x, y = draw(st.integers(0, 4)) * 25, draw(st.integers(0, 4)) * 25
        bounds = (float(x), float(-y - height), float(x + width), float(-y))
        group = draw(st.sampled_from(["", "", "", "field"]))
        boxes = plan_boxes(height, width, size_px=size, overlap_px=overlap)
        windows += [WindowPlace(f"s{number}", box, group, height, width, bounds) for box in boxes]
    return windows, draw(st.integers(1, 40))


def on_map(window: WindowPlace) -> Box:
    assert window.bounds is not None
    left, top = int(window.bounds[0]), int(-window.bounds[3])
    return Box(top + window.box.top, left + window.box.left, window.box.height, window.box.width)


@settings(max_examples=60, deadline=None)
@given(placed=placements(), seed=st.integers(0, 5))
def test_no_ground_is_on_two_sides(placed: tuple[list[WindowPlace], int], seed: int) -> None:
    windows, block_px = placed
    sides = assign_splits(windows, block_px=block_px, seed=seed)
    assert set(sides) <= {"train", "val", "test", BUFFER}
    ground: dict[tuple[int, int], str] = {}
    for window, side in zip(windows, sides, strict=True):
        box = on_map(window)
        if side != BUFFER:
            for row in range(box.top, box.bottom):
                for column in range(box.left, box.right):
                    assert ground.setdefault((row, column), side) == side


@settings(max_examples=40, deadline=None)
@given(placed=placements(), seed=st.integers(0, 5), data=st.data())
def test_sides_do_not_depend_on_the_order(placed: tuple[list[WindowPlace], int], seed: int, data: st.DataObject) -> None:
    windows, block_px = placed
    order = data.draw(st.permutations(range(len(windows)))) if len(windows) < 60 else list(range(len(windows)))[::-1]
    sides = assign_splits(windows, block_px=block_px, seed=seed)
    turned = assign_splits([windows[number] for number in order], block_px=block_px, seed=seed)
    assert [sides[number] for number in order] == turned


@settings(max_examples=40, deadline=None)
@given(side=st.integers(3, 12), seed=st.integers(0, 50))
def test_every_side_gets_a_block_where_there_are_enough(side: int, seed: int) -> None:
    windows = [WindowPlace("a", box, "", side * 10, side * 10) for box in plan_boxes(side * 10, side * 10, size_px=10)]
    counts = Counter(assign_splits(windows, block_px=10, seed=seed))
    assert counts["train"] > counts["val"] > 0
    assert counts["train"] > counts["test"] > 0
    assert abs(counts["val"] - 0.15 * len(windows)) <= 1
