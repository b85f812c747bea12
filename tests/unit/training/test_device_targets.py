from __future__ import annotations

import numpy as np
import pytest
import torch

from unchoke.training.data import Problem
from unchoke.training.scoring.selection import DeviceTargets

CPU = torch.device("cpu")


def uneven() -> DeviceTargets:
    targets = np.repeat([0, 1, 2], [90, 10, 5])
    splits = {"train": np.arange(100), "val": np.arange(100, 105)}
    return DeviceTargets.of(Problem("classification", tuple("abc"), targets, splits, [str(i) for i in range(105)]), device=CPU)


@pytest.mark.parametrize("weighting", ["none", "tempered", "balanced"])
def test_weights_average_to_one_over_the_train_split(weighting):
    weights = uneven().class_weights(weighting).numpy()
    assert (weights[:2] * [90, 10]).sum() / 100 == pytest.approx(1.0)


def test_balanced_and_tempered_class_weights():
    ratios = [float(weights[1] / weights[0]) for weights in map(uneven().class_weights, ("none", "tempered", "balanced"))]
    assert ratios == pytest.approx([1.0, 3.0, 9.0])


def test_the_first_bias_is_how_much_each_class_counts():
    chances = [bias.softmax(0) for bias in map(uneven().first_bias, ("none", "balanced"))]
    assert chances[0].tolist() == pytest.approx([91 / 103, 11 / 103, 1 / 103])
    assert chances[1].tolist() == pytest.approx([1 / 3] * 3)


def test_regression_targets_standardised_on_train(plane):
    _, problem = plane
    task = DeviceTargets.of(problem, device=CPU)
    train = task.targets[problem.positions("train")]
    torch.testing.assert_close(train.mean(dim=0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(train.std(dim=0, unbiased=False), torch.ones(2), atol=1e-5, rtol=0)
    np.testing.assert_allclose(task.targets.numpy() * task.scale.std + task.scale.mean, problem.targets, rtol=1e-3, atol=1e-2)


def test_a_target_that_never_varies_stays_finite():
    problem = Problem("regression", ("x",), np.full((4, 1), 7.0, np.float32), {"train": np.arange(4)}, list("abcd"))
    assert DeviceTargets.of(problem, device=CPU).targets.tolist() == [[0.0]] * 4
