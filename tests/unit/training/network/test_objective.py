from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from errors import refused
from unchoke.data.targets import plan_targets
from unchoke.training.data import Problem
from unchoke.training.network.objective import Objective
from unchoke.training.scoring.scores import score
from unchoke.training.scoring.selection import DeviceTargets, choose_metric

CPU = torch.device("cpu")
NAMES = ("clover", "dead", "green", "gdm", "total")
SUMS = {"gdm": ("green", "clover"), "total": ("gdm", "dead")}
WEIGHTS = {"clover": 0.1, "dead": 0.1, "green": 0.1, "gdm": 0.2, "total": 0.5}
SPLITS = {"train": np.arange(0, 60), "val": np.arange(60, 85), "test": np.arange(85, 100)}


def classes(num_classes: int = 4) -> Problem:
    targets = np.random.default_rng(0).choice(num_classes, size=100, p=np.arange(1, num_classes + 1) / 10)
    return Problem("classification", tuple("abcd"), targets, SPLITS, [str(i) for i in range(100)])


def pasture() -> Problem:
    """Targets whose sums in the table are off by a little, as measured ones are."""
    generator = np.random.default_rng(0)
    clover, dead, green = generator.gamma(2.0, [[4.0], [6.0], [12.0]], size=(3, 100))
    values = np.stack([clover, dead, green, green + clover, green + clover + dead], axis=1)
    values[:, 3:] += generator.normal(size=(100, 2))
    return Problem("regression", NAMES, values.astype(np.float32), SPLITS, [str(i) for i in range(100)])


def outputs_like(rows: torch.Tensor, *, noise: float) -> torch.Tensor:
    return rows + noise * torch.randn(rows.shape, generator=torch.Generator().manual_seed(1))


def logits(count: int = 100) -> torch.Tensor:
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("weighted", [True, False])
def test_the_mean_loss_on_train_is_one_minus_the_r2_there(weighted):
    problem = pasture()
    plan = plan_targets(NAMES, sums=SUMS, weights=WEIGHTS if weighted else None)
    objective, train = Objective.of(problem, plan, device=CPU), problem.positions("train")
    rows = objective.target_rows(train)
    outputs = outputs_like(rows, noise=5.0)
    found = score("regression", NAMES, outputs.numpy(), rows.numpy(), seed=0, bootstrap=0, weights=plan.weights).values
    r2 = found["weighted_r2" if weighted else "r2"].value
    assert 1 - float(objective.losses(outputs, rows).mean()) == pytest.approx(r2, rel=1e-5)


@pytest.mark.parametrize("weighted", [True, False])
def test_the_val_tally_gives_the_figures_a_person_will_see(weighted):
    problem = pasture()
    plan = plan_targets(NAMES, weights=WEIGHTS if weighted else None)
    objective, val = Objective.of(problem, plan, device=CPU), problem.positions("val")
    outputs = outputs_like(objective.target_rows(val), noise=5.0)
    metric = choose_metric(problem, plan).value
    tally = objective.start_val(val, metric)
    for start in range(0, len(val), 7):
        tally.add(outputs[start : start + 7].numpy(), val[start : start + 7])
    found, loss, values = tally.finish()
    shown = score("regression", NAMES, outputs.numpy(), problem.targets[val], seed=0, bootstrap=0, weights=plan.weights).values
    assert found == values[f"val_{metric}"] == pytest.approx(shown[metric].value, rel=1e-5)
    assert loss == pytest.approx(float(objective.losses(outputs, objective.target_rows(val)).mean()), rel=1e-5)


def test_val_tally_counts_hits_and_plain_loss():
    problem = classes()
    objective, val = Objective.of(problem, label_smoothing=0.1, class_weights="balanced", device=CPU), problem.positions("val")
    tally = objective.start_val(val, "accuracy")
    tally.add(logits()[val][:10], val[:10])
    tally.add(logits()[val][10:], val[10:])
    metric, loss, values = tally.finish()
    truth = torch.from_numpy(problem.targets[val])
    assert values["val_accuracy"] == pytest.approx(float((logits()[val].argmax(1) == truth).float().mean()))
    assert -metric == values["val_log_loss"] <= loss
    assert loss == pytest.approx(float(F.cross_entropy(logits()[val], truth)), rel=1e-5)


def test_plain_class_losses_are_torchs_cross_entropy():
    problem = classes()
    rows = torch.from_numpy(problem.targets)
    for smoothing in (0.0, 0.1):
        losses = Objective.of(problem, label_smoothing=smoothing, device=CPU).losses(logits(), rows)
        torch.testing.assert_close(losses, F.cross_entropy(logits(), rows, label_smoothing=smoothing, reduction="none"))


def test_class_weights_multiply_each_samples_loss():
    problem = classes()
    rows = torch.from_numpy(problem.targets)
    plain, weighted = (
        Objective.of(problem, class_weights=each, device=CPU).losses(logits(), rows) for each in ("none", "balanced")
    )
    weights = DeviceTargets.of(problem, device=CPU).class_weights("balanced")
    torch.testing.assert_close(weighted, plain * weights[rows])


