"""Cross-validated plain heads: no sample is answered for by heads that saw it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from unchoke.training.data import ArraySource, Problem, fit_standardiser
from unchoke.training.heads import linear_path
from unchoke.training.heads.heads import HeadConfig
from unchoke.training.heads.linear_path import STRENGTHS, LinearPath, cross_validate, deal_folds
from unchoke.training.sampling import Rows, Scaler
from unchoke.training.scoring.selection import DeviceTargets

CPU = torch.device("cpu")


def path_over(made, config, *, saved=None):
    source, problem = made
    train = problem.positions("train")
    rows = Rows(source, train, Scaler.on(CPU, fit_standardiser(source, train)))
    return LinearPath(rows, DeviceTargets.of(problem, device=CPU), config, begin=saved)


def solved(made, config, epochs):
    path = path_over(made, config)
    for epoch in range(epochs):
        path.run_epoch(epoch)
    return path


def table(path):
    """All training rows and their positions, as arrays."""
    rows = path._data.rows
    chunks = [rows.chunk(number) for number in range(rows.num_chunks)]
    return torch.cat([feats for feats, _ in chunks]), torch.cat([where for _, where in chunks]).numpy()


def uneven(made):
    source, problem = made
    train = problem.positions("train")
    rare = train[problem.targets[train] == 0][:6]
    return source, replace(
        problem, splits={**problem.splits, "train": np.concatenate([train[problem.targets[train] != 0], rare])}
    )


@pytest.mark.parametrize("weights", ["none", "gentle", "balanced"])
@pytest.mark.parametrize("shape", [{"count": 300}, {"count": 40}, {"num_views": 3}])
def test_every_strength_equals_sklearn_logistic(mixture, monkeypatch, weights, shape):
    from sklearn.linear_model import LogisticRegression

    monkeypatch.setattr(linear_path, "_GAIN", 1e-9)
    made = uneven(mixture(spread=6.0, **shape))
    path = path_over(made, HeadConfig(solver="lbfgs", epochs=9, class_weights=weights))
    classes = DeviceTargets.of(made[1], device=CPU)
    for epoch in range(5):
        path.run_epoch(epoch)
        feats, where = table(path)
        truth = made[1].targets[where]
        known = LogisticRegression(C=1 / (STRENGTHS[epoch] * len(truth)), max_iter=5000, tol=1e-8)
        known.fit(feats.numpy(), truth, sample_weight=classes.class_weights(weights).numpy()[truth])
        ours = path.outputs(feats).log_softmax(dim=1).exp().numpy()
        assert np.abs(ours - known.predict_proba(feats.numpy())).max() < 5e-3


@pytest.mark.parametrize("count", [30, 400])
def test_every_strength_equals_sklearn_ridge(count):
    from sklearn.linear_model import Ridge

    generator = np.random.default_rng(1)
    feats = generator.normal(size=(count, 50)).astype(np.float32)
    targets = (feats[:, :2] * [1, 5] + generator.normal(size=(count, 2)) + [3, -100]).astype(np.float32)
    names = [str(number) for number in range(count)]
    made = ArraySource(feats), Problem("regression", ("a", "b"), targets, {"train": np.arange(count)}, names)
    path = path_over(made, HeadConfig(solver="lbfgs", epochs=9))
    scaled = DeviceTargets.of(made[1], device=CPU).targets.numpy()
    for epoch in range(len(STRENGTHS)):
        loss = path.run_epoch(epoch)
        rows, where = table(path)
        known = Ridge(alpha=STRENGTHS[epoch] * count).fit(rows.double().numpy(), scaled[where])
        ours = path.outputs(rows).numpy()
        assert np.abs(ours - known.predict(rows.double().numpy())).max() < 1e-3
        assert loss == pytest.approx(float(((ours - scaled[where]) ** 2).mean()), rel=1e-3, abs=1e-6)


def test_a_given_penalty_is_solved_for_alone(mixture):
    made = mixture(spread=6.0)
    alone = solved(made, HeadConfig(solver="lbfgs", epochs=1, weight_decay=STRENGTHS[2]), 1)
    along = solved(made, HeadConfig(solver="lbfgs", epochs=9), 3)
    assert alone.pace(0) == {"strength": STRENGTHS[2]}
    torch.testing.assert_close(alone.params["weight"], along.params["weight"], rtol=0.1, atol=0.02)


def test_linear_path_resume_same_bytes(mixture):
    made, config = mixture(spread=6.0), HeadConfig(solver="lbfgs", epochs=9)
    unbroken = solved(made, config, 5).params
    path = solved(made, config, 3)
    other = path_over(made, config, saved=path.state()["params"])
    for epoch in (3, 4):
        other.run_epoch(epoch)
    assert all(torch.equal(other.params[name], tensor) for name, tensor in unbroken.items())


def test_rows_that_are_not_kept_give_the_same_head(mixture, monkeypatch):
    made, config = mixture(spread=6.0, num_views=2), HeadConfig(solver="lbfgs", epochs=9)
    kept = solved(made, config, 3).params
    monkeypatch.setattr(linear_path, "HELD_BYTES", 0)
    read = solved(made, config, 3).params
    assert all(torch.equal(kept[name], read[name]) for name in kept)


def test_absent_classes_and_constant_features():
    feats = np.zeros((20, 6), np.float32)
    feats[:10, 0] = 1.0
    names = [str(number) for number in range(20)]
    problem = Problem("classification", ("a", "b", "never"), np.repeat([0, 1], 10), {"train": np.arange(20)}, names)
    path = solved((ArraySource(feats), problem), HeadConfig(solver="lbfgs", epochs=9), 9)
    outputs = path.outputs(table(path)[0])
    assert torch.isfinite(outputs).all()
    assert (outputs.argmax(dim=1).numpy() == problem.targets).all()


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


def test_folds_hold_groups_whole_and_classes_even() -> None:
    classes = [place % 3 for place in range(150)]
    folds = deal_folds(classes, [f"photo {place}" for place in range(150)])
    assert np.bincount(folds).tolist() == [30] * 5
    assert all(np.bincount(folds[np.array(classes) == one], minlength=5).tolist() == [10] * 5 for one in range(3))
    units = [f"group {place // 5}" for place in range(150)]
    grouped = deal_folds(classes, units)
    assert all(len({int(grouped[place]) for place in range(150) if units[place] == unit}) == 1 for unit in set(units))
