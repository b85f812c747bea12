"""What of an earlier manifest stands: everything, until groups come that it tore apart."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from unchoke.core.listing import FileEntry
from unchoke.data.earlier_splits import LEFT_OUT_FILE, count_moved, keep_left_out
from unchoke.data.sample_set import Samples, TaskSpec, build_samples
from unchoke.data.splits import assign_splits


def make(groups: list[str], *, splits: list[str] | None = None) -> Samples:
    names = [f"{i:04d}" for i in range(len(groups))]
    entries = [FileEntry(f"/d/{name}", name, 1, 1) for name in names]
    task, labels = TaskSpec("classification", ("a", "b")), ["a", "b"] * (len(groups) // 2)
    return build_samples(
        task, entries, sample_ids=names, values={"label": labels}, groups=groups, splits=splits, group_name="plant"
    )


PLANTS = [f"p{row // 4}" for row in range(120)]
NONE = [""] * 120


def torn(samples: Samples, column: str = "split") -> int:
    grouped = samples.frame[samples.frame["group"] != ""].groupby("group")[column].nunique()
    return int((grouped > 1).sum())


def test_groups_torn_by_earlier_splits_redrawn() -> None:
    before, _ = assign_splits(make(NONE))
    after, (choice,) = assign_splits(make(PLANTS), previous=before.frame)
    assert torn(after) == 0
    assert "'plant'" in choice.reason
    assert count_moved(before.frame, after) > 0
    fresh, _ = assign_splits(make(PLANTS))
    assert after.frame.equals(fresh.frame), "as if there had been no manifest"


def test_the_same_groups_keep_their_sides_and_nothing_moves() -> None:
    before, _ = assign_splits(make(PLANTS))
    for groups in (PLANTS, NONE):
        after, (choice,) = assign_splits(make(groups), previous=before.frame)
        assert count_moved(before.frame, after) == 0
        assert "120" in choice.reason


def test_folds_redrawn_for_new_groups() -> None:
    before, _ = assign_splits(make(NONE), folds=5)
    other, _ = assign_splits(make(NONE), folds=5, fold=2, previous=before.frame)
    assert count_moved(before.frame, other) == 0, "another fold is tested, every sample stays in its own"
    after, (choice,) = assign_splits(make(PLANTS), folds=5, previous=before.frame)
    assert torn(after, "fold") == 0
    assert "'plant'" in choice.reason
    assert count_moved(before.frame, after) > 0


def test_folds_after_shares_move_samples() -> None:
    before, _ = assign_splits(make(PLANTS))
    after, _ = assign_splits(make(PLANTS), folds=5, previous=before.frame)
    assert count_moved(before.frame, after) > 0
    assert count_moved(None, after) == 0


def test_a_given_split_is_never_drawn_anew() -> None:
    given = (["train"] * 3 + ["test"]) * 20 + (["train"] * 3 + ["val"]) * 10
    before, _ = assign_splits(make(NONE, splits=given))
    after, (choice,) = assign_splits(make(PLANTS, splits=given), previous=before.frame)
    assert after.frame["split"].tolist() == given
    assert "'plant'" not in choice.reason


def test_side_from_train_redrawn_for_new_groups() -> None:
    given = ["train"] * 100 + ["test"] * 20
    before, _ = assign_splits(make(NONE, splits=given))
    assert "val" in set(before.frame["split"])
    after, (choice,) = assign_splits(make(PLANTS, splits=given), previous=before.frame)
    assert torn(after) == 0
    assert "'plant'" in choice.reason


if TYPE_CHECKING:
    import pandas as pd


def refuse(text: str) -> None:
    raise AssertionError(text)


def manifest(**columns: list[str]) -> pd.DataFrame:
    import pandas as pd

    names = ["a", "b", "c"]
    return pd.DataFrame(
        {"sample_id": names, "path": names, "group": [""] * 3, "split": ["train", "test", "val"], **columns}, dtype="str"
    )


def without(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    return frame[frame["sample_id"] != name].reset_index(drop=True)


def test_a_photo_that_comes_back_has_its_earlier_side(tmp_path: Path) -> None:
    keep = partial(keep_left_out, folder=tmp_path, warn=refuse)
    before = manifest()
    kept = keep(before, dropped=["b"])
    assert kept is not None
    assert dict(zip(kept["sample_id"], kept["split"], strict=True)) == {"a": "train", "b": "test", "c": "val"}
    after = without(before, "b")
    again = keep(after, dropped=["b"])
    assert again is not None
    assert again["sample_id"].tolist() == ["a", "c"], "as long as it is dropped it has no row"
    back = keep(after, dropped=[])
    assert back is not None
    assert dict(zip(back["sample_id"], back["split"], strict=True)) == {"a": "train", "b": "test", "c": "val"}
    assert keep(None, dropped=[]) is None
    assert not (tmp_path / LEFT_OUT_FILE).exists(), "without a manifest all sides are drawn anew"


def test_left_out_before_folds_has_none(tmp_path: Path) -> None:
    keep = partial(keep_left_out, folder=tmp_path, warn=refuse)
    keep(manifest(), dropped=["b"])
    folded = without(manifest(fold=["0", "1", "2"]), "b").astype({"fold": "int64"})
    back = keep(folded, dropped=[])
    assert back is not None
    assert back["sample_id"].tolist() == ["a", "c"]
    keep(folded, dropped=["c"])
    back = keep(without(folded, "c"), dropped=[])
    assert back is not None
    assert dict(zip(back["sample_id"], back["fold"], strict=True)) == {"a": 0, "c": 2}
    assert back["fold"].dtype == "int64"
