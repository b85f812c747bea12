from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from errors import refused
from unchoke.core.listing import FileEntry
from unchoke.data.sample_set import Samples, TaskSpec, build_samples
from unchoke.data.splits import assign_splits


def make(
    labels: Sequence[str],
    *,
    groups: Sequence[str] | None = None,
    splits: Sequence[str] | None = None,
    folds: Sequence[str] | None = None,
) -> Samples:
    names = [f"{i:04d}" for i in range(len(labels))]
    entries = [FileEntry(f"/d/{name}", name, 1, 1) for name in names]
    task = TaskSpec("classification", tuple(sorted(set(labels))))
    return build_samples(
        task,
        entries,
        sample_ids=names,
        values={"label": labels},
        groups=groups,
        splits=splits,
        folds=folds,
        group_name="lesion_id",
        fold_name="" if folds is None else "farm",
    )


def counts(samples: Samples, label: str | None = None) -> dict[str, int]:
    frame = samples.frame if label is None else samples.frame[samples.frame["label"] == label]
    return dict(Counter(frame["split"]))


def test_every_class_gets_its_share() -> None:
    done, choices = assign_splits(make(["a"] * 200 + ["b"] * 40))
    assert counts(done, "a") == {"train": 140, "val": 30, "test": 30}
    assert counts(done, "b") == {"train": 28, "val": 6, "test": 6}
    assert choices[0].value == "70/15/15 stratified"
    assert choices[0].evidence == {"train": 168, "val": 36, "test": 36}


def test_a_group_stays_on_one_side_and_is_named() -> None:
    done, choices = assign_splits(make(["a", "b"] * 60, groups=[f"g{i // 4}" for i in range(120)]))
    assert done.frame.groupby("group")["split"].nunique().max() == 1
    assert set(done.frame["split"]) == {"train", "val", "test"}
    assert choices[0].value == "70/15/15 stratified, grouped by lesion_id"


def test_equal_images_stay_on_one_side() -> None:
    content = [f"digest{i % 30}" for i in range(120)]
    done, choices = assign_splits(make(["a"] * 120), content=content)
    assert done.frame.assign(content=content).groupby("content")["split"].nunique().max() == 1
    assert "equal images kept together" in choices[0].value


def test_unknown_content_ties_nothing() -> None:
    assert counts(assign_splits(make(["a"] * 100), content=[""] * 100)[0]) == {"train": 70, "val": 15, "test": 15}


@pytest.mark.parametrize(
    ("size", "expected"), [(1, {"train": 1}), (3, {"train": 1, "val": 1, "test": 1}), (4, {"train": 2, "val": 1, "test": 1})]
)
def test_small_classes_train_first(size: int, expected: dict[str, int]) -> None:
    done, _ = assign_splits(make(["big"] * 100 + ["small"] * size))
    assert counts(done, "small") == expected


def test_tiny_classes_leave_val_and_test() -> None:
    done, _ = assign_splits(make(["a", "a", "b", "b", "c", "c"]))
    assert counts(done) == {"train": 4, "val": 1, "test": 1}
    assert set(done.frame.loc[done.frame["split"] == "train", "label"]) == {"a", "b", "c"}


def test_one_sample_is_trained_on() -> None:
    assert counts(assign_splits(make(["a"]), val_share=0.4, test_share=0.4)[0]) == {"train": 1}


def test_given_splits_are_kept() -> None:
    given = ["test", "train", "val", "train"] * 5
    done, choices = assign_splits(make(["a", "b"] * 10, splits=given))
    assert done.frame["split"].tolist() == given
    assert choices[0].value == "as given"


def test_lacking_split_taken_from_train() -> None:
    given = ["train"] * 80 + ["test"] * 20
    done, choices = assign_splits(make(["a"] * 100, splits=given))
    assert done.frame["split"].tolist()[80:] == ["test"] * 20
    assert counts(done)["val"] == pytest.approx(80 * 0.15 / 0.85, abs=1)
    assert "val taken from train" in choices[0].value
    again, _ = assign_splits(make(["a"] * 100, splits=given), previous=done.frame, seed=9)
    assert again.frame.equals(done.frame)


def test_rows_without_a_given_split_fill_the_quotas() -> None:
    given = ["train"] * 10 + ["val"] * 10 + ["test"] * 10 + [""] * 70
    done, _ = assign_splits(make(["a"] * 100, splits=given))
    assert done.frame["split"].tolist()[:30] == given[:30]
    assert counts(done) == {"train": 70, "val": 15, "test": 15}


def test_splits_without_train_are_refused() -> None:
    with refused("no-training-samples", "test, val"):
        assign_splits(make(["a"] * 4, splits=["test", "val", "test", "val"]))


