from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from unchoke.masks.grow_trees import PixelSample, grow_trees
from unchoke.masks.patches import BandStandard
from unchoke.masks.pixel_trees import LIMIT, PixelIndex, PixelScorer, find_index, normalised_difference
from unchoke.scenes.expression import parse_expression
from unchoke.training.checkpoints import load_checkpoint, save_tensors

STANDARD = BandStandard((900.0, 1000.0, 1100.0), (200.0, 300.0, 400.0))


def spectra(*, over: bool = True) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Standardised bands as they are kept; class 1 where (first − third) / (first + third) is over, or under, 0.1."""
    random = np.random.default_rng(0)
    raw = np.array(STANDARD.mean) + np.array(STANDARD.std) * random.normal(size=(5000, 3)).clip(-2, 2)
    kept = ((raw - STANDARD.mean) / STANDARD.std).astype(np.float16).astype(np.float32)
    says = (raw[:, 0] - raw[:, 2]) / (raw[:, 0] + raw[:, 2]) > 0.1
    return kept, (says == over).astype(np.uint8)


def index_of(*, over: bool = True) -> PixelIndex:
    found = find_index(*spectra(over=over), STANDARD)
    assert found is not None
    return found


@pytest.mark.parametrize("over", [True, False])
def test_the_index_that_made_the_labels_is_found(over: bool) -> None:
    found = index_of(over=over)
    assert (found.first, found.second, found.over) == (0, 2, over)
    assert found.cut == pytest.approx(0.1, abs=0.02)
    bands, classes = spectra(over=over)
    assert ((found.log_odds(bands.T[:, None])[0] > 0) == classes).mean() > 0.98


def test_its_text_says_the_same_of_the_bands_themselves() -> None:
    found, (bands, _) = index_of(), spectra()
    names = ("blue", "band 2", "near infrared")
    text = found.text(names)
    assert text.startswith("(blue-`near infrared`)/(blue+`near infrared`) > ")
    raw = bands * STANDARD.std + STANDARD.mean
    says = parse_expression(text, names).evaluate(dict(zip(names, raw.T, strict=True)))
    assert (says == (found.log_odds(bands.T[:, None])[0] > 0)).mean() > 0.995


def test_more_than_two_classes_have_no_index() -> None:
    bands, classes = spectra()
    classes[:10] = 2
    assert find_index(bands, classes, STANDARD) is None
    assert find_index(bands[:, :1], spectra()[1], STANDARD) is None


def test_trees_and_index_add_up_and_reload(tmp_path: Path) -> None:
    bands, classes = spectra()
    trees = grow_trees(PixelSample(bands, classes, np.arange(len(bands))), 2)
    assert trees is not None
    scorer = PixelScorer(trees, index_of())
    patch = bands[:400].T.reshape(3, 20, 20).astype(np.float16)
    apart = trees.scores(patch).astype(np.float32)[1] + scorer.index.log_odds(patch) / 2  # type: ignore[union-attr]
    assert scorer.scores(patch)[1].astype(np.float32) == pytest.approx(apart.clip(-LIMIT, LIMIT), abs=0.02)
    assert np.array_equal(scorer.scores(patch)[0], -scorer.scores(patch)[1])
    save_tensors(tmp_path / "scorer.pt", scorer.to_dict())
    again = PixelScorer.from_dict(load_checkpoint(tmp_path / "scorer.pt"))
    assert np.array_equal(again.scores(patch), scorer.scores(patch))
    assert again.index == scorer.index
    assert PixelScorer.from_dict(PixelScorer(trees).to_dict()).index is None


def test_a_sum_of_nothing_has_no_difference() -> None:
    found = normalised_difference(np.array([0, 1, 5], np.float32), np.array([0, -1, 3], np.float32))
    assert found.tolist() == [0, 0, 0.25]
