"""One set of constants per scene, measured on valid pixels, and plain float32 arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import rasterio

from errors import refused
from unchoke.core.boxes import Box
from unchoke.scenes import scale
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.open_scenes import inspect_scene
from unchoke.scenes.raster import read_box
from unchoke.scenes.scale import SceneScale, apply_scale, measure_scale, to_physical
from unchoke.scenes.scene_facts import SceneFacts

MakeScene = Callable[..., SceneFacts]


def test_max_is_that_of_the_valid_pixels_of_each_band(make_scene: MakeScene, pool: HandlePool) -> None:
    pixels = np.array([[[1, 50], [9, 3]], [[7, 1], [65000, 2]]], np.uint16)
    assert measure_scale(make_scene(pixels, nodata=65000), "max", pool=pool).divide == (50.0, 7.0)


def test_physical_values_are_measured(make_scene: MakeScene, pool: HandlePool) -> None:
    facts = make_scene(np.full((1, 4, 4), 1000, np.uint16))
    with rasterio.open(facts.bands[0].path, "r+") as dataset:
        dataset.scales, dataset.offsets = (0.5,), (-100.0,)
    again = inspect_scene(facts.scene, pool=pool)
    assert measure_scale(again, "max", pool=pool).divide == (400.0,)
    stored, _ = read_box(again, Box(0, 0, 4, 4), pool=pool, dtype="raw")
    physical, _ = read_box(again, Box(0, 0, 4, 4), pool=pool)
    np.testing.assert_array_equal(to_physical(stored, again), physical)


def test_percentiles_leave_the_tails_out_and_clip(make_scene: MakeScene, pool: HandlePool) -> None:
    pixels = np.arange(10_000, dtype=np.uint16).reshape(1, 100, 100)
    facts = make_scene(pixels)
    measured = measure_scale(facts, "percentile:10,90", pool=pool)
    assert measured.low[0] == pytest.approx(1000, rel=0.01)
    assert measured.divide[0] == pytest.approx(8000, rel=0.01)
    bands, valid = read_box(facts, Box(0, 0, 100, 100), pool=pool)
    apply_scale(bands, measured, valid)
    assert bands.min() == 0
    assert bands.max() == 1
    assert measure_scale(facts, "percentile", pool=pool) == measure_scale(facts, "percentile:2,98", pool=pool)


@pytest.mark.parametrize(
    ("how", "divide"), [("none", (1.0, 1.0)), ("10000", (10000.0, 10000.0)), ("B3=20,b02=10.5", (10.5, 20.0))]
)
def test_given_constants_are_taken_as_they_are(
    make_scene: MakeScene, pool: HandlePool, how: str, divide: tuple[float, float]
) -> None:
    assert measure_scale(make_scene((2, 5, 5)), how, pool=pool).divide == divide


@pytest.mark.parametrize(
    ("how", "named"),
    [("B2=5", "B3;"), ("B2=5,B3=6,B7=1", "b7"), ("0", "'0'"), ("percentile:9,3", "percentile:9,3")],
)
def test_constants_that_do_not_fit_are_refused(make_scene: MakeScene, pool: HandlePool, how: str, named: str) -> None:
    with refused("bad-normalise", f"--normalise {how}", named):
        measure_scale(make_scene((2, 5, 5)), how, pool=pool)


@pytest.mark.parametrize("how", ["max", "percentile"])
def test_a_scene_without_a_valid_pixel_is_left_as_it_is(make_scene: MakeScene, pool: HandlePool, how: str) -> None:
    facts = make_scene(np.zeros((2, 20, 20), np.uint16), nodata=0)
    assert measure_scale(facts, how, pool=pool).divide == (1.0, 1.0)


def test_large_scene_scale_from_bounded_sample(
    make_scene: MakeScene, counting_pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale, "SAMPLE_PX", 16 * 16 * 16)
    monkeypatch.setattr(scale, "_SMALLEST_PIECE_PX", 1)
    facts = make_scene((1, 128, 128), tiled=True, blockxsize=16, blockysize=16)
    measure_scale(facts, "max:sample", pool=counting_pool)
    assert len(counting_pool.blocks) == len(set(counting_pool.blocks)) == 16
    assert len({row for _, row, _ in counting_pool.blocks}) > 4
    assert len({column for _, _, column in counting_pool.blocks}) > 4


def test_where_the_sample_meets_only_nodata_more_is_read(
    make_scene: MakeScene, pool: HandlePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale, "SAMPLE_PX", 256)
    monkeypatch.setattr(scale, "_SMALLEST_PIECE_PX", 1)
    pixels = np.zeros((1, 64, 64), np.uint16)
    pixels[0, 40, 37] = 77
    facts = make_scene(pixels, nodata=0, tiled=True, blockxsize=16, blockysize=16)
    assert measure_scale(facts, "max:sample", pool=pool).divide == (77.0,)


def test_normalise_float32_invalid_zero() -> None:
    values = np.random.default_rng(2).integers(1, 60_000, (2, 8, 9)).astype(np.float32)
    valid = np.ones((8, 9), np.bool_)
    valid[3, 4] = False
    plain = values / np.array([65_535, 777], np.float32)[:, None, None]
    plain[:, 3, 4] = 0
    out = np.empty_like(values)
    apply_scale(values, SceneScale("max", (65_535.0, 777.0), (0.0, 0.0)), valid, out=out)
    np.testing.assert_array_equal(out, plain)
    apply_scale(values, SceneScale("max", (65_535.0, 777.0), (0.0, 0.0)), valid)
    np.testing.assert_array_equal(values, plain)


def test_constants_survive_a_record() -> None:
    one = SceneScale("percentile", (3.5, 2.0), (1.0, 0.0))
    assert SceneScale.from_dict(one.to_dict()) == one


def test_maximum_of_all_or_sampled(make_scene: MakeScene, pool: HandlePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "SAMPLE_PX", 16 * 16 * 4)
    monkeypatch.setattr(scale, "_SMALLEST_PIECE_PX", 1)
    pixels = np.full((1, 64, 64), 50, np.uint16)
    pixels[0, 20, 20] = 77  # in a piece that the sample passes over
    facts = make_scene(pixels, tiled=True, blockxsize=16, blockysize=16)
    assert measure_scale(facts, "max:sample", pool=pool).divide == (50.0,)
    assert measure_scale(facts, "max", pool=pool).divide == measure_scale(facts, "max", pool=pool, threads=3).divide == (77.0,)
    assert scale.sampled_share(facts, "max:sample") == 0.25
    assert "25 %" in scale.sampling_text([facts], "max:sample")
    assert "25 %" in scale.sampling_text([facts], "percentile:2,98") != scale.sampling_text([facts], "max:sample")
    assert scale.sampling_text([facts], "max") == scale.sampling_text([facts], "none") == ""


def test_whole_measured_scene_mentions_no_sample(make_scene: MakeScene) -> None:
    assert scale.sampling_text([make_scene((1, 64, 64))], "max:sample") == ""
