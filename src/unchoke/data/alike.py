"""Which rows of a long column hold the same text, and where rows of one table stand in another. Text in, numbers out. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

NONE = -1
Rows = NDArray[np.signedinteger[Any]]
"""A number for each row, in as few bytes as will do: ten million rows have a dozen such columns while splits are drawn."""


def row_type(num: int) -> type[np.signedinteger[Any]]:
    """What holds numbers of rows, where there are `num`."""
    return np.int32 if num <= np.iinfo(np.int32).max else np.int64


def first_alike(cells: Sequence[str] | pd.Series[str]) -> Rows:
    """For each row the first one that holds the same text; `NONE` where there is none."""
    import pandas as pd

    codes, texts = pd.factorize(pd.Series(cells, dtype="str", copy=False))
    first = np.zeros(len(texts) + 1, row_type(len(codes)))
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # of several the last assignment counts, which is the first row
    blank = np.append(np.asarray(texts == "", bool), True)
    return np.where(blank[codes], NONE, first[codes])


def codes_of(column: pd.Series[str]) -> tuple[Rows, list[str]]:
    """A number for each row's text, and the texts, sorted: for columns of which most values come often."""
    import pandas as pd

    codes, texts = pd.factorize(column)
    names = [str(text) for text in texts]
    order = sorted(range(len(names)), key=names.__getitem__)
    rank = np.empty(len(names), row_type(len(names)))
    rank[order] = np.arange(len(names))
    return rank[codes], [names[place] for place in order]


def text_of(codes: Rows, names: Sequence[str]) -> pd.Series[str]:
    """The column that has `names[codes[i]]` in row i."""
    import pandas as pd

    return pd.Series(pd.array(list(names), dtype="str").take(codes))


def places_in(earlier: pd.Series[str], names: pd.Series[str]) -> Rows:
    """Where each of `names` stands in the `earlier` ones, `NONE` where it does not; the last place of one that comes twice.

    No name comes twice in `names`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    known, wanted = (pa.table({"": column})[0].cast(pa.large_string()) for column in (earlier, names))
    if known.equals(wanted):
        return np.arange(len(names), dtype=row_type(len(names)))
    backwards = pc.index_in(wanted, value_set=known[::-1]).fill_null(len(known)).to_numpy()
    places: Rows = (len(known) - 1 - backwards).astype(row_type(len(known)))
    return places
