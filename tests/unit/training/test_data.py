"""Samples become targets and positions, and what cannot be learnt is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from errors import refused
from unchoke.data.sample_set import Samples, TaskSpec
from unchoke.training import data
from unchoke.training.data import ArraySource, build_problem, check_problem, digest_judged, fit_standardiser, summarise


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


IDS = [f"s{number}" for number in range(6)]
CONTENTS = pd.Series([f"c{number}" for number in range(6)])
ALL = np.ones(6, np.bool_)


def classes(labels: str = "abacba", splits: str = "ttttve") -> Samples:
    names = {"t": "train", "v": "val", "e": "test"}
    frame = pd.DataFrame({"sample_id": IDS, "label": list(labels), "split": [names[one] for one in splits]})
    return Samples(TaskSpec("classification", ("a", "b", "c")), frame)


def numbers() -> Samples:
    frame = pd.DataFrame(
        {"sample_id": IDS, "mass": np.arange(6.0), "height": np.arange(6.0) * 2, "split": ["train"] * 5 + ["test"]}
    )
    return Samples(TaskSpec("regression", ("height", "mass")), frame)


def with_inputs(ndvi: list[float], name: str = "ndvi") -> Samples:
    return replace(
        numbers(), frame=numbers().frame.assign(**{f"input/{name}": ndvi, "input/age": np.arange(6.0)}), inputs=(name, "age")
    )


def test_labels_become_numbers_in_the_order_of_the_names() -> None:
    problem = build_problem(classes(), CONTENTS, ALL).problem
    assert problem.targets.tolist() == [0, 1, 0, 2, 1, 0]
    assert {split: where.tolist() for split, where in problem.splits.items()} == {"train": [0, 1, 2, 3], "val": [4], "test": [5]}


def test_targets_keep_the_order_of_the_task() -> None:
    problem = build_problem(numbers(), CONTENTS, ALL).problem
    assert problem.targets[3].tolist() == [6.0, 3.0]
    assert problem.targets.dtype == np.float32


def test_only_kept_samples_count_and_positions_follow_them() -> None:
    kept = np.array([True, True, False, False, True, True])
    learnable = build_problem(classes(), CONTENTS, kept)
    assert learnable.problem.sample_ids == ["s0", "s1", "s4", "s5"]
    assert learnable.problem.splits["test"].tolist() == [3]
    assert learnable.frame["sample_id"].tolist() == learnable.problem.sample_ids


def test_key_follows_labels_splits_contents_members() -> None:
    same = build_problem(classes(), CONTENTS, ALL).key
    moved = replace(classes(), frame=classes().frame.assign(path="elsewhere"))
    assert build_problem(moved, CONTENTS, ALL).key == same
    others = [
        build_problem(classes(labels="abacbb"), CONTENTS, ALL),
        build_problem(classes(splits="tttvve"), CONTENTS, ALL),
        build_problem(classes(), CONTENTS.replace("c5", "edited"), ALL),
        build_problem(classes(), CONTENTS, np.array([True] * 5 + [False])),
    ]
    assert len({same, *(other.key for other in others)}) == 5


@pytest.mark.parametrize(("samples", "data"), [(classes(splits="vvvvve"), "0 samples"), (classes(labels="aaaaba"), "4 samples")])
def test_a_train_split_with_nothing_to_learn_is_refused(samples: Samples, data: str) -> None:
    with refused("untrainable", data):
        build_problem(samples, CONTENTS, ALL)


def test_what_was_judged_is_told_by_ids_contents_and_labels() -> None:
    same = digest_judged(build_problem(classes(), CONTENTS, ALL))
    edited = digest_judged(build_problem(classes(), CONTENTS.replace("c5", "edited"), ALL))
    relabelled = digest_judged(build_problem(classes(labels="abacbb"), CONTENTS, ALL))
    assert edited["split_digests"] == relabelled["split_digests"] == same["split_digests"]
    assert [split for split, one in edited["content_digests"].items() if one != same["content_digests"][split]] == ["test"]
    assert edited["label_digests"] == same["label_digests"]
    assert relabelled["content_digests"] == same["content_digests"]
    assert [split for split, one in relabelled["label_digests"].items() if one != same["label_digests"][split]] == ["test"]


def test_summary_by_split_and_class_or_target() -> None:
    summary = summarise(build_problem(classes(), CONTENTS, ALL), source="photos", num_quarantined=2)
    assert (summary.num_samples, summary.num_quarantined, summary.splits) == (6, 2, {"train": 4, "val": 1, "test": 1})
    assert (summary.class_counts or {})["train"] == {"a": 2, "b": 1, "c": 1}
    described = summarise(build_problem(numbers(), CONTENTS, ALL), source="t.csv", num_quarantined=0)
    assert (described.targets_summary or {})["height"]["max"] == 10.0


def test_inputs_are_rows_of_floats_for_the_kept_samples() -> None:
    kept = np.array([True, False, True, True, True, True])
    learnable = build_problem(with_inputs([0.0, 0.1, 0.2, 0.3, 0.4, 0.5]), CONTENTS, kept)
    assert learnable.inputs is not None
    assert (learnable.inputs.dtype, learnable.inputs.shape, learnable.input_names) == (np.float32, (5, 2), ("ndvi", "age"))
    assert learnable.inputs[1].tolist() == [np.float32(0.2), 2.0]
    assert build_problem(numbers(), CONTENTS, ALL).inputs is None
    summary = summarise(learnable, source="t.csv", num_quarantined=0).inputs_summary or {}
    assert summary["age"]["max"] == 5.0


def test_the_key_changes_with_the_inputs_and_their_names() -> None:
    values = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    variants = [numbers(), with_inputs(values), with_inputs([*values[:5], 0.6]), with_inputs(values, name="height")]
    assert len({build_problem(samples, CONTENTS, ALL).key for samples in variants}) == 4
    assert build_problem(with_inputs(values), CONTENTS, ALL).key == build_problem(with_inputs(values), CONTENTS, ALL).key
