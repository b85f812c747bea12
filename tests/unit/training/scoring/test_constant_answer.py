from __future__ import annotations

import numpy as np
import pytest

from unchoke.core.record import RunRecord
from unchoke.training.data import Problem
from unchoke.training.scoring.judge import judge
from unchoke.training.scoring.scores import ConstantAnswer

NAMES = ("rare", "common", "other")


def classes(outputs_right: float = 0.0, *, count: int = 100):
    """A train split that is mostly "common", and a test split of which 60 % are."""
    train = np.array([1] * 50 + [0] * 5 + [2] * 20)
    test = np.array([1] * (count * 6 // 10) + [0] * (count // 10) + [2] * (count * 3 // 10))
    splits = {"train": np.arange(75), "test": np.arange(75, 75 + len(test)), "val": np.arange(0)}
    problem = Problem("classification", NAMES, np.concatenate([train, test]), splits, [str(n) for n in range(75 + len(test))])
    outputs = np.tile(np.array([0, 3, 0], np.float32), (len(test), 1))
    told = np.random.default_rng(0).random(len(test)) < outputs_right
    outputs[told] = np.eye(3, dtype=np.float32)[test[told]] * 4
    return problem, outputs


def test_commonest_train_class_scored_on_test():
    problem, outputs = classes(0.9)
    found = judge({"test": outputs}, problem, seed=0).baseline
    assert found.answer == "common"
    assert found.metrics["test"]["accuracy"].value == pytest.approx(0.6)
    assert found.metrics["test"]["balanced_accuracy"].value == pytest.approx(1 / 3)
    gain = found.gains["test"]["accuracy"]
    assert gain.value == pytest.approx((outputs.argmax(axis=1) == problem.targets[75:]).mean() - 0.6)
    assert 0 < gain.low < gain.value < gain.high


def test_a_model_that_only_answers_so_gains_nothing():
    problem, outputs = classes(0.0)
    gain = judge({"test": outputs}, problem, seed=0).baseline.gains["test"]["accuracy"]
    assert gain.value == 0
    assert gain.low < 0 < gain.high


def test_photos_of_few_groups_say_less_about_the_gain():
    problem, outputs = classes(0.4)
    groups = [str(place // 10) for place in range(len(problem.targets))]
    plain, told = (judge({"test": outputs}, problem, seed=0, groups=g).baseline.gains["test"]["accuracy"] for g in (None, groups))
    assert told.value == plain.value
    assert told.high - told.low > 1.3 * (plain.high - plain.low)


@pytest.mark.parametrize("weights", [None, (1.0, 3.0)])
def test_the_mean_of_train_is_what_values_are_compared_with(weights):
    generator = np.random.default_rng(0)
    targets = generator.normal(size=(120, 2)).astype(np.float32) + np.array([3, 0])
    splits = {"train": np.arange(60), "test": np.arange(60, 120)}
    problem = Problem("regression", ("x", "y"), targets.astype(np.float32), splits, [str(n) for n in range(120)])
    good = (targets[60:] + generator.normal(size=(60, 2)) * 0.5).astype(np.float32)
    found = judge({"test": good}, problem, seed=0, weights=weights).baseline
    assert found.answers == pytest.approx({"x": targets[:60, 0].mean(), "y": targets[:60, 1].mean()}, rel=1e-5)
    assert found.metrics["test"]["r2"].value <= 0
    name = "r2" if weights is None else "weighted_r2"
    gain = found.gains["test"][name]
    assert 0 < gain.low < gain.value < gain.high
    bad = generator.normal(size=(60, 2)).astype(np.float32) + np.array([3, 0], np.float32)
    assert judge({"test": bad}, problem, seed=0, weights=weights).baseline.gains["test"][name].high < 0.3


def test_a_record_gives_the_same_answer_again():
    problem, _ = classes(0.9)
    counts = {"train": {"common": 50, "rare": 5, "other": 20}}
    record = RunRecord.of({"task": {"kind": "classification", "names": list(NAMES)}, "data": {"class_counts": counts}})
    assert ConstantAnswer.of_record(record) == ConstantAnswer.of_problem(problem)
    values = {"task": {"kind": "regression", "names": ["x"]}, "baseline": {"answers": {"x": 2.5}}}
    assert ConstantAnswer.of_record(RunRecord.of(values)).outputs == (2.5,)
    assert ConstantAnswer.of_record(RunRecord.of({"task": {"kind": "regression", "names": ["x"]}})) is None
