"""Rows that lie on the card show what the source they came from shows, bit for bit; the processor stands in for a card."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from small_training import CPU, config, small
from unchoke.core.choices import Choice
from unchoke.core.clock import Clock, Loading
from unchoke.core.events import Chosen, Event
from unchoke.pixels.augment_batch import SPECS
from unchoke.pixels.canvas import plan_canvas
from unchoke.pixels.pixel_cache import PictureFile, open_cache
from unchoke.pixels.resize import Preprocess
from unchoke.pixels.tile_grid import TilePlan
from unchoke.training.network.feeding import feed
from unchoke.training.network.gpu_rows import GpuRows, fill_gpu, place_rows, row_bytes, rows_in_use
from unchoke.training.network.loop_config import LoopContext
from unchoke.training.network.sources import DrawnSource, NumberedSource, PixelSource

PREPROCESS = Preprocess(32, 0.875, "center", "bicubic", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
NUM = 12
IDS = [f"photo {number}" for number in range(NUM)]
SIZES = [(76 - 5 * number, 40 + 2 * number) for number in range(NUM)]  # wide ones, then high ones


def pixels(name: str, tiles: TilePlan = TilePlan()) -> PixelSource:  # noqa: B008 (frozen)
    random = np.random.default_rng(0)
    photos = [random.integers(0, 256, (height, width, 3), np.uint8) for width, height in SIZES]
    canvas = plan_canvas(tiles, PREPROCESS, SIZES)
    height, width = canvas.row_shape
    cache = open_cache(
        Choice("cache", "ram", "a test", {"capacity_rows": NUM}),
        [PictureFile(name, 0, 0, name) for name in IDS],
        folder=Path("unused"),
        height=height,
        width=width,
        read=lambda position: canvas.draw(photos[position]),
    )
    return PixelSource(cache, canvas, IDS, seed=3, augment=SPECS[name])


def on_gpu(source: NumberedSource, numbers: np.ndarray, *, workers: int = 0) -> GpuRows:
    return fill_gpu(source, numbers, CPU, workers=workers, pin=False, loading=Loading())


def shown(source: DrawnSource, positions: np.ndarray, epoch: int | None) -> torch.Tensor:
    (fed,) = feed(source, [positions], epoch=epoch, device=CPU, workers=0)
    return fed.part(0, len(positions))


@pytest.mark.parametrize(
    ("name", "tiles", "epoch"),
    [("none", TilePlan(), 0), ("light", TilePlan(), None), ("strong", TilePlan(), 4), ("strong", TilePlan(2, 1, 2), 0)],
)
def test_pictures_on_gpu_shown_as_read(name: str, tiles: TilePlan, epoch: int | None) -> None:
    source = pixels(name, tiles)
    card = on_gpu(source, np.arange(NUM))
    positions = np.array([7, 0, 11, 3, 3])
    assert card.sample_shape == source.sample_shape
    assert torch.equal(shown(card, positions, epoch), shown(source, positions, epoch))


@pytest.mark.parametrize("workers", [0, 2])
def test_gpu_rows_in_use_only_views_per_epoch(workers: int) -> None:
    made = small(views=4)
    numbers = rows_in_use(made.source, made.problem, epochs=2)
    card = on_gpu(made.source, numbers, workers=workers)
    train, val = made.problem.positions("train"), made.problem.positions("val")
    assert len(card.rows) < 2 * len(train) + len(val) + len(made.problem.positions("test")) + 1
    for positions, epoch in ((train, 0), (train[::-1], 1), (val, None)):
        assert torch.equal(shown(card, positions, epoch), shown(made.source, positions, epoch))


def test_gpu_batch_is_one_number_per_sample() -> None:
    made = small()
    card = on_gpu(made.source, rows_in_use(made.source, made.problem, epochs=1))
    assert card.read(np.array([5, 2]), 0).shape == (2,)
    assert card.sample_bytes == 8


@pytest.mark.parametrize(("more", "place"), [(0, "card"), (-1, "memory")])
def test_gpu_rows_take_at_most_half_of_free(more: int, place: str) -> None:
    made, heard = small(), list[Event]()
    need = len(rows_in_use(made.source, made.problem, epochs=3)) * row_bytes(made.source)
    where = LoopContext(CPU, None, heard.append, limit_bytes=1000 + 2 * need + more, planned_bytes=1000)
    source = place_rows(made.source, made.problem, config(), where, Clock(), Loading())
    (event,) = heard
    assert isinstance(event, Chosen)
    assert (event.choice.value, isinstance(source, GpuRows)) == (place, place == "card")
    assert event.choice.evidence == {"bytes": need, "spare_bytes": 2 * need + more, "share": 0.5}
