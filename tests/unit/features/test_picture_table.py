"""Pictures as columns read like a list of them."""

from __future__ import annotations

import pickle

import pandas as pd
import pytest

from unchoke.core.text_column import TextColumn
from unchoke.features.prepare_engine import Picture, PictureTable
from unchoke.jobs.name_places import PathsById

PICTURES = [Picture(name, f"/photos/{name}.jpg", f"digest of {name}", name != "b") for name in "abcd"]


def columns() -> PictureTable:
    """The same pictures in columns that Arrow keeps."""
    table = PictureTable.of(PICTURES)
    ids, paths, contents = (TextColumn(pd.Series(list(one), dtype="str")) for one in (table.ids, table.paths, table.contents))
    return PictureTable(ids, paths, contents, table.decoded)


@pytest.mark.parametrize("table", [PictureTable.of(PICTURES), columns()], ids=["lists", "columns"])
def test_a_table_reads_like_a_list(table: PictureTable) -> None:
    assert list(table) == PICTURES
    assert table[1:3] == PICTURES[1:3]
    assert (table[0], table[-1], len(table)) == (PICTURES[0], PICTURES[-1], 4)
    assert PictureTable.of(table) is table


@pytest.mark.parametrize("table", [PictureTable.of(PICTURES), columns()], ids=["lists", "columns"])
def test_paths_are_found_by_id_in_another_process_too(table: PictureTable) -> None:
    paths = pickle.loads(pickle.dumps(PathsById(table.ids, table.paths)))
    assert dict(paths) == {one.sample_id: one.path for one in PICTURES}
    assert "z" not in paths
    with pytest.raises(KeyError):
        paths["z"]