def test_folds_test_each_sample_once_and_are_kept() -> None:
    samples = make(["a"] * 50 + ["b"] * 25)
    rounds = [assign_splits(samples, folds=5, fold=fold)[0].frame for fold in range(5)]
    assert sum((frame["split"] == "test").astype(int) for frame in rounds).tolist() == [1] * 75
    assert sum((frame["split"] == "val").astype(int) for frame in rounds).tolist() == [1] * 75
    assert all(frame["fold"].equals(rounds[0]["fold"]) for frame in rounds)
    assert rounds[0].groupby(["label", "fold"]).size().unique().tolist() == [10, 5]
    again, choices = assign_splits(samples, folds=5, seed=4, previous=rounds[0])
    assert again.frame["fold"].equals(rounds[0]["fold"])
    assert "75" in choices[0].reason
    anew, choices = assign_splits(samples, folds=3, previous=rounds[0])
    assert set(anew.frame["fold"]) == {0, 1, 2}
    assert "75" not in choices[0].reason, "none was kept"


def test_a_new_row_of_a_known_group_joins_it() -> None:
    first, _ = assign_splits(make(["a"] * 40, groups=[f"g{i}" for i in range(40)]))
    more, _ = assign_splits(make(["a"] * 80, groups=[f"g{i % 40}" for i in range(80)]), previous=first.frame)
    assert more.frame["split"].tolist() == first.frame["split"].tolist() * 2


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"val_share": 0.6, "test_share": 0.4}, "bad-split-shares"),
        ({"val_share": -0.1}, "bad-split-shares"),
        ({"folds": 2}, "no-such-fold"),
        ({"folds": 5, "fold": 5}, "no-such-fold"),
        ({"fold": 1}, "folds-missing"),
    ],
    ids=str,
)
def test_impossible_divisions_are_refused(wrong: dict[str, float], code: str) -> None:
    with refused(code, *map(str, wrong.values())):
        assign_splits(make(["a"] * 10), **wrong)  # type: ignore[arg-type]


def test_folds_need_enough_samples_and_no_given_splits() -> None:
    with refused("too-many-folds", "5", "2"):
        assign_splits(make(["a"] * 10, groups=["x", "y"] * 5), folds=5)
    with refused("folds-and-splits"):
        assign_splits(make(["a"] * 10, splits=["train"] * 10), folds=5)


def test_regression_is_stratified_by_the_first_target() -> None:
    values = [float(i) for i in range(200)]
    entries = [FileEntry(f"/d/{i:03d}", f"{i:03d}", 1, 1) for i in range(200)]
    samples = build_samples(
        TaskSpec("regression", ("y",)), entries, sample_ids=[e.relative for e in entries], values={"y": values}
    )
    done, choices = assign_splits(samples)
    test = done.frame.loc[done.frame["split"] == "test", "y"]
    assert len(test) == 30
    assert all(2 <= ((test >= low) & (test < low + 20)).sum() <= 4 for low in range(0, 200, 20))
    assert "stratified by y" in choices[0].value


def test_own_folds_in_natural_order() -> None:
    farms = ["farm 10", "farm 2", "farm 1"] * 20
    done, (choice,) = assign_splits(make(["a", "b"] * 30, folds=farms), fold=1)
    assert dict(zip(farms, done.frame["fold"], strict=True)) == {"farm 1": 0, "farm 2": 1, "farm 10": 2}
    assert dict(zip(farms, done.frame["split"], strict=True)) == {"farm 1": "train", "farm 2": "test", "farm 10": "val"}
    assert choice.value == "3 folds as 'farm' says: 'farm 2' (fold 1) tests, 'farm 10' (fold 2) validates"


def test_rows_without_fold_join_group_or_smallest() -> None:
    farms = ["a"] * 30 + ["b"] * 30 + ["c"] * 10 + [""] * 5
    groups = [""] * 29 + ["g"] + [""] * 40 + ["g"] + [""] * 4
    done, (choice,) = assign_splits(make(["x"] * 75, folds=farms, groups=groups))
    assert done.frame["fold"].tolist()[70:] == [0, 2, 2, 2, 2]
    assert "5 " in choice.reason


def test_fold_column_overrides_number_of_folds() -> None:
    done, (choice,) = assign_splits(make(["x"] * 40, folds=["a", "b", "c", "d"] * 10), folds=5)
    assert done.frame["fold"].max() == 3
    assert "5" in choice.reason


def test_too_few_fold_values_or_fold_too_high() -> None:
    with refused("no-such-fold", "'farm'", "2"):
        assign_splits(make(["x"] * 4, folds=["a", "b"] * 2))
    with refused("no-such-fold", "3", "--fold 2"):
        assign_splits(make(["x"] * 6, folds=["a", "b", "c"] * 2), fold=3)


def test_regression_is_stratified_by_the_heaviest_target() -> None:
    names = [f"{i:04d}" for i in range(100)]
    values = {"first": [0.0, 1.0] * 50, "total": [float(i) for i in range(100)]}
    entries = [FileEntry(f"/d/{name}", name, 1, 1) for name in names]
    samples = build_samples(TaskSpec("regression", ("first", "total")), entries, sample_ids=names, values=values)
    done, (choice,) = assign_splits(samples, folds=5, weights={"first": 0.1, "total": 0.5})
    assert "stratified by total" in choice.value
    for _, rows in done.frame.groupby("fold"):
        assert Counter(int(value // 10) for value in rows["total"]) == dict.fromkeys(range(10), 2)
