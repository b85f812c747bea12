"""Packed columns: whatever pandas does with text it does with them, to the same end."""

from __future__ import annotations

import pickle
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unchoke.core.packed_text import PackedText, PackedTextDtype, pack_columns, read_packed
from unchoke.core.text_column import TextColumn

CELLS = st.lists(st.sampled_from(["", "a", "b", "é", "a,b", None]), max_size=12)
"""A few cells for each piece, so that most of what is asked for spans several."""


def packed(*pieces: list[str | None]) -> pd.Series[Any]:
    return pd.Series(PackedText.of(pa.array(piece, pa.string()) for piece in pieces))


def plain(*pieces: list[str | None]) -> pd.Series[Any]:
    return pd.Series([cell for piece in pieces for cell in piece], dtype="str")


def cells_of(column: pd.Series[Any]) -> list[Any]:
    return column.astype(object).where(column.notna(), None).tolist()


@settings(deadline=None)
@given(st.lists(CELLS, max_size=4), st.data())
def test_cells_behave_as_plain_text(pieces: list[list[str | None]], data: st.DataObject) -> None:
    ours, theirs = packed(*pieces), plain(*pieces)
    num = len(theirs)
    assert len(ours) == num
    assert cells_of(ours) == cells_of(theirs)
    rows = data.draw(st.lists(st.integers(-num, num - 1), max_size=8)) if num else []
    start, stop = data.draw(st.integers(-num, num)), data.draw(st.integers(-num, num))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=num, max_size=num)), bool)
    for part in (rows, slice(start, stop), slice(start, stop, -2), mask):
        assert cells_of(ours.iloc[part]) == cells_of(theirs.iloc[part])
    assert cells_of(ours.reindex([0, num, 1])) == cells_of(theirs.reindex([0, num, 1]))
    for change in (lambda column: column.mask(mask, "new"), lambda column: column.where(mask, "é"), lambda c: c.fillna("x")):
        assert cells_of(change(ours)) == cells_of(change(theirs))
    assert cells_of(ours) == cells_of(theirs), "the column itself is as it was"


@settings(deadline=None)
@given(st.lists(CELLS, max_size=4))
def test_questions_have_the_answers_of_plain_text(pieces: list[list[str | None]]) -> None:
    ours, theirs = packed(*pieces), plain(*pieces)
    assert ours.isna().tolist() == theirs.isna().tolist()
    assert (ours == "a").tolist() == (theirs == "a").tolist()
    assert ours.ne("").tolist() == theirs.ne("").tolist()
    assert (ours == ours).tolist() == (theirs == theirs).tolist()
    assert ours.isin(["a", "é"]).tolist() == theirs.isin(["a", "é"]).tolist()
    assert ours.duplicated().tolist() == theirs.duplicated().tolist()
    assert [str(one) for one in ours.unique()] == [str(one) for one in theirs.unique()]
    assert pd.factorize(ours)[0].tolist() == pd.factorize(theirs)[0].tolist()
    assert dict(ours.value_counts().items()) == dict(theirs.value_counts().items())
    assert list(ours.value_counts().items()) == list(theirs.value_counts().items())
    assert cells_of(ours.dropna().sort_values()) == cells_of(theirs.dropna().sort_values())


@settings(deadline=None)
@given(CELLS, CELLS)
def test_text_beside_packed_text_is_packed_too(left: list[str | None], right: list[str | None]) -> None:
    both = pd.concat([packed(left), plain(right)], ignore_index=True)
    assert isinstance(both.dtype, PackedTextDtype)
    assert cells_of(both) == cells_of(plain(left, right))
    assert cells_of(both.astype("str")) == cells_of(both)
    assert cells_of(pd.Series(pickle.loads(pickle.dumps(both.array)))) == cells_of(both)


@settings(deadline=None)
@given(st.lists(st.lists(st.sampled_from(["", "a", "b", "é"]), max_size=12), max_size=4), st.data())
def test_a_sequence_of_its_cells(pieces: list[list[str]], data: st.DataObject) -> None:
    cells = [cell for piece in pieces for cell in piece]
    ours, theirs = TextColumn.of(packed(*pieces)), TextColumn.of(plain(*pieces))  # type: ignore[arg-type]
    rows = data.draw(st.lists(st.integers(0, len(cells) - 1), max_size=8)) if cells else []
    begin, end = data.draw(st.integers(0, len(cells))), data.draw(st.integers(0, len(cells) + 3))
    for column in (ours, theirs):
        assert list(column) == cells
        assert column[begin:end] == cells[begin:end]
        assert [column[row] for row in rows] == column.at(np.array(rows, np.int32)) == [cells[row] for row in rows]


def test_a_cell_that_is_set_leaves_copies_alone() -> None:
    frame = pd.DataFrame({"name": packed(["a", "b"], ["c"])})
    before = frame.copy()
    frame.loc[frame["name"] == "c", ["name"]] = ["d"]
    assert (frame["name"].tolist(), before["name"].tolist()) == (["a", "b", "d"], ["a", "b", "c"])


def test_what_is_no_text_is_not_packed() -> None:
    with pytest.raises(TypeError, match="int64 is not text"):
        PackedText._from_sequence([1, 2])
    assert packed(["a", "bb"]).map(len).tolist() == [1, 2]


def test_ids_and_digests_are_packed() -> None:
    ids = packed([f"/data/photos/class_7/{row:09d}.jpg" for row in range(50_000)])
    assert ids.nbytes < 50_000 * 6
    assert packed([sha256(bytes([row % 256, row // 256])).hexdigest() for row in range(50_000)]).nbytes < 50_000 * 40
    frame = pack_columns(pd.DataFrame({"label": pd.Series(["cat"] * 50_000, dtype="str"), "size": 1}))
    assert frame["label"].nbytes < 50_000 * 4
    assert frame["size"].dtype == np.int64


@pytest.mark.parametrize("group_rows", [7, 100_000])
def test_a_table_comes_back_from_its_file(tmp_path: Path, group_rows: int) -> None:
    table = pd.DataFrame({"id": [f"é{row}" for row in range(40)], "size": range(40), "ok": [row % 3 == 0 for row in range(40)]})
    table.to_parquet(tmp_path / "table.parquet", index=False, row_group_size=group_rows)
    read = read_packed(tmp_path / "table.parquet")
    assert isinstance(read["id"].dtype, PackedTextDtype)
    assert {name: read[name].tolist() for name in read} == {name: table[name].tolist() for name in table}
    assert list(read_packed(tmp_path / "table.parquet", ["size"])) == ["size"]
    table[:0].to_parquet(tmp_path / "empty.parquet", index=False)
    assert len(read_packed(tmp_path / "empty.parquet")) == 0
