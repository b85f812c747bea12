from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from unchoke.masks.grow_trees import PixelSample, _fit, grow_trees
from unchoke.masks.pixel_trees import LIMIT, PixelTrees, flatten_tree, floor_float32
from unchoke.training.checkpoints import load_checkpoint, save_tensors


def pixels(num_classes: int, *, number: int = 3000, seed: int = 0) -> PixelSample:
    """Spectra as they are kept: float16 values of three bands; the class is a noisy rule over two of them."""
    random = np.random.default_rng(seed)
    bands = random.normal(size=(number, 3)).astype(np.float16).astype(np.float32)
    says = bands[:, 0] * bands[:, 1] + 0.3 * random.normal(size=number)
    classes = np.digitize(says, np.linspace(-0.5, 0.5, num_classes - 1)).astype(np.uint8)
    return PixelSample(bands, classes, np.arange(number) // 100)


def grown(sample: PixelSample, num_classes: int) -> PixelTrees:
    trees = grow_trees(sample, num_classes)
    assert trees is not None
    return trees


@pytest.mark.parametrize("num_classes", [2, 3, 5])
def test_kept_trees_equal_scikit_learn_bitwise(num_classes: int) -> None:
    sample = pixels(num_classes)
    model = _fit(sample, num_classes)
    trees = grown(sample, num_classes)
    others: NDArray[np.float32] = np.random.default_rng(1).normal(size=(4000, 3)).astype(np.float16).astype(np.float32) * 3
    others[:50] = sample.bands[:50]
    assert np.array_equal(trees.raw(others.T), np.atleast_2d(model.decision_function(others).T))


@pytest.mark.parametrize("num_classes", [2, 3])
def test_softmax_of_the_scores_is_the_probability(num_classes: int) -> None:
    sample = pixels(num_classes)
    patch = sample.bands[:2400].T.reshape(3, 40, 60).astype(np.float16)
    scores = grown(sample, num_classes).scores(patch).astype(np.float64).reshape(num_classes, -1)
    shares = np.exp(scores) / np.exp(scores).sum(axis=0)
    assert pytest.approx(_fit(sample, num_classes).predict_proba(sample.bands[:2400]), abs=4e-3) == shares.T


def test_a_class_that_no_pixel_taught_is_scored_lowest() -> None:
    sample = pixels(2)
    scores = grown(sample, 4).scores(sample.bands[:64].T.reshape(3, 8, 8))
    assert scores.shape == (4, 8, 8)
    assert (scores[2:] == -LIMIT).all() and (scores[:2].max(axis=0) > -LIMIT).all()


def test_pixels_of_one_class_grow_nothing() -> None:
    sample = pixels(2)
    assert grow_trees(PixelSample(sample.bands, np.zeros_like(sample.classes), sample.positions), 2) is None


def test_trees_come_back_from_their_file_without_any_code(tmp_path: Path) -> None:
    sample = pixels(3)
    trees = grown(sample, 3)
    save_tensors(tmp_path / "trees.pt", trees.to_dict())
    again = PixelTrees.from_dict(load_checkpoint(tmp_path / "trees.pt"))
    assert np.array_equal(again.raw(sample.bands.T), trees.raw(sample.bands.T))
    assert again.classes == trees.classes and again.num_classes == 3


def test_growing_twice_gives_the_same_arrays() -> None:
    one, other = (grown(pixels(3), 3).to_dict() for _ in range(2))
    assert all((one[name] == other[name]).all() for name in ("columns", "thresholds", "ruled_out", "values", "start"))


def test_a_tree_that_leans_to_one_side_is_flattened_too() -> None:
    """A chain of three nodes, leaves from left to right 10, 20, 30, 40."""
    names = ("feature_idx", "num_threshold", "left", "right", "value", "is_leaf")
    rows = [(0, 0.0, 1, 2, 0, False), (0, 0, 0, 0, 10, True), (1, 1.0, 3, 6, 0, False), (0, 2.0, 4, 5, 0, False)]
    rows += [(0, 0, 0, 0, value, True) for value in (20, 30, 40)]
    chain = [dict(zip(names, row, strict=True)) for row in rows]
    parts = [np.array([part]) for part in flatten_tree(chain)]
    trees = PixelTrees(
        parts[0].astype(np.int16), parts[1].astype(np.float32), parts[2].astype(np.uint8), parts[3], np.zeros(1), (0, 1), 2
    )
    found = trees.raw(np.array([[-1, 1, 3, 3], [9, 0, 0, 9]]))
    assert found.tolist() == [[10, 20, 30, 40]]


@pytest.mark.parametrize("value", [0.1, -0.1, 1 / 3, 5.0, 1e-9])
def test_a_threshold_is_rounded_down(value: float) -> None:
    down = floor_float32(value)
    assert down <= value < float(np.nextafter(np.float32(down), np.float32(np.inf)))
