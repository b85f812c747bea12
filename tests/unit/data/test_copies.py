"""Copies: what is said of them, and which of them no score may count."""

from __future__ import annotations

from collections.abc import Sequence

from unchoke.core.listing import FileEntry
from unchoke.data.copies import diagnose_copies, find_unscored, keep_one_copy
from unchoke.data.preflight import can_be_left_out
from unchoke.data.sample_set import Samples, TaskSpec, build_samples


def make(names: Sequence[str], labels: Sequence[str], splits: Sequence[str]) -> Samples:
    entries = [FileEntry(f"/d/{name}", name, 1, 1) for name in names]
    task = TaskSpec("classification", tuple(sorted(set(labels))))
    return build_samples(task, entries, sample_ids=names, values={"label": labels}, splits=splits)


def numbered(splits: Sequence[str], labels: Sequence[str] | None = None) -> Samples:
    return make([f"{row:03d}.jpg" for row in range(len(splits))], labels or ["a"] * len(splits), splits)


def test_copy_not_scored_on_later_side() -> None:
    samples = numbered(["train", "val", "test", "val", "test", "test", "test"])
    unscored = find_unscored(samples, ["1", "1", "1", "2", "2", "3", "3"])
    assert [(one.sample_id, one.split) for one in unscored] == [("001.jpg", "val"), ("002.jpg", "test"), ("004.jpg", "test")]
    assert "'000.jpg'" in unscored[0].reason and "train" in unscored[0].reason
    assert "'003.jpg'" in unscored[2].reason and "val" in unscored[2].reason


def test_copies_with_other_labels_train_but_are_not_scored() -> None:
    samples = numbered(["train", "train", "test", "test"], ["a", "b", "a", "b"])
    unscored = find_unscored(samples, ["1", "1", "2", "2"])
    assert [(one.sample_id, one.code) for one in unscored] == [
        ("002.jpg", "duplicate-label-conflict"),
        ("003.jpg", "duplicate-label-conflict"),
    ]


def test_pictures_that_were_not_read_are_copies_of_none() -> None:
    assert find_unscored(numbered(["train", "test"]), ["", ""]) == []


def test_few_copies_can_be_left_out() -> None:
    contents = ["same", "same", *map(str, range(38))]
    samples = numbered(["train", "test", *["train"] * 38])
    for rate, enough in ((0.05, True), (0, False)):
        (finding,) = diagnose_copies(samples, contents, failure_rate=rate)
        assert (finding.code, finding.severity, can_be_left_out(finding)) == ("duplicate-across-splits", "error", enough)
        assert "1 file" in finding.message and "2.5%" in finding.message
    (finding,) = diagnose_copies(numbered(["test", "test", *["train"] * 38]), contents, failure_rate=0.05)
    assert (finding.code, finding.severity) == ("duplicate-images", "info")


def test_copied_folders_named_once() -> None:
    names = [f"{folder}/{row}.jpg" for folder in ("a", "b", "c") for row in range(5)]
    samples = make([*names, "c/extra.jpg"], ["x"] * 16, ["train"] * 16)
    contents = [*(str(row) for _ in range(3) for row in range(5)), "other"]
    (finding,) = diagnose_copies(samples, contents, failure_rate=0.05)
    assert "folder 'a' = 'b' = 'c', 5 of 6" in finding.message
    assert ".jpg" not in finding.message


def test_copies_here_and_there_are_named_by_file() -> None:
    samples = make(["a/1.jpg", "a/2.jpg", "a/3.jpg", "b/1.jpg"], ["x"] * 4, ["train"] * 4)
    (finding,) = diagnose_copies(samples, ["1", "2", "2", "1"], failure_rate=0.05)
    assert "'a/1.jpg' = 'b/1.jpg'" in finding.message
    assert "'a/2.jpg' = 'a/3.jpg'" in finding.message


def test_of_copies_with_one_label_the_first_stays() -> None:
    samples = numbered([""] * 5, ["a", "a", "a", "b", "a"])
    assert keep_one_copy(samples, ["1", "1", "2", "2", ""]) == [True, False, True, True, True]


def test_first_side_keeps_its_copy() -> None:
    import pandas as pd

    assert keep_one_copy(numbered(["test", "val", "train"]), ["1", "1", "1"]) == [False, False, True]
    previous = pd.DataFrame({"sample_id": ["001.jpg"], "split": ["train"]})
    assert keep_one_copy(numbered(["", "", ""]), ["1", "1", "1"], previous) == [False, True, False]
