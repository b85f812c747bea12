"""Tiles cover every pixel of a picture exactly once, whatever its size and the grid."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from unchoke.pixels.tile_grid import TilePlan, edges, tile_windows

PLANS = st.builds(TilePlan, st.integers(1, 4), st.integers(1, 5), st.integers(1, 5))


@given(length_px=st.integers(1, 500), parts=st.integers(1, 40))
def test_edges_are_neighbours_of_nearly_one_length(length_px: int, parts: int) -> None:
    if parts > length_px:
        return
    found = edges(length_px, parts)
    assert (found[0][0], found[-1][1], len(found)) == (0, length_px, parts)
    assert all(one[1] == two[0] for one, two in pairwise(found))
    lengths = [stop - start for start, stop in found]
    assert min(lengths) >= 1
    assert max(lengths) - min(lengths) <= 1


@given(plan=PLANS, extra_high=st.integers(0, 60), extra_wide=st.integers(0, 60))
@settings(max_examples=200)
def test_every_pixel_lies_in_exactly_one_tile(plan: TilePlan, extra_high: int, extra_wide: int) -> None:
    height, width = plan.rows + extra_high, plan.streams * plan.cols + extra_wide
    windows = tile_windows(plan, height, width)
    assert len(windows) == plan.num_tiles
    count = np.zeros((height, width), np.int64)
    for window in windows:
        assert min(window.height, window.width) >= 1
        count[window.top : window.top + window.height, window.left : window.left + window.width] += 1
    assert (count == 1).all()


@given(plan=PLANS, height=st.integers(5, 80), width=st.integers(20, 80))
@settings(max_examples=200)
def test_the_order_is_stream_then_row_then_column(plan: TilePlan, height: int, width: int) -> None:
    windows = tile_windows(plan, height, width)
    grid = np.array([(window.left, window.top) for window in windows]).reshape(plan.streams, plan.rows, plan.cols, 2)
    assert (np.diff(grid[..., 0], axis=0) > 0).all()
    assert (np.diff(grid[..., 1], axis=1) > 0).all()
    assert (np.diff(grid[..., 0], axis=2) > 0).all()
    assert (grid[:, 0, :, 1] == 0).all()
