"""Rows of the pixel cache: evaluation gets its exact pixels back, training the whole picture."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unchoke.pixels.augment_batch import read_frames
from unchoke.pixels.canvas import Canvas, plan_canvas
from unchoke.pixels.image import DecodeError
from unchoke.pixels.resize import Preprocess, fit_to_input, resize_short_side
from unchoke.pixels.tile_grid import TilePlan, cut_tiles

PREPROCESS = Preprocess(32, 0.875, "center", "bicubic", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
WHOLE = TilePlan()


def photo(width: int, height: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


@settings(max_examples=60, deadline=None)
@given(
    width=st.integers(1, 150),
    height=st.integers(1, 150),
    size_px=st.integers(3, 40),
    crop_share=st.sampled_from([0.8, 0.875, 0.95, 1.0]),
    ratio=st.sampled_from([1.0, 4 / 3, 2.0]),
)
def test_evaluation_pixels_equal_transform(width: int, height: int, size_px: int, crop_share: float, ratio: float) -> None:
    preprocess = replace(PREPROCESS, size_px=size_px, crop_share=crop_share)
    canvas = plan_canvas(WHOLE, preprocess, [(round(300 * ratio), 300)])
    image = photo(width, height)
    row = canvas.draw(image)
    assert row.shape == (*canvas.row_shape, 3)
    assert np.array_equal(canvas.inputs(row[None])[0, 0], fit_to_input(image, preprocess))


@pytest.mark.parametrize(("width", "height"), [(80, 60), (60, 80), (50, 50), (300, 60), (60, 300)])
def test_training_row_holds_whole_picture(width: int, height: int) -> None:
    canvas = plan_canvas(WHOLE, PREPROCESS, [(400, 300)])
    row = torch.from_numpy(canvas.draw(photo(width, height)).reshape(1, *canvas.raw_shape))
    pixels, frames = read_frames(row)
    resized = resize_short_side(photo(width, height), PREPROCESS.resize_px, interpolation="bicubic")
    assert bool(frames.turned[0]) == (height > width)
    shown = pixels[0, 0].transpose(0, 1) if frames.turned[0] else pixels[0, 0]
    high, wide = int(frames.heights[0]), int(frames.widths[0])
    assert (high, wide) == (min(resized.shape[0], canvas.long_px), min(resized.shape[1], canvas.long_px))
    top, left = round((resized.shape[0] - high) / 2), round((resized.shape[1] - wide) / 2)
    assert np.array_equal(shown[:high, :wide].numpy(), resized[top : top + high, left : left + wide])


def test_tiles_lie_in_a_row_as_they_are_cut() -> None:
    plan = TilePlan(streams=2, rows=2, cols=1)
    canvas = plan_canvas(plan, PREPROCESS, [(90, 50)])
    images = [photo(90, 50, seed) for seed in range(3)]
    rows = np.stack([canvas.draw(image) for image in images])
    assert canvas.row_shape == (4 * 32, 32)
    assert canvas.raw_shape == canvas.input_shape == (4, 32, 32, 3)
    assert np.array_equal(canvas.inputs(rows), np.stack([cut_tiles(image, plan, PREPROCESS) for image in images]))


def test_a_picture_too_small_for_its_tiles_is_refused() -> None:
    with pytest.raises(DecodeError, match=r"^unreadable: 3×9 "):
        plan_canvas(TilePlan(2, 2, 2), PREPROCESS, []).draw(photo(3, 9))


def test_unusual_evaluation_gives_row_itself() -> None:
    squashed = replace(PREPROCESS, crop_mode="squash")
    canvas = plan_canvas(WHOLE, squashed, [(80, 60)])
    image = photo(80, 60)
    assert canvas.long_px == 0
    assert np.array_equal(canvas.inputs(canvas.draw(image)[None])[0, 0], fit_to_input(image, squashed))


@pytest.mark.parametrize(
    ("sizes", "long_px"),
    [
        ([(256, 256)] * 3, 36),
        ([(600, 450)] * 3, 48),
        ([(450, 600), (600, 451)], 48),
        ([(300, 200), (100, 100)], 54),
        ([(1920, 1080)], 64),
        ([(9000, 100)], 72),
        ([(100, 100)] * 99 + [(9000, 100)], 36),
        ([(0, 0)], 36),
        ([], 36),
    ],
)
def test_a_row_is_as_long_as_nearly_all_pictures_need(sizes: list[tuple[int, int]], long_px: int) -> None:
    assert plan_canvas(WHOLE, PREPROCESS, sizes).long_px == long_px


def test_description_changes_with_pixels_only() -> None:
    canvas = Canvas(WHOLE, PREPROCESS, 48)
    assert canvas.to_dict() == Canvas(WHOLE, replace(PREPROCESS, mean=(0.1, 0.2, 0.3)), 48).to_dict()
    others = [
        Canvas(WHOLE, PREPROCESS, 54),
        Canvas(TilePlan(2), PREPROCESS),
        Canvas(WHOLE, replace(PREPROCESS, interpolation="bilinear"), 48),
    ]
    assert all(other.to_dict() != canvas.to_dict() for other in others)
