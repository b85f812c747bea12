"""Windows are read together in strips that follow the files' blocks and stay small; every tile holds its part of the scene."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from numpy.typing import NDArray

from errors import refused
from unchoke.core.boxes import Box, plan_boxes
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.mask_sources import ExpressionMask, LabelMask
from unchoke.scenes.open_scenes import inspect_scene
from unchoke.scenes.raster import read_box
from unchoke.scenes.scale import SceneScale, measure_scale
from unchoke.scenes.scene_facts import IGNORE, BandFile, Scene, SceneFacts
from unchoke.scenes.tiling.shared_blocks import SharedBlocks
from unchoke.scenes.tiling.tiles import STAGES, TileRecord, TileSpec, TileWindow, plan_strips, plan_windows, run_strip

MakeScene = Callable[..., SceneFacts]


def plain_spec(facts: SceneFacts, **options: Any) -> TileSpec:
    ones = (1.0,) * facts.num_bands
    return TileSpec(facts, SceneScale("none", ones, (0.0,) * facts.num_bands), "tiles", **options)


def windows_of(spec: TileSpec) -> list[TileWindow]:
    return [window for row in plan_windows(spec) for window in row]


def test_windows_of_grid_have_ids_of_place(make_scene: MakeScene) -> None:
    spec = plain_spec(make_scene((1, 50, 70)), size_px=32, overlap_px=4)
    windows = windows_of(spec)
    assert [window.box for window in windows] == plan_boxes(50, 70, size_px=32, overlap_px=4)
    assert [window.tile_id for window in windows[:2]] == ["scene_r00000_c00000", "scene_r00000_c00028"]
    assert len({(window.row, window.col) for window in windows}) == len(windows)


def test_every_window_is_in_one_strip_whose_box_holds_it(make_scene: MakeScene) -> None:
    facts = make_scene((1, 100, 130), tiled=True, blockxsize=16, blockysize=16)
    spec = plain_spec(facts, size_px=21, overlap_px=5)
    strips = plan_strips(facts, spec, limit_bytes=60 * 60 * 6)
    inside = [window for strip in strips for window in strip.windows]
    assert sorted(window.tile_id for window in inside) == sorted(window.tile_id for window in windows_of(spec))
    assert all(window.box.common(strip.box) == window.box for strip in strips for window in strip.windows)
    assert [strip.number for strip in strips] == list(range(len(strips)))


def test_low_windows_joined_to_whole_blocks(make_scene: MakeScene) -> None:
    facts = make_scene((1, 100, 64), tiled=True, blockxsize=64, blockysize=64)
    strips = plan_strips(facts, plain_spec(facts, size_px=32))
    assert [strip.box for strip in strips] == [Box(0, 0, 64, 64), Box(64, 0, 36, 64)]


def test_strip_over_large_blocks_cut_by_blocks(make_scene: MakeScene) -> None:
    facts = make_scene((1, 128, 256), tiled=True, blockxsize=64, blockysize=64)
    strips = plan_strips(facts, plain_spec(facts, size_px=16), limit_bytes=64 * 130 * 6)
    assert [strip.box for strip in strips] == [Box(row, column, 64, 128) for row in (0, 64) for column in (0, 128)]


def test_row_stored_files_get_more_room(make_scene: MakeScene) -> None:
    facts = make_scene((1, 64, 200), blockysize=1)
    spec = plain_spec(facts, size_px=32)
    assert len(plan_strips(facts, spec, limit_bytes=32 * 60 * 6)) == 2
    assert len(plan_strips(facts, spec, limit_bytes=32 * 32 * 6)) == 14


def test_the_plan_crosses_to_another_process(make_scene: MakeScene) -> None:
    facts = make_scene((2, 40, 40))
    spec = plain_spec(facts, size_px=32)
    strips = plan_strips(facts, spec)
    assert pickle.loads(pickle.dumps((spec, strips))) == (spec, strips)


LAYOUTS: dict[str, dict[str, Any]] = {
    "tiled": {"tiled": True, "blockxsize": 16, "blockysize": 16, "compress": "deflate"},
    "striped": {"blockysize": 3},
    "whole": {"blockysize": 100},
}
WINDOWS = {"aligned": (32, 0), "odd": (25, 0), "overlapping": (32, 8), "odd and overlapping": (21, 5), "larger": (200, 0)}


def spec_of(facts: SceneFacts, folder: Path, *, pool: HandlePool, **options: Any) -> TileSpec:
    chosen = {"mask": ExpressionMask("B2 > B3", facts.band_names), **options}
    return TileSpec(facts, measure_scale(facts, "max", pool=pool), str(folder), **chosen)


def run_all(
    spec: TileSpec, pool: HandlePool, *, threads: int = 2, limit_bytes: int = 1 << 20, order: int = 1
) -> list[TileRecord]:
    strips = plan_strips(spec.facts, spec, limit_bytes=limit_bytes)[::order]
    shared = SharedBlocks()
    with ThreadPoolExecutor(threads) as executor:
        results = list(executor.map(lambda strip: run_strip(strip, spec, pool=pool, shared=shared), strips))
    return [record for result in results for record in result.records]


def load(folder: Path, record: TileRecord) -> dict[str, NDArray[Any]]:
    with np.load(folder / record.file) as found:
        return dict(found)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("windows", WINDOWS)
def test_tiles_hold_their_part_blocks_read_once(
    layout: str, windows: str, make_scene: MakeScene, counting_pool: Any, tmp_path: Path
) -> None:
    size_px, overlap_px = WINDOWS[windows]
    facts = make_scene((2, 100, 90), **LAYOUTS[layout])
    spec = spec_of(facts, tmp_path / "tiles", pool=HandlePool(), size_px=size_px, overlap_px=overlap_px)
    records = run_all(spec, counting_pool)
    assert [record.tile_id for record in records] == [window.tile_id for window in windows_of(spec)]
    assert len(counting_pool.blocks) == len(set(counting_pool.blocks))
    bands, _ = read_box(facts, Box(0, 0, 100, 90), pool=counting_pool)
    plain = bands / np.asarray(spec.scale.divide, np.float32)[:, None, None]
    for record in records:
        tile, box = load(tmp_path / "tiles", record), record.box
        rows, columns = slice(box.top, box.bottom), slice(box.left, box.right)
        np.testing.assert_array_equal(tile["bands"], plain[:, rows, columns])
        np.testing.assert_array_equal(tile["mask"], (bands[0] > bands[1])[rows, columns])
        assert tile["bands"].dtype == np.float32
        assert tile["valid"].all()


@pytest.mark.parametrize(
    "layout", [{"tiled": True, "blockxsize": 16, "blockysize": 16}, {"blockysize": 3}], ids=["tiled", "striped"]
)
@pytest.mark.parametrize("windows", ["aligned", "odd and overlapping"])
def test_resampled_bands_blocks_decoded_once(
    layout: dict[str, Any], windows: str, write_band: Callable[..., str], counting_pool: Any, tmp_path: Path
) -> None:
    random = np.random.default_rng(8)
    files = []
    for name, pixel_m in (("B2", 10), ("B5", 20), ("B9", 60)):
        side = 1200 // pixel_m
        place = rasterio.Affine(pixel_m, 0, 500_000, 0, -pixel_m, 4_000_000)
        pixels = random.integers(1, 3000, (side, side), dtype=np.uint16)
        files.append(BandFile(name, write_band(tmp_path / f"{name}.tif", pixels, transform=place, **layout)))
    facts = inspect_scene(Scene("mixed", tuple(files)), pool=HandlePool())
    size_px, overlap_px = WINDOWS[windows]
    spec = spec_of(facts, tmp_path / "tiles", pool=HandlePool(), size_px=size_px, overlap_px=overlap_px, mask=None)
    records = run_all(spec, counting_pool, limit_bytes=50 * 60 * 14)
    assert len(counting_pool.blocks) == len(set(counting_pool.blocks))
    bands, _ = read_box(facts, Box(0, 0, 120, 120), pool=HandlePool())
    plain = bands / np.asarray(spec.scale.divide, np.float32)[:, None, None]
    for record in records:
        box = record.box
        expected = plain[:, box.top : box.bottom, box.left : box.right]
        np.testing.assert_array_equal(load(tmp_path / "tiles", record)["bands"], expected)


@pytest.mark.parametrize(("threads", "order"), [(1, 1), (1, -1), (4, -1)])
def test_wide_strips_cut_without_rereading(
    threads: int, order: int, make_scene: MakeScene, counting_pool: Any, tmp_path: Path
) -> None:
    facts = make_scene((2, 60, 200), **LAYOUTS["tiled"])
    spec = spec_of(facts, tmp_path, pool=HandlePool(), size_px=20, overlap_px=4)
    strips = plan_strips(facts, spec, limit_bytes=20 * 60 * 10)
    assert len({strip.box.left for strip in strips}) > 2
    assert max(strip.box.width for strip in strips) <= 60
    run_all(spec, counting_pool, threads=threads, limit_bytes=20 * 60 * 10, order=order)
    assert len(counting_pool.blocks) == len(set(counting_pool.blocks))


def test_label_of_other_layout_decoded_once(make_scene: MakeScene, counting_pool: Any, tmp_path: Path) -> None:
    label = np.random.default_rng(3).integers(0, 5, (100, 90)).astype(np.uint8)
    facts = make_scene((2, 100, 90), label=label, **LAYOUTS["tiled"])
    spec = spec_of(facts, tmp_path, pool=HandlePool(), size_px=21, overlap_px=5, mask=LabelMask())
    for record in run_all(spec, counting_pool):
        box = record.box
        np.testing.assert_array_equal(load(tmp_path, record)["mask"], label[box.top : box.bottom, box.left : box.right])
    assert "label.tif" in {file for file, _, _ in counting_pool.blocks}
    assert len(counting_pool.blocks) == len(set(counting_pool.blocks))


def test_a_tile_knows_its_place_on_the_map(make_scene: MakeScene, pool: HandlePool, tmp_path: Path) -> None:
    facts = make_scene((2, 50, 50))
    record = run_all(spec_of(facts, tmp_path, pool=pool, size_px=20), pool)[5]
    tile = load(tmp_path, record)
    assert tile["window"].tolist() == [20, 40, 20, 10]
    assert tile["transform"].tolist() == [30, 0, 500_000 + 40 * 30, 0, -30, 4_000_000 - 20 * 30]
    assert rasterio.crs.CRS.from_wkt(str(tile["crs"])).to_epsg() == 32633
    assert tile["band_names"].tolist() == ["B2", "B3"]
    assert (record.row, record.col) == (1, 2)


def test_a_record_tells_size_digest_validity_and_classes(make_scene: MakeScene, pool: HandlePool, tmp_path: Path) -> None:
    pixels = np.arange(200, dtype=np.uint16).reshape(2, 10, 10)
    pixels[0, 0, :5] = 999
    label = np.zeros((10, 10), np.uint8)
    label[5:] = 4
    facts = make_scene(pixels, label=label, nodata=999)
    (record,) = run_all(spec_of(facts, tmp_path, pool=pool, mask=LabelMask()), pool)
    assert record.valid_share == 0.95
    assert record.class_counts == {0: 45, 4: 50, IGNORE: 5}
    assert record.size_bytes == (tmp_path / record.file).stat().st_size
    assert len(record.digest) == 64
    assert record.to_dict()["class_counts"] == {"0": 45, "4": 50, "255": 5}
    tile = load(tmp_path, record)
    assert not tile["valid"][0, :5].any()
    assert not tile["bands"][:, 0, :5].any()
    assert (tile["mask"][0, :5] == IGNORE).all()


def test_padded_windows_full_size_invalid_padding(make_scene: MakeScene, pool: HandlePool, tmp_path: Path) -> None:
    facts = make_scene((2, 30, 50))
    records = run_all(spec_of(facts, tmp_path, pool=pool, size_px=32, edges="padded"), pool)
    assert [record.box for record in records] == [Box(0, 0, 32, 32), Box(0, 32, 32, 32)]
    tile = load(tmp_path, records[1])
    assert tile["bands"].shape == (2, 32, 32)
    assert tile["valid"][:30, :18].all()
    assert not tile["valid"][30:].any()
    assert not tile["valid"][:, 18:].any()
    assert not tile["bands"][:, ~tile["valid"]].any()
    assert (tile["mask"][~tile["valid"]] == IGNORE).all()
    assert records[1].valid_share == 30 * 18 / 32**2


def test_sparse_windows_skipped_and_recorded(make_scene: MakeScene, pool: HandlePool, tmp_path: Path) -> None:
    pixels = np.ones((1, 20, 40), np.uint16)
    pixels[0, :, 20:] = 0
    pixels[0, 0, 20] = 1
    facts = make_scene(pixels, nodata=0)
    options = {"pool": pool, "size_px": 20, "mask": None}
    kept = run_all(spec_of(facts, tmp_path / "all", **options), pool)
    assert not any(record.skipped for record in kept)
    assert np.count_nonzero(load(tmp_path / "all", kept[1])["valid"]) == 1
    some = run_all(spec_of(facts, tmp_path / "some", min_valid=0.5, **options), pool)
    assert [record.skipped for record in some] == [False, True]
    assert (some[1].valid_share, some[1].file, some[1].size_bytes) == (1 / 400, "", 0)
    assert len(list((tmp_path / "some").iterdir())) == 1


def test_nodata_window_and_one_pixel_scene(make_scene: MakeScene, pool: HandlePool, tmp_path: Path) -> None:
    empty = make_scene(np.zeros((2, 9, 9), np.uint16), nodata=0)
    (record,) = run_all(spec_of(empty, tmp_path / "empty", pool=pool), pool)
    assert record.class_counts == {IGNORE: 81}
    assert not load(tmp_path / "empty", record)["valid"].any()
    dot = make_scene(np.full((2, 1, 1), 5, np.uint16), name="dot")
    (record,) = run_all(spec_of(dot, tmp_path / "dot", pool=pool), pool)
    assert load(tmp_path / "dot", record)["bands"].tolist() == [[[1.0]], [[1.0]]]


def test_raw_tiles_keep_numbers_and_constants(make_scene: MakeScene, pool: HandlePool, tmp_path: Path) -> None:
    facts = make_scene((2, 40, 40))
    normal = run_all(spec_of(facts, tmp_path / "normal", pool=pool), pool)[0]
    raw = run_all(spec_of(facts, tmp_path / "raw", pool=pool, store="raw"), pool)[0]
    tile, expected = load(tmp_path / "raw", raw), load(tmp_path / "normal", normal)
    assert tile["bands"].dtype == np.uint16
    physical = tile["bands"].astype(np.float32) * np.float32(tile["scale"][0]) + np.float32(tile["offset"][0])
    shaped = [tile[name].astype(np.float32)[:, None, None] for name in ("low", "divide")]
    np.testing.assert_array_equal((physical - shaped[0]) / shaped[1], expected["bands"])
    np.testing.assert_array_equal(tile["mask"], expected["mask"])


def test_strip_bytes_same_in_any_order(make_scene: MakeScene, pool: HandlePool, tmp_path: Path) -> None:
    facts = make_scene((2, 70, 60), **LAYOUTS["tiled"])
    options = {"pool": pool, "size_px": 24, "overlap_px": 5}
    spec = spec_of(facts, tmp_path / "a", **options)
    alone = [record for strip in plan_strips(facts, spec) for record in run_strip(strip, spec).records]
    shared = run_all(spec_of(facts, tmp_path / "b", **options), pool, order=-1)
    assert sorted(record.digest for record in alone) == sorted(record.digest for record in shared)


def test_stages_are_clocked_and_add_up(make_scene: MakeScene, pool: HandlePool, tmp_path: Path) -> None:
    label = np.ones((40, 40), np.uint8)
    facts = make_scene((3, 40, 40), label=label)
    spec = spec_of(facts, tmp_path, pool=pool, size_px=20, mask=LabelMask())
    (strip,) = plan_strips(facts, spec)
    result = run_strip(strip, spec, pool=pool)
    assert tuple(result.seconds) == tuple(result.calls) == STAGES
    assert all(seconds > 0 for seconds in result.seconds.values())
    assert result.calls == {"open": 4, "read": 1, "normalise": 4, "mask": 5, "write": 4}


def test_changed_file_named_neighbours_not_blocked(make_scene: MakeScene, pool: HandlePool, tmp_path: Path) -> None:
    facts = make_scene((2, 64, 32), **LAYOUTS["tiled"])
    spec = spec_of(facts, tmp_path, pool=pool, size_px=24, overlap_px=4)
    strips = plan_strips(facts, spec)
    shared = SharedBlocks()
    Path(facts.bands[1].path).write_bytes(b"another file")
    with ThreadPoolExecutor(2) as executor:
        for future in [executor.submit(run_strip, strip, spec, pool=pool, shared=shared) for strip in strips]:
            with refused("scene-changed", facts.bands[1].path) as caught:
                future.result(20)
            assert caught.value.path == facts.bands[1].path


def test_scale_none_stores_physical_values(make_scene: MakeScene, pool: HandlePool, tmp_path: Path) -> None:
    facts = make_scene((1, 10, 10))
    spec = TileSpec(facts, SceneScale("none", (1.0,), (0.0,)), str(tmp_path))
    (record,) = run_all(spec, pool)
    tile = load(tmp_path, record)
    assert "mask" not in tile
    np.testing.assert_array_equal(tile["bands"], read_box(facts, Box(0, 0, 10, 10), pool=pool)[0])