@pytest.mark.parametrize(("class_weights", "smoothing"), [("none", 0.2), ("balanced", 0.0), ("balanced", 0.2)])
def test_loss_of_mixed_classes_is_mix_of_losses(class_weights, smoothing):
    problem = classes()
    objective = Objective.of(problem, label_smoothing=smoothing, class_weights=class_weights, device=CPU)
    own, partner = np.arange(100), np.roll(np.arange(100), 1)
    shares = torch.rand(100, generator=torch.Generator().manual_seed(2))
    mixed = torch.lerp(objective.target_rows(partner, soft=True), objective.target_rows(own, soft=True), shares.unsqueeze(1))
    one, other = (objective.losses(logits(), objective.target_rows(positions)) for positions in (own, partner))
    torch.testing.assert_close(objective.losses(logits(), mixed), shares * one + (1 - shares) * other)


def test_soft_one_hot_same_loss_as_class():
    problem = classes()
    objective = Objective.of(problem, label_smoothing=0.1, class_weights="tempered", device=CPU)
    everyone = np.arange(100)
    hard, soft = (objective.losses(logits(), objective.target_rows(everyone, soft=each)) for each in (False, True))
    torch.testing.assert_close(hard, soft)


def test_values_in_own_units_soft_or_not():
    problem = pasture()
    objective = Objective.of(problem, device=CPU)
    where = np.array([5, 3, 99])
    np.testing.assert_array_equal(objective.target_rows(where, soft=True).numpy(), problem.targets[where])


@pytest.mark.parametrize("kind", ["classes", "values"])
def test_parts_of_a_batch_add_up_to_its_mean(kind):
    if kind == "classes":
        objective, outputs = Objective.of(classes(), class_weights="balanced", device=CPU), logits()
    else:
        problem = pasture()
        objective = Objective.of(problem, plan_targets(NAMES, weights=WEIGHTS), device=CPU)
        outputs = outputs_like(torch.from_numpy(problem.targets), noise=9.0)
    rows = objective.target_rows(np.arange(100))
    whole = objective.losses(outputs, rows).mean()
    parts = sum(objective.losses(outputs[i : i + 33], rows[i : i + 33]).sum() / 100 for i in range(0, 100, 33))
    torch.testing.assert_close(parts, whole)


def test_half_precision_outputs_are_judged_in_full():
    objective = Objective.of(classes(), device=CPU)
    losses = objective.losses(logits().bfloat16(), objective.target_rows(np.arange(100)))
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, objective.losses(logits().bfloat16().float(), objective.target_rows(np.arange(100))))


def test_a_weight_of_zero_leaves_a_target_out_of_the_loss():
    problem = pasture()
    objective = Objective.of(problem, plan_targets(NAMES, weights={**WEIGHTS, "total": 0.0}), device=CPU)
    rows = objective.target_rows(np.arange(10))
    assert objective.losses(rows + torch.tensor([0, 0, 0, 0, 100.0]), rows).tolist() == [0.0] * 10


def test_targets_that_never_vary_give_a_finite_loss():
    problem = replace(pasture(), targets=np.full((100, 5), 7.0, np.float32))
    for weights in (None, WEIGHTS):
        objective = Objective.of(problem, plan_targets(NAMES, weights=weights), device=CPU)
        rows = objective.target_rows(np.arange(4))
        assert objective.losses(rows + 1, rows).tolist() == pytest.approx([1.0] * 4)


def test_only_learned_targets_have_an_output():
    objective = Objective.of(pasture(), plan_targets(NAMES, sums=SUMS), device=CPU)
    assert objective.num_outputs == 3
    means = pasture().targets[:60, :3].mean(axis=0)
    np.testing.assert_allclose(objective.scale.mean.numpy(), means, rtol=1e-5)


def test_positive_outputs_begin_at_the_train_mean():
    problem = pasture()
    problem.targets[:, 1] = 0.0
    scale = Objective.of(problem, plan_targets(NAMES, sums=SUMS, positive=True), device=CPU).scale
    first = F.softplus(scale.bias) * scale.std + scale.mean
    np.testing.assert_allclose(first.numpy(), problem.targets[:60, :3].mean(axis=0), rtol=1e-5, atol=1e-3)


def test_classes_begin_with_how_often_they_occur():
    problem = classes()
    scale = Objective.of(problem, class_weights="none", device=CPU).scale
    torch.testing.assert_close(scale.bias, DeviceTargets.of(problem, device=CPU).first_bias("none"))


def test_negative_targets_are_refused_where_outputs_are_positive():
    problem = pasture()
    problem.targets[3, 0] = -1.0
    with refused("negative-targets", "clover"):
        Objective.of(problem, plan_targets(NAMES, positive=True), device=CPU)
