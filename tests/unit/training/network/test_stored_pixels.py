"""Decoded pictures as a plain value: what it draws, and what of it travels to another process."""

from __future__ import annotations

import os
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unchoke.core.choices import Choice
from unchoke.core.fingerprint import digest_file
from unchoke.photos.pixels.canvas import Canvas
from unchoke.photos.pixels.image import DecodeError
from unchoke.photos.pixels.resize import Preprocess
from unchoke.photos.pixels.tile_grid import TilePlan
from unchoke.training.network.stored_pixels import StoredPixels, pixel_recipe

PREPROCESS = Preprocess(32, 0.875, "center", "bicubic", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
CANVAS = Canvas(TilePlan(), PREPROCESS, 48)


def photo(file: Path, seed: int) -> None:
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (50, 60, 3), np.uint8)).save(file)


@pytest.fixture
def stored(tmp_path: Path) -> StoredPixels:
    files = [tmp_path / f"{name}.png" for name in "abc"]
    for seed, file in enumerate(files):
        photo(file, seed)
    height, width = CANVAS.row_shape
    cache = Choice("cache", "ram", "a test", {"capacity_rows": 3, "bytes": 3 * height * width * 3})
    return StoredPixels(
        tuple("abc"), tuple(str(file) for file in files), tuple(digest_file(file) for file in files), CANVAS, cache, tmp_path
    )


def test_samples_are_read_in_the_order_asked_for(stored: StoredPixels) -> None:
    source = stored.open(["c", "a"], seed=0)
    raw = source.read(np.array([0, 1]), None)
    assert np.array_equal(raw.numpy(), CANVAS.inputs(np.stack([stored.draw(2), stored.draw(0)])))


def test_a_file_with_other_content_than_planned_is_refused(stored: StoredPixels) -> None:
    photo(Path(stored.paths[1]), 9)
    with pytest.raises(DecodeError, match="changed"):
        stored.draw(1)
    assert replace(stored, contents=("", "", "")).draw(1).shape == (*CANVAS.row_shape, 3)


def test_pictures_in_memory_stay_behind_when_the_value_travels(stored: StoredPixels) -> None:
    here = replace(stored, filled=stored.open_cache())
    there = pickle.loads(pickle.dumps(here))
    assert there.filled is None
    assert here.filled is not None
    assert there.canvas == here.canvas
    one, other = here.open(["b"], 0), there.open(["b"], 0)
    assert np.array_equal(one.read(np.array([0]), None), other.read(np.array([0]), None))
    assert (stored.ram_bytes, replace(stored, cache=replace(stored.cache, value="disk")).ram_bytes) == (3 * 37 * 48 * 3, 0)


def test_without_a_known_content_size_and_time_tell_whether_a_file_changed(stored: StoredPixels) -> None:
    on_disk = replace(stored, contents=("", "", ""), cache=replace(stored.cache, value="disk"), folder=stored.folder / "pixels")
    with on_disk.open_cache() as cache:
        cache.rows(range(3))
    os.utime(stored.paths[0], ns=(1, 1))
    Path(stored.paths[2]).unlink()
    with on_disk.open_cache() as cache:
        assert cache.missing().tolist() == [0, 2]
        with pytest.raises(DecodeError, match="gone"):
            cache.row(2)


def test_the_recipe_changes_with_what_is_drawn() -> None:
    assert pixel_recipe(CANVAS) == pixel_recipe(Canvas(TilePlan(), PREPROCESS, 48))
    assert pixel_recipe(CANVAS) != pixel_recipe(Canvas(TilePlan(), PREPROCESS, 54))
