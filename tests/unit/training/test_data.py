from __future__ import annotations

from dataclasses import replace

import numpy as np

from errors import refused
from unchoke.training import data
from unchoke.training.data import ArraySource, check_problem, fit_standardiser


def test_the_standardiser_equals_numpy_over_chunks(monkeypatch):
    monkeypatch.setattr(data, "CHUNK_VALUES", 4 * 8 * 7)
    feats = np.random.default_rng(0).normal(3, 2, size=(100, 8)).astype(np.float16)
    positions = np.random.default_rng(1).permutation(100)[:61]
    fitted = fit_standardiser(ArraySource(feats), positions)
    rows = feats[positions].astype(np.float64)
    np.testing.assert_allclose(fitted.mean, rows.mean(axis=0), rtol=1e-6)
    deviations = rows.std(axis=0)
    np.testing.assert_allclose(fitted.std, np.maximum(deviations, np.median(deviations)), rtol=1e-6)


def test_nearly_constant_feature_not_blown_up():
    feats = np.random.default_rng(0).normal(size=(4, 101)).astype(np.float16)
    feats[:, 0] = [1.0, 1.0, 1.0, 1.002]
    assert fit_standardiser(ArraySource(feats), np.arange(4)).std[0] > 0.3


def test_a_feature_that_never_varies_keeps_deviation_one():
    feats = np.full((50, 3), 7.7, dtype=np.float16)
    assert fit_standardiser(ArraySource(feats), np.arange(50)).std.tolist() == [1.0, 1.0, 1.0]


def test_features_that_are_not_finite_are_refused():
    feats = np.zeros((4, 2), dtype=np.float16)
    feats[2, 1] = np.inf
    with refused("features-not-finite", "1 feature rows"):
        fit_standardiser(ArraySource(feats), np.arange(4))


def test_only_the_rows_asked_for_shape_the_standardiser():
    feats = np.concatenate([np.zeros((10, 2)), np.full((10, 2), 100.0)])
    assert fit_standardiser(ArraySource(feats), np.arange(10)).mean.tolist() == [0.0, 0.0]


def test_a_sample_in_two_splits_is_named(mixture):
    source, problem = mixture()
    splits = {**problem.splits, "val": np.append(problem.splits["val"], problem.splits["train"][0])}
    name = problem.sample_ids[problem.splits["train"][0]]
    with refused("untrainable", f"({name})"):
        check_problem(replace(problem, splits=splits), source)


def test_an_empty_train_split_is_refused(mixture):
    source, problem = mixture()
    with refused("untrainable", "train split"):
        check_problem(replace(problem, splits={"train": np.array([], dtype=np.int64)}), source)


def test_every_shape_fault_is_listed_at_once(mixture):
    source, problem = mixture()
    with refused("untrainable", "299 targets", "300 samples", "2 sample ids"):
        check_problem(replace(problem, targets=problem.targets[1:], sample_ids=["a", "b"]), source)


def test_class_out_of_range_refused_where_used(mixture):
    source, problem = mixture()
    targets = problem.targets.copy()
    targets[0] = -1
    without = {name: positions[positions != 0] for name, positions in problem.splits.items()}
    check_problem(replace(problem, targets=targets, splits=without), source)
    with refused("untrainable", "1 samples", "class"):
        check_problem(replace(problem, targets=targets), source)


def test_a_missing_target_is_refused(plane):
    source, problem = plane
    targets = problem.targets.copy()
    targets[3, 1] = np.nan
    with refused("untrainable", "(id-3)"):
        check_problem(replace(problem, targets=targets), source)


def test_the_digest_follows_targets_splits_and_ids(mixture):
    _, problem = mixture()
    other_targets = replace(problem, targets=np.roll(problem.targets, 1))
    other_ids = replace(problem, sample_ids=list(reversed(problem.sample_ids)))
    other_splits = replace(problem, splits={"train": problem.splits["train"]})
    digests = {each.digest() for each in (problem, other_targets, other_ids, other_splits)}
    assert len(digests) == 4
