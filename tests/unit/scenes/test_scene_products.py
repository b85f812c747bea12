"""Masks and other products among scenes."""

from __future__ import annotations

import pytest

from unchoke.scenes.scan_scenes import find_products, scan_scenes


@pytest.mark.parametrize(
    ("relatives", "products"),
    [
        (["a.tif", "a_mask.tif", "b.tif"], {"a_mask.tif"}),
        (["a.tif", "mask_a.png", "a_NDVI.tif"], {"mask_a.png", "a_NDVI.tif"}),
        (["images/1.tif", "masks/1.png", "images/2.tif"], {"masks/1.png"}),
        (["1.tif", "water_labels/1_gt.png"], {"water_labels/1_gt.png"}),
        (["a.tif", "a.png", "b.png"], {"a.png"}),
        (["a.png", "a_mask.png"], {"a_mask.png"}),
        (["a_mask.tif", "b_mask.tif"], set()),
        (["masks/1.tif", "masks/2.tif"], set()),
        (["a.tif", "amask.tif", "a_2.tif", "a_classroom.tif"], set()),
        (["2019/a.tif", "2020/a.tif"], set()),
    ],
)
def test_a_product_is_named_like_a_scene_that_is_there(relatives: list[str], products: set[str]) -> None:
    assert find_products(relatives) == products


def test_predictions_beside_scenes_are_no_scenes(make_files):
    stems = [f"s{number}" for number in range(21)]
    root = make_files([f"{stem}{end}.tif" for stem in stems for end in ("", "_classes", "_probabilities")])
    scanned = scan_scenes(root)
    assert sorted(scene.scene_id for scene in scanned.scenes) == sorted(stems)
    told = {choice.name: choice for choice in scanned.choices}
    assert told["scenes"].value == 21
    assert told["products"].evidence == {"count": 42}


def test_mask_folder_found_with_its_option(make_files):
    root = make_files(["images/1.tif", "images/2.tif", "masks/1.png", "masks/2.png"])
    scanned = scan_scenes(root)
    assert [scene.scene_id for scene in scanned.scenes] == ["1", "2"]
    told = {choice.name: choice.reason for choice in scanned.choices}
    assert "--label masks" in told["products"]
    labelled = scan_scenes(root, label="masks")
    assert [scene.label for scene in labelled.scenes] == [str(root / "masks/1.png"), str(root / "masks/2.png")]
    assert "products" not in {choice.name for choice in labelled.choices}
