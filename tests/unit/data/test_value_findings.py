"""Contradictions within labels, targets and splits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from unchoke.core.settings import Settings, validate
from unchoke.data.sample_set import Samples, TaskSpec
from unchoke.data.value_findings import diagnose_fold_names, diagnose_folds, diagnose_splits, diagnose_values


def samples(kind: str = "regression", *, split: str | list[str] = "", group: str = "", **values: list[Any]) -> Samples:
    import pandas as pd

    num = len(next(iter(values.values())))
    names = tuple(sorted(set(values["label"]))) if kind == "classification" else tuple(values)
    fixed = {"sample_id": [f"s{row}" for row in range(num)], "path": "", "size_bytes": 0, "mtime_ns": 0}
    frame = pd.DataFrame({**fixed, **values, "group": group, "split": split})
    return Samples(TaskSpec(kind, names), frame, group_name="plant")  # type: ignore[arg-type]


def found(of: Samples, **settings: Any) -> dict[str, str]:
    return {finding.code: finding.severity for finding in diagnose_values(of, validate(settings))}


@pytest.mark.parametrize(
    "labels",
    [
        ["RED", "red", "blue"],
        ["red pepper", "red_pepper", "blue"],
        ["e\u0301", "\u00e9", "x"],
        ["1", "1.0", "2"],
        ["01", "1", "x"],
    ],
)
def test_labels_that_only_spelling_tells_apart_are_named(labels: list[str]) -> None:
    (finding,) = diagnose_values(samples("classification", label=labels), Settings())
    assert finding.code == "similar-labels"
    assert repr(labels[0]) in finding.message
    assert repr(labels[1]) in finding.message


def test_labels_that_differ_are_fine() -> None:
    labels = ["red", "reds", "blue", "-", "_", "1", "-1", "1_0x", "10", "10000000000000001", "10000000000000002", "nan", "NaN2"]
    assert found(samples("classification", label=labels)) == {}


def test_folds_that_only_spelling_tells_apart_are_named() -> None:
    rows = replace(samples("classification", label=["a", "b", "a"], fold=["2", "2.0", "3"]), fold_name="part")
    (finding,) = diagnose_fold_names(rows)
    assert (finding.code, finding.evidence) == ("similar-folds", {"folds": [["2", "2.0"]]})
    assert not list(diagnose_fold_names(replace(rows, fold_name="")))


def test_constant_target_error_alone_warning_among_others() -> None:
    assert found(samples(height=[7, 7, 7])) == {"constant-target": "error"}
    assert found(samples(height=[7, 7, 7], width=[1, 2, 3])) == {"constant-target": "warning"}


def test_values_below_0_contradict_positive() -> None:
    rows = samples(height=[1, -2, 3])
    assert found(rows, positive=True) == {"negative-targets": "error"}
    assert found(rows) == {}


def test_a_number_for_missing_values_is_named() -> None:
    for value in (-999, -9999, 9999):
        assert found(samples(height=[value, 3.5, 700, value])) == {"placeholder-values": "warning"}
    assert not found(samples(height=[99, 98.5, 97, 99]))
    assert not found(samples(height=[-99, -98.5, 97, -99]))


def test_a_sum_is_held_against_the_table() -> None:
    parts: dict[str, Any] = {"a": [float(n) for n in range(40)], "b": [10.0] * 40}
    right = [n + 10.001 for n in range(40)]
    declared = {"sums": {"total": ("a", "b")}}
    assert "sum-contradicted" not in found(samples(**parts, total=right), **declared)
    assert found(samples(**parts, total=[99.0, *right[1:]]), **declared)["sum-contradicted"] == "warning"
    assert found(samples(**parts, total=[3 * value for value in right]), **declared)["sum-contradicted"] == "error"


def test_a_single_group_leaves_nothing_to_judge_by() -> None:
    rows = samples(height=[1, 2, 3], group="g", split="train")
    (finding,) = diagnose_splits(rows, Settings(), given=False)
    assert (finding.code, finding.severity) == ("empty-side", "error")
    assert "'plant'" in finding.message
    (warned,) = diagnose_splits(rows, Settings(), given=True)
    assert warned.severity == "warning"
    assert not list(diagnose_splits(rows, validate({"val_share": 0, "test_share": 0}), given=False))


def test_one_empty_split_warns() -> None:
    rows = samples(height=[1, 2, 3], split=["train", "train", "val"])
    (finding,) = diagnose_splits(rows, Settings(), given=False)
    assert finding.severity == "warning"
    assert finding.code == "empty-side" and "test" in finding.message
    assert not list(diagnose_splits(rows, validate({"folds": 3}), given=False))


def test_own_folds_of_one_class_named() -> None:
    rows = samples("classification", label=["a", "b", "a", "c", "a", "a"]).with_columns(fold=[0, 0, 1, 1, 2, 2])
    assert not list(diagnose_folds(rows)), "folds that were made here spread what there is"
    single, alone = diagnose_folds(replace(rows, fold_name="farm"))
    assert (single.code, single.evidence) == ("fold-of-one-kind", {"folds": [2]})
    assert (alone.code, alone.evidence) == ("class-in-one-fold", {"classes": ["b", "c"]})


def test_a_fold_in_which_no_target_varies_is_named() -> None:
    rows = samples(height=[1.0, 2, 3, 3], width=[1.0, 1, 4, 4]).with_columns(fold=[0, 0, 1, 1])
    (single,) = diagnose_folds(replace(rows, fold_name="farm"))
    assert single.evidence == {"folds": [1]}
