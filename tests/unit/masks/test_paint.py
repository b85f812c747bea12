"""Masks and bands as pictures: which bands are shown, colours that are told apart, errors that stand out."""

from __future__ import annotations

import numpy as np
import pytest

from unchoke.masks.paint import (
    BACKGROUND,
    IGNORED,
    as_hex,
    choose_rgb,
    class_colours,
    paint_bands,
    paint_error,
    paint_mask,
    paint_overlay,
)


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["B2", "B3", "B4", "B5"], (2, 1, 0)),
        (["B01", "B02", "B03", "B04", "B8A"], (3, 2, 1)),
        (["l8_B4", "l8_B10", "l8_B3", "l8_B2"], (0, 2, 3)),
        (["blue", "Green", "RED", "nir"], (2, 1, 0)),
        (["b1", "b2", "b3", "b4", "b5", "b6"], (3, 2, 1)),
        (["B8A", "B11", "B12"], (0, 1, 2)),
        (["VV", "VH"], None),
    ],
)
def test_red_green_and_blue_are_found_by_name(names: list[str], chosen: tuple[int, int, int] | None) -> None:
    assert choose_rgb(names) == chosen


def test_bands_are_stretched_over_their_valid_pixels_alone() -> None:
    bands = np.tile(np.linspace(100, 200, 50, dtype=np.float32), (2, 50, 1))
    bands[:, :10] = 30_000
    valid = np.ones((50, 50), bool)
    valid[:10] = False
    picture = paint_bands(bands, ["VV", "VH"], valid)
    assert picture.shape == (50, 50, 3)
    assert (picture[10:, 0].max(), picture[10:, -1].min()) == (0, 255)
    assert (picture[10:, :, 0] == picture[10:, :, 2]).all()
    assert len(np.unique(picture[:10].reshape(-1, 3), axis=0)) == 2


def test_flat_band_is_flat_picture() -> None:
    flat = np.full((3, 8, 8), 7, np.float32)
    assert (paint_bands(flat, ["a", "b", "c"], np.ones((8, 8), bool)) == 128).all()
    assert paint_bands(np.full((3, 8, 8), np.nan, np.float32), ["a", "b", "c"], np.zeros((8, 8), bool)).max() < 255


def test_each_pixel_of_a_mask_has_the_colour_of_its_class() -> None:
    mask = np.array([[0, 1], [2, IGNORED]], np.uint8)
    painted = paint_mask(mask, 3)
    colours = [tuple(map(int, colour)) for colour in painted.reshape(-1, 3)]
    assert colours[:3] == class_colours(3)
    assert colours[3] not in class_colours(3)


def test_overlay_keeps_first_class_and_unknown() -> None:
    picture = np.full((1, 3, 3), 100, np.uint8)
    laid = paint_overlay(picture, np.array([[0, 1, IGNORED]], np.uint8), 2)
    assert (laid[0, [0, 2]] == 100).all()
    assert (laid[0, 1] != 100).any()


def test_errors_coloured_by_true_class() -> None:
    picture = np.zeros((1, 4, 3), np.uint8)
    truth = np.array([[1, 1, 0, IGNORED]], np.uint8)
    prediction = np.array([[1, 0, 1, 1]], np.uint8)
    right, missed, invented, unlabelled = paint_error(picture, prediction, truth, 2)[0]
    assert right.min() >= 160
    assert tuple(missed) == class_colours(2)[1]
    assert invented.max() < 30
    assert len({tuple(one) for one in (right, missed, invented, unlabelled)}) == 4


def test_class_colours_fixed_and_distinct() -> None:
    colours = class_colours(255)
    assert (colours[0], as_hex(colours[1])) == (BACKGROUND, "#0072b2")
    assert colours[:4] == class_colours(4)
    assert len(set(colours[:60])) == 60
    assert class_colours(1) == [BACKGROUND]
