from __future__ import annotations

import numpy as np
import pytest

from unchoke.training.data import Problem
from unchoke.training.scoring.figures import log_losses
from unchoke.training.scoring.judge import judge, number_groups, predictions_table

NAMES = ("a", "b", "c")


def too_sure(count: int = 300):
    """Val and test whose logits are four times too sure."""
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(2 * count, 3)) * 2
    targets = (logits + generator.gumbel(size=logits.shape)).argmax(axis=1)
    splits = {"train": np.arange(0), "val": np.arange(count), "test": np.arange(count, 2 * count)}
    problem = Problem("classification", NAMES, targets, splits, [str(n) for n in range(2 * count)])
    sure = (logits * 4).astype(np.float32)
    return problem, {"val": sure[:count], "test": sure[count:]}


def test_scores_of_calibrated_probabilities():
    problem, outputs = too_sure()
    judged = judge(outputs, problem, seed=0)
    test = judged.scores["test"].values
    assert test["log_loss"].value == pytest.approx(judged.calibration.log_loss_after, rel=1e-5)
    assert test["ece"].value == pytest.approx(judged.calibration.ece_after, abs=1e-6)
    assert test["log_loss"].value < judged.calibration.log_loss_before / 1.5
    assert judged.outputs["test"] is outputs["test"]


def test_val_is_judged_by_temperatures_that_did_not_see_it():
    problem, outputs = too_sure(40)
    judged = judge(outputs, problem, seed=0)
    val = judged.scores["val"].values["log_loss"].value
    targets = problem.targets[problem.positions("val")]
    on_itself = float(log_losses(outputs["val"] / judged.temperature, targets).mean())
    assert on_itself < val < float(log_losses(outputs["val"], targets).mean())


def test_samples_without_a_group_stand_alone():
    where = np.arange(4)
    assert number_groups(["x", "", "x", ""], where).tolist() == [0, 1, 0, 2]
    assert number_groups(["", "", "", ""], where) is None
    assert number_groups(["1", "2", "3", "4"], where) is None
    assert number_groups(None, where) is None


def test_predictions_keep_the_group_where_there_is_one():
    problem, outputs = too_sure(30)
    judged = judge(outputs, problem, seed=0)
    import pandas as pd

    frame = pd.DataFrame({"sample_id": problem.sample_ids, "group": [f"g{n // 2}" for n in range(60)]})
    table = predictions_table(judged, problem, frame)
    assert table["group"].tolist() == frame["group"].tolist()
    assert "group" not in predictions_table(judged, problem, frame.assign(group=""))
