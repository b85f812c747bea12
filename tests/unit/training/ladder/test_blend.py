from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from unchoke.training.data import Problem
from unchoke.training.ladder.blend import Share, ValLoss, blend, choose_shares
from unchoke.training.scoring.figures import softmax

NUM = 600


@pytest.fixture
def problem():
    truth = np.random.default_rng(0).integers(0, 3, NUM)
    splits = {"train": np.arange(0, 300), "val": np.arange(300, NUM)}
    return Problem("classification", ("a", "b", "c"), truth, splits, [str(number) for number in range(NUM)])


def guesses(problem, *, noise, seed, sharpness=1.0):
    """Logits of a model for the val split: the truth under noise of its own."""
    truth = problem.targets[problem.positions("val")]
    drawn = np.random.default_rng(seed).normal(size=(len(truth), 3)) * noise
    return (sharpness * (np.eye(3)[truth] * 2 + drawn)).astype(np.float32)


def test_models_that_err_apart_answer_better_together(problem):
    models = [guesses(problem, noise=1.5, seed=seed) for seed in (1, 2)]
    loss = ValLoss.of(problem)
    shares = choose_shares(models, loss)
    assert all(0.2 < share.weight < 0.8 for share in shares)
    alone = min(
        loss(blend([one], [Share(1.0, share.temperature)], "classification")) for one, share in zip(models, shares, strict=True)
    )
    assert loss(blend(models, shares, "classification")) < 0.95 * alone


def test_a_poor_model_gets_no_share_and_one_alone_gets_all(problem):
    good, poor = guesses(problem, noise=1.0, seed=1), guesses(problem, noise=50.0, seed=2)
    assert [share.weight for share in choose_shares([good, poor], ValLoss.of(problem))] == [1.0, 0.0]
    assert [share.weight for share in choose_shares([good], ValLoss.of(problem))] == [1.0]


def test_shares_even_with_few_val_samples(problem):
    better, worse = guesses(problem, noise=1.0, seed=1), guesses(problem, noise=1.2, seed=2)
    few = replace(problem, splits={"train": np.arange(0, 300), "val": np.arange(300, 330)})
    spread = [choose_shares([better[:num], worse[:num]], ValLoss.of(one)) for num, one in ((30, few), (300, problem))]
    (first, second), (trusted, other) = ([share.weight for share in shares] for shares in spread)
    assert 0.45 < second < first < 0.6
    assert trusted > first
    assert trusted + other == pytest.approx(1)


def test_overconfident_model_calibrated_before_blend(problem):
    sure = guesses(problem, noise=1.5, seed=1, sharpness=10.0)
    (share,) = choose_shares([sure], ValLoss.of(problem))
    assert share.temperature == pytest.approx(10 * choose_shares([sure / 10], ValLoss.of(problem))[0].temperature, rel=0.01)


def test_blend_is_log_of_mean_probabilities(problem):
    one, other = (guesses(problem, noise=1.5, seed=seed) for seed in (1, 2))
    together = blend([one, other], [Share(0.25, 2.0), Share(0.75, 1.0)], "classification")
    assert softmax(together) == pytest.approx(0.25 * softmax(one / 2) + 0.75 * softmax(other), abs=1e-6)


def test_values_averaged_by_target_spread():
    generator = np.random.default_rng(0)
    truth = (generator.normal(size=(50, 2)) * [1, 1000]).astype(np.float32)
    problem = Problem("regression", ("a", "b"), truth, {"val": np.arange(50)}, [str(number) for number in range(50)])
    loss = ValLoss.of(problem)
    off_a, off_b = truth + np.float32([[0.5, 0]]), truth + np.float32([[0, 500]])
    assert loss(off_a) == pytest.approx(loss(off_b), rel=0.5)
    assert ValLoss.of(problem, (1.0, 0.0))(off_b) == 0
    assert blend([off_a, truth], [Share(0.5), Share(0.5)], "regression") == pytest.approx(
        truth + np.float32([[0.25, 0]]), rel=1e-5
    )


def test_network_is_heard_only_if_it_helps_beyond_chance(problem):
    heads, alike, better = (guesses(problem, noise=noise, seed=seed) for noise, seed in ((1.0, 1), (2.5, 2), (0.5, 3)))
    loss = ValLoss.of(problem)
    assert [share.weight for share in choose_shares([heads, alike], loss, [False, True])] == [1.0, 0.0]
    assert choose_shares([heads, better], loss, [False, True])[1].weight > 0.5
    assert choose_shares([alike], loss, [True])[0].weight == 1.0
