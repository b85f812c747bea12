from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from unchoke.data.targets import plan_targets
from unchoke.training.data import Problem
from unchoke.training.scoring.figures import pair_spread
from unchoke.training.scoring.selection import ClassVal, DeviceTargets, ValueVal, choose_metric


def test_declared_weights_make_the_weighted_r2_the_metric(plane):
    _, problem = plane
    weighted = choose_metric(problem, plan_targets(problem.names, weights={"small": 1, "large": 2}))
    assert weighted.value == "weighted_r2"
    assert choose_metric(problem, plan_targets(problem.names)).value == "r2"
    assert choose_metric(problem).value == "r2"


def test_where_no_r2_exists_the_loss_decides(plane):
    _, problem = plane
    flat = replace(problem, targets=np.full_like(problem.targets, 3.0))
    weights = {"small": 1, "large": 2}
    assert choose_metric(flat).value == "loss"
    assert choose_metric(flat, plan_targets(flat.names, weights=weights)).value == "loss"
    one_flat = replace(problem, targets=problem.targets * [0, 1] + [7, 0])
    assert choose_metric(one_flat, plan_targets(flat.names, weights={"small": 1, "large": 0})).value == "loss"


def test_one_val_sample_has_a_weighted_r2_but_no_plain_one(plane):
    _, problem = plane
    one = replace(problem, splits={**problem.splits, "val": problem.positions("val")[:1]})
    assert choose_metric(one).value == "loss"
    assert choose_metric(one, plan_targets(one.names, weights={"small": 1, "large": 2})).value == "weighted_r2"


def test_without_a_val_split_there_is_no_metric(plane):
    _, problem = plane
    assert choose_metric(replace(problem, splits={"train": problem.positions("train")})).value == "none"


def test_the_spread_of_pairs_counts_each_pair_by_its_weight():
    targets = np.array([[1.0, 10.0], [3.0, 30.0]], dtype=np.float32)
    pairs = [1.0, 3.0, *[10.0, 30.0] * 3]  # the second target three times
    assert pair_spread(targets, (1.0, 3.0)) == pytest.approx(np.var(pairs) * len(pairs))
    assert pair_spread(targets, (0.0, 3.0)) == pytest.approx(3 * 200.0)
    assert pair_spread(np.full((3, 2), 5.1, np.float32), (0.1, 0.2)) == 0.0


@pytest.mark.parametrize("metric", ["r2", "weighted_r2", "loss"])
def test_values_judged_in_batches_or_at_once(metric):
    generator = torch.Generator().manual_seed(0)
    targets, outputs = torch.randn(50, 2, generator=generator), torch.randn(50, 2, generator=generator)
    found = []
    for step in (50, 7):
        tally = ValueVal(targets=targets.numpy(), metric=metric, total_spread=80.0)
        for start in range(0, 50, step):
            tally.add(outputs[start : start + step], targets[start : start + step])
        found.append(tally.finish())
    assert found[0].metric == pytest.approx(found[1].metric)
    loss = float((outputs - targets).square().mean())
    assert found[0].loss == pytest.approx(loss)
    wanted = {"loss": -loss, "weighted_r2": 1 - loss * 100 / 80}
    if metric in wanted:
        assert found[0].metric == pytest.approx(wanted[metric])


def test_scores_can_be_taken_apart_as_metric_loss_and_curve():
    tally = ClassVal(supports=np.array([1, 3]), class_weights=torch.ones(2))
    tally.add(torch.eye(2)[[0, 0, 1, 1]] * 5, torch.tensor([0, 1, 1, 1]))
    metric, loss, values = tally.finish()
    assert values["val_accuracy"] == 0.75
    assert loss == values["val_loss"] > -metric == values["val_log_loss"] > 0


def test_selection_ignores_confidence():
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(0, 3, (400,), generator=generator)
    told = torch.nn.functional.one_hot(truth, 3) + torch.randn(400, 3, generator=generator)
    found = []
    for outputs in (told, 4 * told, told + torch.randn(400, 3, generator=generator)):
        tally = ClassVal(supports=torch.bincount(truth).numpy(), class_weights=torch.ones(3))
        tally.add(outputs, truth)
        found.append(tally.finish())
    plain, too_sure, worse = found
    assert plain.metric == pytest.approx(too_sure.metric, rel=0.01)
    assert too_sure.loss > 1.5 * plain.loss
    assert worse.metric < plain.metric


def test_selection_weighs_classes_as_asked():
    outputs, truth = torch.tensor([[0.0, 1.0], [0.0, 1.0]]), torch.tensor([0, 1])
    losses = []
    for weights in ([1.0, 1.0], [3.0, 1.0]):
        tally = ClassVal(supports=np.array([1, 1]), class_weights=torch.tensor(weights))
        tally.add(outputs, truth)
        losses.append(-tally.finish().metric)
    assert losses[1] > losses[0]


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
