"""Cross-validated plain heads: no sample is answered for by heads that saw it."""

from __future__ import annotations

import numpy as np
import pytest

from unchoke.training.heads.linear_path import cross_validate, deal_folds

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def clusters(num: int = 120, dim: int = 30) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    classes = np.arange(num, dtype=np.int64) % 3
    return (random.normal(size=(3, dim))[classes] + random.normal(size=(num, dim))).astype(np.float16), classes


def test_classes_that_lie_apart_are_told_apart() -> None:
    feats, classes = clusters()
    held = cross_validate(feats, "classification", ("a", "b", "c"), classes, deal_folds(classes, list(map(str, range(120)))))
    assert held.outputs.shape == (120, 3)
    assert (held.outputs.argmax(axis=1) == classes).mean() > 0.9


def test_labels_without_any_meaning_are_not_learnt() -> None:
    feats, _ = clusters(dim=300)
    chance = np.random.default_rng(1).integers(0, 3, 120)
    held = cross_validate(feats, "classification", ("a", "b", "c"), chance, deal_folds(chance, list(map(str, range(120)))))
    assert (held.outputs.argmax(axis=1) == chance).mean() < 0.55, "heads answered for samples they had seen"


def test_values_come_back_on_their_own_scale() -> None:
    feats, _ = clusters()
    values = (100 + 10 * feats[:, :2].astype(np.float32)).astype(np.float32)
    held = cross_validate(feats, "regression", ("x", "y"), values, np.arange(120) % 5)
    assert np.corrcoef(held.outputs[:, 0], values[:, 0])[0, 1] > 0.9
    assert abs(held.outputs.mean() - 100) < 5


def test_the_same_again_is_the_same() -> None:
    feats, classes = clusters()
    folds = deal_folds(classes, list(map(str, range(120))))
    one, other = (cross_validate(feats, "classification", ("a", "b", "c"), classes, folds) for _ in range(2))
    assert np.array_equal(one.outputs, other.outputs)
    assert one.strength == other.strength


def test_folds_hold_groups_whole_and_classes_even() -> None:
    classes = [place % 3 for place in range(150)]
    folds = deal_folds(classes, [f"photo {place}" for place in range(150)])
    assert np.bincount(folds).tolist() == [30] * 5
    assert all(np.bincount(folds[np.array(classes) == one], minlength=5).tolist() == [10] * 5 for one in range(3))
    units = [f"group {place // 5}" for place in range(150)]
    grouped = deal_folds(classes, units)
    assert all(len({int(grouped[place]) for place in range(150) if units[place] == unit}) == 1 for unit in set(units))
