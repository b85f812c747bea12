from __future__ import annotations

import pytest

from unchoke.scenes.scan_scenes import canonical, find_band, natural_order, split_stem


@pytest.mark.parametrize(
    ("stem", "scene", "band", "metres"),
    [
        ("LC08_L1TP_021039_20160101_01_T1_B2", "LC08_L1TP_021039_20160101_01_T1", "B2", None),
        ("LC08_L2SP_021039_20200101_02_T1_SR_B10", "LC08_L2SP_021039_20200101_02_T1", "SR_B10", None),
        ("l8_B10", "l8", "B10", None),
        ("T33UUP_20180101T101401_B8A_20m", "T33UUP_20180101T101401", "B8A", 20),
        ("T33UUP_20180101T101401_B02", "T33UUP_20180101T101401", "B02", None),
        ("b3", "", "b3", None),
    ],
)
def test_a_stem_gives_the_scene_and_its_band(stem, scene, band, metres):
    named = split_stem(stem)
    assert named is not None and not named.quality
    assert (named.scene, named.band, named.metres) == (scene, band, metres)


@pytest.mark.parametrize("stem", ["l8_BQA", "LC08_x_QA_PIXEL", "T33_SCL_20m", "T33_TCI_10m", "preview", "LC08_x_thumb_small"])
def test_quality_bands_and_previews_are_told_apart(stem):
    named = split_stem(stem)
    assert named is not None and named.quality


@pytest.mark.parametrize("stem", ["207", "label", "photoB2", "abb1", "scene"])
def test_other_names_are_no_bands(stem):
    assert split_stem(stem) is None


def test_names_that_are_asked_for_are_bands():
    assert split_stem("site_red") is None
    named = split_stem("site_red", wanted=["RED"])
    assert named is not None and (named.scene, named.band) == ("site", "red")
    assert split_stem("sitered", wanted=["red"]) is None


def test_numbers_are_compared_by_value_and_letters_count():
    assert canonical("B02") == canonical("b2") != canonical("B20")
    assert canonical("B8A") != canonical("B8")
    assert find_band("B2", ["B01", "B02", "B12"]) == 1
    assert find_band("B8", ["B8A", "B08"]) == 1
    assert find_band("B2", ["SR_B1", "SR_B2"]) == 1
    assert find_band("B2", ["SR_B2", "ST_B2"]) is None
    assert find_band("nir", ["B1"]) is None


def test_bands_come_in_the_order_a_person_would_use():
    assert natural_order(["B10", "B8A", "B9", "B8", "B1"]) == ["B1", "B8", "B8A", "B9", "B10"]
    assert natural_order(["B12", "B8A", "B09", "B02"]) == ["B02", "B8A", "B09", "B12"]
