"""What the loop is shown: the same numbers for a sample whatever its batch, and evaluation's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from errors import refused
from unchoke.core.choices import Choice
from unchoke.core.mixing import hash_ids
from unchoke.features.engines import FromPixels
from unchoke.pixels.augment_batch import SPECS
from unchoke.pixels.canvas import Canvas, plan_canvas
from unchoke.pixels.image import DecodeError, Pixels
from unchoke.pixels.pixel_cache import PictureFile, PixelCache, open_cache
from unchoke.pixels.resize import Preprocess, fit_to_input
from unchoke.pixels.tile_grid import TilePlan, cut_tiles
from unchoke.training.network.sources import ActivationSource, PixelSource

PREPROCESS = Preprocess(32, 0.875, "center", "bicubic", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
NUM = 12
IDS = [f"photo {number}" for number in range(NUM)]
SIZES = [(70 - 3 * number, 40 + 2 * number) for number in range(NUM)]
PHOTOS = [
    np.random.default_rng(number).integers(0, 256, (height, width, 3), np.uint8) for number, (width, height) in enumerate(SIZES)
]
ALL = np.arange(NUM)


class ArrayRows:
    """Activations (samples, views, *shape) in memory."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values.astype(np.float16)
        self.num_samples, self.num_views = values.shape[:2]
        self.row_shape: tuple[int, ...] = values.shape[2:]

    def rows(self, positions: np.ndarray, views: np.ndarray | int = 0) -> np.ndarray:
        return self.values[positions, views]


def numbered(views: int) -> ArrayRows:
    """Every value says which sample and view it is of."""
    values = np.arange(NUM)[:, None] * 10 + np.arange(views)
    return ArrayRows(np.broadcast_to(values[..., None, None], (NUM, views, 2, 3)))


def opened(canvas: Canvas, *, rows: int = NUM, read: Callable[[int], Pixels] | None = None) -> PixelCache:
    height, width = canvas.row_shape
    plan = Choice("cache", "ram", "a test", {"capacity_rows": rows})
    sources = [PictureFile(name, 0, 0, name) for name in IDS]
    draw = read or (lambda position: canvas.draw(PHOTOS[position]))
    return open_cache(plan, sources, folder=Path("unused"), height=height, width=width, read=draw)


def pixel_source(tiles: TilePlan, name: str, *, seed: int = 0, rows: int = NUM) -> PixelSource:
    canvas = plan_canvas(tiles, PREPROCESS, SIZES)
    return PixelSource(opened(canvas, rows=rows), canvas, IDS, seed=seed, augment=SPECS[name])


def shown(source: PixelSource | ActivationSource, positions: np.ndarray | list[int], epoch: int | None) -> torch.Tensor:
    wanted = np.asarray(positions, np.int64)
    return source.prepare(source.read(wanted, epoch), wanted, epoch)


def test_activations_are_the_stores_rows_as_float32() -> None:
    source = ActivationSource(numbered(1), hash_ids(IDS), seed=0)
    found = shown(source, [5, 2, 5], epoch=3)
    assert (source.sample_shape, source.sample_bytes) == ((2, 3), 12)
    assert found.dtype == torch.float32
    assert found[:, 0, 0].tolist() == [50, 20, 50]


def test_one_cached_view_per_epoch_plain_in_eval() -> None:
    source = ActivationSource(numbered(4), hash_ids(IDS), seed=7)
    views = np.stack([(shown(source, ALL, epoch)[:, 0, 0] - 10 * torch.arange(NUM)).numpy() for epoch in range(40)])
    assert np.array_equal(np.unique(views), [0, 1, 2, 3])
    assert all(len(np.unique(views[:, sample])) == 4 for sample in range(NUM))
    assert len(np.unique(views, axis=0)) > 30
    assert shown(source, ALL, None)[:, 0, 0].tolist() == [10 * sample for sample in range(NUM)]
    assert torch.equal(shown(source, ALL[::-1], 4), shown(source, ALL, 4).flip(0))


