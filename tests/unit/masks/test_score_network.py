"""Trees and an index as a network give the scores that numpy gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unchoke.masks.patches import BandStandard
from unchoke.masks.pixel_trees import PixelScorer, PixelTrees, find_index
from unchoke.masks.score_network import ScoreNetwork


def grown(num_trees: int, num_scores: int, classes: tuple[int, ...], num_classes: int) -> PixelTrees:
    """Balanced trees of eight leaves over four bands: the node of a subtree rules out the leaves on its left."""
    random = np.random.default_rng(num_trees)
    left = [0b00001111, 0b00000011, 0b00110000, 0b00000001, 0b00000100, 0b00010000, 0b01000000]
    return PixelTrees(
        random.integers(0, 4, (num_trees, 7)).astype(np.int16),
        random.normal(size=(num_trees, 7)).astype(np.float32),
        np.tile(np.array(left, np.uint8), (num_trees, 1)),
        random.normal(scale=0.3, size=(num_trees, 8)),
        random.normal(size=num_scores),
        classes,
        num_classes,
    )


@pytest.mark.parametrize(("num_trees", "num_scores", "classes", "num_classes"), [(40, 1, (0, 1), 2), (33, 3, (0, 1, 3), 4)])
def test_scores_are_those_of_the_trees(num_trees: int, num_scores: int, classes: tuple[int, ...], num_classes: int) -> None:
    bands = np.random.default_rng(0).normal(size=(2, 4, 24, 20)).astype(np.float16)
    trees = grown(num_trees, num_scores, classes, num_classes)
    index = None
    if num_classes == 2:
        flat = bands[0].reshape(4, -1).T.astype(np.float32)
        index = find_index(flat, (flat[:, 0] > flat[:, 1]).astype(np.uint8), BandStandard((3.0,) * 4, (1.0,) * 4))
        assert index is not None
    scorer = PixelScorer(trees, index)
    said = ScoreNetwork(scorer)(torch.from_numpy(bands).float()).numpy()
    wanted = np.stack([scorer.scores(patch) for patch in bands]).astype(np.float32)
    assert np.abs(said - wanted).max() <= 2**-8  # a step of float16 below 8
    assert (said == wanted).mean() > 0.99
