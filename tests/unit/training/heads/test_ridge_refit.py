from __future__ import annotations

import numpy as np
import pytest

from unchoke.training.data import ArraySource, Problem, fit_standardiser
from unchoke.training.scoring.learning_curve import RidgeRefit


def made(kind: str, *, count: int = 300, dim: int = 24, with_val: bool = True):
    generator = np.random.default_rng(0)
    feats = generator.normal(size=(count, dim)).astype(np.float16)
    signal = feats.astype(np.float32) @ generator.normal(size=(dim, 3)) + generator.normal(size=(count, 3))
    targets = signal.argmax(axis=1) if kind == "classification" else signal[:, :2].astype(np.float32) * [1, 100] + [0, 5000]
    names = ("a", "b", "c") if kind == "classification" else ("x", "y")
    splits = {"train": np.arange(200), "val": np.arange(200, 250 if with_val else 200), "test": np.arange(250, count)}
    return ArraySource(feats), Problem(kind, names, targets, splits, [str(n) for n in range(count)])


def expected(source: ArraySource, problem: Problem, part: np.ndarray, strength: float) -> np.ndarray:
    scale = fit_standardiser(source, problem.positions("train"))
    feats = (source.rows(np.arange(source.num_samples)).astype(np.float64) - scale.mean) / scale.std
    wanted = np.eye(3)[problem.targets] if problem.kind == "classification" else problem.targets
    from sklearn.linear_model import Ridge

    return Ridge(alpha=strength * source.dim).fit(feats[part], wanted[part]).predict(feats[problem.positions("test")])


@pytest.mark.parametrize("part", [np.arange(200), np.arange(0, 200, 4), np.arange(12)])
@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_a_part_of_the_photos_gives_scikit_learns_ridge(kind, part):
    source, problem = made(kind, with_val=False)
    outputs = RidgeRefit(source, problem, problem.positions("test"))(part)
    assert outputs == pytest.approx(expected(source, problem, part, 0.3), rel=1e-3, abs=2e-3)


def test_the_strength_is_the_one_that_does_best_on_val():
    source, problem = made("classification")
    refit = RidgeRefit(source, problem, problem.positions("test"))
    refit(np.arange(50))
    val = problem.positions("val")
    by_hand = {}
    for strength in (0.03, 0.1, 0.3, 1.0, 3.0):
        moved = Problem(problem.kind, problem.names, problem.targets, {**problem.splits, "test": val}, problem.sample_ids)
        outputs = expected(source, moved, np.arange(200), strength)
        wanted = np.eye(3)[problem.targets]
        by_hand[strength] = (((outputs - wanted[val]) ** 2).mean(axis=0) / wanted[:200].var(axis=0)).sum()
    assert refit.strength == min(by_hand, key=lambda strength: by_hand[strength])


def test_the_cost_grows_with_photos():
    source, problem = made("classification")
    refit = RidgeRefit(source, problem, problem.positions("test"))
    assert 0 < refit.cost(50) < refit.cost(100) < refit.cost(200)
    assert refit.fixed_cost > 0
