"""Where names stand in an earlier column, and columns of text read like lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from unchoke.core.text_column import TextColumn
from unchoke.data.sample_set import places_in

if TYPE_CHECKING:
    import pandas as pd

CELLS = st.lists(st.sampled_from(["", "a", "b", "é", "a b", "ab"]), max_size=40)


def column(cells: list[str]) -> pd.Series[str]:
    import pandas as pd

    return pd.Series(cells, dtype="str")


def test_of_a_name_that_comes_twice_the_last_place_counts() -> None:
    assert places_in(column(["a", "b", "a"]), column(["b", "a", "c"])).tolist() == [1, 2, -1]
    assert places_in(column([]), column(["b"])).tolist() == [-1]


@given(CELLS, st.slices(20))
@settings(deadline=None)
def test_a_column_of_text_reads_like_a_list(cells: list[str], part: slice) -> None:
    cut = slice(part.start, part.stop, part.step)
    cells_of = TextColumn(column(cells))
    assert list(cells_of) == cells
    assert cells_of[cut] == cells[cut]
    assert [cells_of[place] for place in range(-len(cells), len(cells))] == cells + cells
