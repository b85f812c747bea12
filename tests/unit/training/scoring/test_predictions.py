from __future__ import annotations

import numpy as np
import pytest

from unchoke.training.scoring.figures import softmax
from unchoke.training.scoring.predictions import MAX_CLASSES, TOP_KEPT, class_columns, kept_columns, round_digits

NAMES = ("a", "b", "c")
LOGITS = np.array([[3, 1, 0], [0, 0.5, 4]], dtype=np.float32)


def test_guesses_come_with_the_likeliest_first():
    found = class_columns(LOGITS, NAMES, 2.0, top=2)
    assert list(found) == ["predicted", "confidence", "predicted_2", "confidence_2"]
    assert found["predicted"].tolist() == ["a", "c"]
    assert found["predicted_2"].tolist() == ["b", "b"]
    chances = np.sort(softmax(LOGITS / 2), axis=1)
    assert found["confidence_2"] == pytest.approx(chances[:, 1], abs=1e-6)


def test_every_probability_is_calibrated_and_adds_up_to_one():
    found = class_columns(LOGITS, NAMES, 2.0, every_class=True)
    chances = np.stack([found[f"p/{name}"] for name in NAMES], axis=1)
    assert chances == pytest.approx(softmax(LOGITS / 2), rel=1e-5)
    assert chances.max(axis=1) == pytest.approx(found["confidence"], abs=1e-6)
    assert "predicted_2" not in found


def test_more_guesses_than_classes_are_all_classes():
    assert list(class_columns(LOGITS, NAMES, 1.0, top=9))[-1] == "confidence_3"


def test_many_classes_keep_few_guesses_and_truth():
    names = tuple(f"c{number}" for number in range(MAX_CLASSES + 1))
    logits = np.random.default_rng(0).normal(size=(5, len(names))).astype(np.float32)
    targets = np.arange(5)
    found = kept_columns(logits, targets, names, 1.0)
    assert len(found) == 2 * TOP_KEPT + 1
    assert found["truth_confidence"] == pytest.approx(softmax(logits)[np.arange(5), targets], rel=1e-5)
    assert len(kept_columns(logits[:, :100], targets, names[:100], 1.0)) == 102


def test_small_probabilities_keep_their_digits():
    assert round_digits(np.array([1.23456789e-9, 0.0, 0.5])).tolist() == [1.23457e-9, 0.0, 0.5]