def test_another_seed_shows_other_views() -> None:
    store = numbered(4)
    one, other = (ActivationSource(store, hash_ids(IDS), seed=seed) for seed in (1, 2))
    assert not torch.equal(shown(one, ALL, 0), shown(other, ALL, 0))


@pytest.mark.parametrize("name", ["none", "light", "strong"])
def test_evaluation_sees_exactly_what_the_frozen_path_sees(name: str) -> None:
    frozen = FromPixels(torch.nn.Identity(), PREPROCESS)
    expected = frozen(torch.from_numpy(np.stack([fit_to_input(photo, PREPROCESS) for photo in PHOTOS])))
    source = pixel_source(TilePlan(), name)
    assert source.sample_shape == (1, 3, 32, 32)
    assert torch.equal(shown(source, ALL, None)[:, 0], expected)
    assert torch.equal(shown(source, ALL, 3)[:, 0], expected) == (name == "none")


def test_tiles_are_shown_as_they_are_cut() -> None:
    plan = TilePlan(streams=2, rows=1, cols=2)
    frozen = FromPixels(torch.nn.Identity(), PREPROCESS)
    tiles = torch.from_numpy(np.stack([cut_tiles(photo, plan, PREPROCESS) for photo in PHOTOS]))
    source = pixel_source(plan, "light")
    assert source.sample_shape == (4, 3, 32, 32)
    assert torch.equal(shown(source, ALL, None), frozen(tiles.flatten(0, 1)).view(NUM, 4, 3, 32, 32))
    assert shown(source, ALL, 0).shape == (NUM, 4, 3, 32, 32)


@settings(max_examples=20, deadline=None)
@given(
    positions=st.lists(st.integers(0, NUM - 1), min_size=1, max_size=NUM),
    tiles=st.sampled_from([TilePlan(), TilePlan(2, 2, 1)]),
    name=st.sampled_from(["light", "strong"]),
    epoch=st.one_of(st.none(), st.integers(0, 5)),
)
def test_a_sample_is_the_same_alone_and_in_any_batch(positions: list[int], tiles: TilePlan, name: str, epoch: int | None) -> None:
    source = pixel_source(tiles, name)
    alone = torch.cat([shown(source, [position], epoch) for position in positions])
    assert torch.equal(shown(source, positions, epoch), alone)


def test_crops_follow_epoch_and_seed() -> None:
    source, again = pixel_source(TilePlan(), "light"), pixel_source(TilePlan(), "light")
    first = shown(source, ALL, 0)
    assert torch.equal(first, shown(again, ALL, 0))
    assert not torch.equal(first, shown(source, ALL, 1))
    assert not torch.equal(first, shown(pixel_source(TilePlan(), "light", seed=1), ALL, 0))


def test_partial_cache_shows_the_same() -> None:
    whole, part = pixel_source(TilePlan(), "strong"), pixel_source(TilePlan(), "strong", rows=3)
    for epoch in (0, None, 1):
        assert torch.equal(shown(whole, ALL, epoch), shown(part, ALL, epoch))


def test_cache_order_does_not_matter() -> None:
    canvas = plan_canvas(TilePlan(), PREPROCESS, SIZES)
    rows = np.array([4, 9, 2])
    some = PixelSource(opened(canvas), canvas, [IDS[row] for row in rows], seed=0, augment=SPECS["light"], rows=rows)
    assert torch.equal(shown(some, [0, 1, 2], 5), shown(pixel_source(TilePlan(), "light"), rows, 5))


def test_a_picture_that_fails_in_training_is_named() -> None:
    canvas = plan_canvas(TilePlan(), PREPROCESS, SIZES)

    def read(position: int) -> Pixels:
        if position == 7:
            raise DecodeError("changed", "the file changed")
        return canvas.draw(PHOTOS[position])

    source = PixelSource(opened(canvas, read=read), canvas, IDS, seed=0, augment=SPECS["light"])
    with refused("unreadable-photos", "photo 7", "changed: the file changed"):
        source.read(ALL, 0)
