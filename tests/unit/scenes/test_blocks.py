"""Neighbours go to one side together, and what lies at one place is on one side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from errors import refused
from unchoke.core.boxes import plan_boxes
from unchoke.scenes.blocks import BUFFER, Bounds, WindowPlace, assign_splits, choose_block_px, footprints
from unchoke.scenes.scene_facts import SceneFacts

MakeScene = Callable[..., SceneFacts]


def windows_of(
    scene: str,
    *,
    side: int = 100,
    size: int = 10,
    overlap: int = 0,
    bounds: Bounds | None = None,
    group: str = "",
    split: str = "",
) -> list[WindowPlace]:
    boxes = plan_boxes(side, side, size_px=size, overlap_px=overlap)
    return [WindowPlace(scene, box, group, side, side, bounds, split) for box in boxes]


def by_scene(windows: Sequence[WindowPlace], sides: Sequence[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for window, side in zip(windows, sides, strict=True):
        found.setdefault(window.scene_id, set()).add(side)
    return found


def test_blocks_not_divided_shares_come_out() -> None:
    windows = windows_of("a", side=240)
    sides = assign_splits(windows, block_px=40)
    blocks: dict[tuple[int, int], set[str]] = {}
    for window, side in zip(windows, sides, strict=True):
        blocks.setdefault((window.box.top // 40, window.box.left // 40), set()).add(side)
    assert all(len(found) == 1 for found in blocks.values())
    counts = Counter(sides)
    assert counts["val"] / len(sides) == pytest.approx(0.15, abs=0.05)
    assert counts["test"] / len(sides) == pytest.approx(0.15, abs=0.05)
    assert BUFFER not in counts


def test_three_blocks_are_enough_for_three_sides() -> None:
    windows = [window for window in windows_of("a", side=30, size=10) if window.box.top == 0]
    assert sorted(assign_splits(windows, block_px=10)) == ["test", "train", "val"]


def test_one_window_trains() -> None:
    assert assign_splits(windows_of("a", side=10), block_px=40) == ["train"]


def test_the_result_follows_the_seed_and_not_the_order() -> None:
    windows = windows_of("a", side=120) + windows_of("b", side=80)
    sides = assign_splits(windows, block_px=30, seed=1)
    assert assign_splits(windows[::-1], block_px=30, seed=1)[::-1] == sides
    assert assign_splits(windows, block_px=30, seed=2) != sides


def test_enough_scenes_are_divided_whole() -> None:
    windows = [window for number in range(8) for window in windows_of(f"s{number}", side=50)]
    found = by_scene(windows, assign_splits(windows, block_px=20))
    assert all(len(sides) == 1 for sides in found.values())
    assert set().union(*found.values()) == {"train", "val", "test"}


def test_dominant_scene_divided_in_blocks() -> None:
    windows = [window for number in range(8) for window in windows_of(f"s{number}", side=10)]
    windows += windows_of("large", side=200)
    assert by_scene(windows, assign_splits(windows, block_px=40))["large"] == {"train", "val", "test"}


def test_scenes_of_one_group_stay_together() -> None:
    windows = [window for number in range(16) for window in windows_of(f"s{number}", side=20, group=f"g{number // 2}")]
    found = by_scene(windows, assign_splits(windows, block_px=20))
    assert all(found[f"s{number}"] == found[f"s{number + 1}"] for number in range(0, 16, 2))


def test_scenes_of_same_ground_stay_together() -> None:
    places = {"a": 0, "b": 900, "c": 1800, **{f"far{number}": 10_000 * (number + 1) for number in range(6)}}
    windows = [window for name, x in places.items() for window in windows_of(name, bounds=(x, 0, x + 1000, 1000))]
    found = by_scene(windows, assign_splits(windows, block_px=40))
    assert found["a"] == found["b"] == found["c"]


def test_scenes_that_only_touch_are_strangers() -> None:
    windows = [window for x in range(8) for window in windows_of(f"s{x}", side=20, bounds=(x * 100.0, 0, x * 100.0 + 100, 100))]
    assert set(assign_splits(windows, block_px=20)) == {"train", "val", "test"}


def test_a_series_over_one_place_has_each_spot_on_one_side() -> None:
    windows = [window for day in range(3) for window in windows_of(f"day{day}", bounds=(0, 0, 3000, 3000))]
    spots: dict[tuple[int, int], set[str]] = {}
    for window, side in zip(windows, assign_splits(windows, block_px=30), strict=True):
        spots.setdefault((window.box.top, window.box.left), set()).add(side)
    assert all(len(sides) == 1 for sides in spots.values())
    assert set().union(*spots.values()) == {"train", "val", "test"}


def test_windows_that_reach_into_another_side_become_buffer() -> None:
    windows = windows_of("a", side=200, size=16, overlap=4)
    sides = assign_splits(windows, block_px=48)
    assert BUFFER in sides
    for one, side in zip(windows, sides, strict=True):
        for other, other_side in zip(windows, sides, strict=True):
            if {side, other_side} <= {"train", "val", "test"} and side != other_side:
                assert one.box.common(other.box) is None


@pytest.mark.parametrize("seed", range(8))
def test_small_overlapping_scene_keeps_every_side(seed: int) -> None:
    windows = windows_of("a", side=600, size=256, overlap=64)
    assert len(windows) == 9
    assert set(assign_splits(windows, block_px=192, seed=seed)) == {"train", "val", "test", BUFFER}


def test_windows_that_all_overlap_all_train() -> None:
    assert assign_splits(windows_of("a", side=12, size=10, overlap=8), block_px=2) == ["train"] * 4


def test_a_given_side_is_kept() -> None:
    windows = windows_of("a", split="test") + windows_of("b", split="val") + windows_of("c", split="train") + windows_of("d")
    found = by_scene(windows, assign_splits(windows, block_px=20))
    assert (found["a"], found["b"], found["c"]) == ({"test"}, {"val"}, {"train"})
    assert "train" in found["d"]


def test_train_yields_the_side_a_given_division_lacks() -> None:
    windows = windows_of("a", split="train") + windows_of("b", split="test")
    found = by_scene(windows, assign_splits(windows, block_px=20))
    assert found == {"a": {"train", "val"}, "b": {"test"}}


def test_a_side_without_a_share_stays_empty() -> None:
    assert set(assign_splits(windows_of("a"), block_px=20, val_share=0.3, test_share=0)) == {"train", "val"}


def test_shares_that_leave_nothing_to_train_on_are_refused() -> None:
    with refused("bad-split-shares", "0.5"):
        assign_splits(windows_of("a"), block_px=20, val_share=0.5, test_share=0.5)


@pytest.mark.parametrize(
    ("sizes", "overlap", "value"),
    [([(8000, 8000)], 0, 4 * 512), ([(8000, 8000)], 64, 6 * 448), ([(8000, 3000)], 0, 2 * 512), ([(600, 600)], 0, 512)],
)
def test_blocks_of_four_windows_nine_per_scene(sizes: list[tuple[int, int]], overlap: int, value: int) -> None:
    assert choose_block_px(sizes, window_px=512, overlap_px=overlap).value == value
    assert choose_block_px(sizes, window_px=512, overlap_px=overlap, asked=99).value == 99


def test_footprints_are_in_one_coordinate_system(make_scene: MakeScene) -> None:
    facts = make_scene((1, 10, 20))
    assert footprints([facts, facts]) == [(500_000, 3_999_700, 500_600, 4_000_000)] * 2
    other = make_scene((1, 10, 20), name="other", crs="EPSG:32634")
    degrees = footprints([facts, other])
    assert degrees[0] is not None
    assert degrees[1] is not None
    assert degrees[0][0] == pytest.approx(15, abs=0.01)
    assert degrees[1][0] == pytest.approx(21, abs=0.01)
    assert footprints([make_scene((1, 10, 20), name="bare", crs=None)]) == [None]
