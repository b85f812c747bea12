"""A photo that was dropped and is taken back is on the side where it was."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from unchoke.data.left_out import FILE, keep_left_out

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
    assert not (tmp_path / FILE).exists(), "without a manifest all sides are drawn anew"


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
