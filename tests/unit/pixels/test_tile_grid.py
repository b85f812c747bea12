"""One picture as several tiles: where they lie, in which order, and what they show."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import refused
from unchoke.pixels.image import DecodeError
from unchoke.pixels.resize import Preprocess
from unchoke.pixels.tile_grid import TilePlan, Window, cut_tiles, edges, parse_tiles, plan_tiles, plan_view, tile_windows

INPUT = Preprocess(32, 0.9, "center", "bilinear", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
SIDES = st.integers(min_value=1, max_value=3000)


def test_a_plan_says_how_many_tiles_it_has_and_in_words() -> None:
    plan = TilePlan(2, 2, 3)
    assert (plan.num_tiles, plan.is_whole, plan.text) == (12, False, "2×(2×3)")
    assert (TilePlan().num_tiles, TilePlan().is_whole) == (1, True)
    assert plan.to_dict() == {"streams": 2, "rows": 2, "cols": 3}


def test_a_grid_is_written_as_rows_by_columns() -> None:
    assert parse_tiles("2x3") == (2, 3)
    assert parse_tiles(" 1×1 ") == (1, 1)
    assert plan_tiles(streams=2, tiles="4x4") == TilePlan(2, 4, 4)


@pytest.mark.parametrize("text", ["", "2", "2x", "0x2", "2x0", "axb", "2x2x2", "-1x2", "1.5x2"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with refused("bad-tiles", repr(text), "--tiles 2x2"):
        parse_tiles(text)


def test_a_plan_without_tiles_is_refused() -> None:
    with refused("bad-tiles", "0×"):
        TilePlan(streams=0)


def test_uneven_parts_differ_by_one_pixel() -> None:
    assert edges(10, 4) == [(0, 2), (2, 5), (5, 7), (7, 10)]
    assert edges(3, 3) == [(0, 1), (1, 2), (2, 3)]
    with pytest.raises(ValueError, match=r"2 .* 3"):
        edges(2, 3)


def test_tiles_come_stream_by_stream_then_row_then_column() -> None:
    assert tile_windows(TilePlan(2, 2, 1), 10, 21) == [
        Window(0, 0, 5, 10),
        Window(5, 0, 5, 10),
        Window(0, 10, 5, 11),
        Window(5, 10, 5, 11),
    ]
    assert [window.left for window in tile_windows(TilePlan(1, 1, 3), 4, 9)] == [0, 3, 6]


def test_each_tile_shows_its_part_of_the_picture_whole() -> None:
    colours = np.arange(8, dtype=np.uint8).reshape(2, 4) * 30
    image = colours.repeat(50, axis=0).repeat(25, axis=1)[..., None].repeat(3, axis=2)  # 100 × 100, a 2 × 4 chequer of greys
    tiles = cut_tiles(image, TilePlan(2, 2, 2), INPUT)
    assert tiles.shape == (8, 32, 32, 3)
    greys = [sorted(set(tile.ravel().tolist())) for tile in tiles]
    assert greys == [[0], [30], [120], [150], [60], [90], [180], [210]]


def test_the_whole_picture_is_squeezed_not_cropped() -> None:
    image = np.zeros((40, 80, 3), np.uint8)
    image[:, -10:] = 255
    tile = cut_tiles(image, TilePlan(), INPUT)[0]
    assert tile[:, -1].min() > 200
    assert tile[:, 0].max() == 0


def test_fewer_pixels_than_tiles_refused() -> None:
    with pytest.raises(DecodeError, match=r"^unreadable: 3×5 "):
        cut_tiles(np.zeros((5, 3, 3), np.uint8), TilePlan(2, 1, 2), INPUT)


@given(st.text(max_size=20), st.integers(1, 50), SIDES, SIDES)
def test_a_view_lies_inside_the_picture(sample_id: str, number: int, height: int, width: int) -> None:
    window = plan_view(sample_id, number, height=height, width=width)
    assert window.top >= 0 and window.top + window.height <= height and window.height >= 1
    assert window.left >= 0 and window.left + window.width <= width and window.width >= 1


def test_views_repeat_and_differ() -> None:
    again = [plan_view("a/b.jpg", 1, height=300, width=400) for _ in range(2)]
    assert again[0] == again[1]
    assert len({plan_view("a/b.jpg", number, height=300, width=400) for number in range(1, 9)}) == 8
    assert plan_view("a/c.jpg", 1, height=300, width=400) != again[0]


def test_view_zero_is_the_whole_picture() -> None:
    assert plan_view("x", 0, height=30, width=40) == Window(0, 0, 30, 40)
