"""Scenes whose masks the other scenes contradict, by figures alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unchoke.curation.curate_scenes import find_odd_scenes, mean_iou


def confusion(right: int, wrong: int) -> NDArray[np.int64]:
    return np.array([[right, wrong], [wrong, right]], np.int64)


def test_the_mean_iou_counts_classes_that_are_there() -> None:
    assert mean_iou(confusion(50, 0)) == 1
    assert mean_iou(confusion(30, 10)) == 0.6
    assert mean_iou(np.array([[40, 0], [0, 0]])) == 1
    assert np.isnan(mean_iou(np.zeros((2, 2), np.int64)))


def test_scene_that_agrees_far_less_is_named() -> None:
    confusions = {f"s{number}": confusion(95 - number, 5) for number in range(6)} | {"bad": confusion(20, 80)}
    (found,) = find_odd_scenes(confusions, ("land", "water"))
    assert (found.kind, found.about) == ("scene", ("bad",))
    assert found.evidence["right_pixels"] == 0.2
    assert {found.evidence["mask_says"], found.evidence["model_says"]} == {"land", "water"}
    assert find_odd_scenes({name: one for name, one in confusions.items() if name != "bad"}, ("land", "water")) == []
