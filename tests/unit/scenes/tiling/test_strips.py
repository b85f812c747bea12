"""Windows are read together in strips that follow the files' blocks and stay small."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from unchoke.core.boxes import Box, plan_boxes
from unchoke.scenes.scale import SceneScale
from unchoke.scenes.scene_facts import SceneFacts
from unchoke.scenes.tiling.strips import TileSpec, plan_strips, plan_windows

MakeScene = Callable[..., SceneFacts]


def spec_of(facts: SceneFacts, **options: Any) -> TileSpec:
    ones = (1.0,) * facts.num_bands
    return TileSpec(facts, SceneScale("none", ones, (0.0,) * facts.num_bands), "tiles", **options)


def test_windows_are_those_of_the_grid_with_ids_that_tell_their_place(make_scene: MakeScene) -> None:
    spec = spec_of(make_scene((1, 50, 70)), size_px=32, overlap_px=4)
    windows = plan_windows(spec)
    assert [window.box for window in windows] == plan_boxes(50, 70, size_px=32, overlap_px=4)
    assert [window.tile_id for window in windows[:2]] == ["scene_r00000_c00000", "scene_r00000_c00028"]
    assert len({(window.row, window.col) for window in windows}) == len(windows)


def test_every_window_is_in_one_strip_whose_box_holds_it(make_scene: MakeScene) -> None:
    facts = make_scene((1, 100, 130), tiled=True, blockxsize=16, blockysize=16)
    spec = spec_of(facts, size_px=21, overlap_px=5)
    strips = plan_strips(facts, spec, limit_bytes=60 * 60 * 6)
    inside = [window for strip in strips for window in strip.windows]
    assert sorted(window.tile_id for window in inside) == sorted(window.tile_id for window in plan_windows(spec))
    assert all(window.box.common(strip.box) == window.box for strip in strips for window in strip.windows)
    assert [strip.number for strip in strips] == list(range(len(strips)))


def test_low_windows_are_joined_until_a_strip_ends_with_a_block(make_scene: MakeScene) -> None:
    facts = make_scene((1, 100, 64), tiled=True, blockxsize=64, blockysize=64)
    strips = plan_strips(facts, spec_of(facts, size_px=32))
    assert [strip.box for strip in strips] == [Box(0, 0, 64, 64), Box(64, 0, 36, 64)]


def test_a_strip_over_large_blocks_is_made_of_them_where_a_whole_row_does_not_fit(make_scene: MakeScene) -> None:
    facts = make_scene((1, 128, 256), tiled=True, blockxsize=64, blockysize=64)
    strips = plan_strips(facts, spec_of(facts, size_px=16), limit_bytes=64 * 130 * 6)
    assert [strip.box for strip in strips] == [Box(row, column, 64, 128) for row in (0, 64) for column in (0, 128)]


def test_files_that_store_whole_rows_are_given_more_room_before_they_are_cut(make_scene: MakeScene) -> None:
    facts = make_scene((1, 64, 200), blockysize=1)
    spec = spec_of(facts, size_px=32)
    assert len(plan_strips(facts, spec, limit_bytes=32 * 60 * 6)) == 2
    assert len(plan_strips(facts, spec, limit_bytes=32 * 32 * 6)) == 14


def test_the_plan_crosses_to_another_process(make_scene: MakeScene) -> None:
    facts = make_scene((2, 40, 40))
    spec = spec_of(facts, size_px=32)
    strips = plan_strips(facts, spec)
    assert pickle.loads(pickle.dumps((spec, strips))) == (spec, strips)
