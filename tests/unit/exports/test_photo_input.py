"""The resize inside exported models gives the pixels of the resize that training used."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unchoke.exports.photo_input import PhotoInput
from unchoke.pixels.resize import Preprocess, fit_to_input
from unchoke.pixels.tile_grid import TilePlan, cut_tiles

SIZES = [(33, 33), (33, 47), (72, 96), (257, 256), (64, 64), (375, 500), (500, 333), (33, 700), (1500, 2100), (6000, 33)]


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(height * width).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", SIZES)
def test_a_whole_picture_becomes_the_same_pixels(size: tuple[int, int], interpolation: str) -> None:
    preprocess = Preprocess(64, 0.875, "center", interpolation, (0, 0, 0), (1, 1, 1))
    image = noise(*size)
    shown = PhotoInput(preprocess, TilePlan())(torch.from_numpy(image)[None])[0].permute(1, 2, 0).numpy()
    assert np.array_equal(shown, fit_to_input(image, preprocess))


def test_tiles_become_the_same_pixels() -> None:
    preprocess, plan = Preprocess(64, 0.875, "center", "bicubic", (0, 0, 0), (1, 1, 1)), TilePlan(2, 2, 1)
    image = noise(101, 133)
    shown = PhotoInput(preprocess, plan)(torch.from_numpy(image)[None]).permute(0, 2, 3, 1).numpy()
    assert np.array_equal(shown, cut_tiles(image, plan, preprocess))


def test_photos_of_a_batch_do_not_mix() -> None:
    preprocess = Preprocess(64, 0.9, "center", "bicubic", (0, 0, 0), (1, 1, 1))
    batch = torch.from_numpy(np.stack([noise(80, 90), noise(90, 80).transpose(1, 0, 2)]))
    shown = PhotoInput(preprocess, TilePlan())
    assert torch.equal(shown(batch)[1:], shown(batch[1:]))
