"""Which rows of a long column hold the same text, and where rows of one table stand in another. Text in, numbers out. Pure.

Columns are read in pieces and only hashes are kept, so that ten million rows need no ten million objects; rows whose hashes are
equal are compared as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.errors import DataError
from unchoke.core.text_column import TextColumn
from unchoke.jobs.name_places import Places

if TYPE_CHECKING:
    import pandas as pd

_PIECE = 8192
NONE = -1
Rows = NDArray[np.signedinteger[Any]]
"""A number for each row, in as few bytes as will do: ten million rows have a dozen such columns while splits are drawn."""


def row_type(num: int) -> type[np.signedinteger[Any]]:
    """What holds numbers of rows, where there are `num`."""
    return np.int32 if num <= np.iinfo(np.int32).max else np.int64


def first_alike(cells: Sequence[str]) -> Rows:
    """For each row the first one that holds the same text; `NONE` where there is none."""
    hashes, blank = np.zeros(len(cells), np.int64), np.zeros(len(cells), bool)
    for start in range(0, len(cells), _PIECE):
        piece = cells[start : start + _PIECE]
        hashes[start : start + len(piece)] = [hash(cell) for cell in piece]
        blank[start : start + len(piece)] = [not cell for cell in piece]
    first: Rows = np.arange(len(cells), dtype=row_type(len(cells)))
    first[blank] = NONE
    rows = first[~blank]
    hashes = hashes[~blank]
    order = np.argsort(hashes, kind="stable")
    rows, hashes = rows[order], hashes[order]
    alike = np.append(False, hashes[1:] == hashes[:-1])[: len(rows)]
    for place in np.flatnonzero(alike & ~np.append(False, alike[:-1])).tolist():
        texts: dict[str, int] = {}
        end = place
        while end < len(rows) and (end == place or alike[end]):
            end += 1
        for row in rows[place - 1 : end].tolist():
            first[row] = texts.setdefault(cells[row], row)
    return first


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
    import pyarrow as pa

    from unchoke.core.packed_text import PackedText

    texts = pa.array(list(names), pa.string())
    pieces = (codes[start : start + _PIECE] for start in range(0, len(codes), _PIECE))
    return pd.Series(PackedText.of(texts.take(pa.array(piece)) for piece in pieces))


def places_in(earlier: pd.Series[str], names: pd.Series[str], *, distinct: bool = False) -> Rows:
    """Where each of `names` stands in the `earlier` ones, `NONE` where it does not; the last place of one that comes twice.

    With `distinct` none does.
    """
    try:
        places = Places(TextColumn.of(earlier), distinct=distinct)
    except DataError:
        last = earlier.reset_index(drop=True).drop_duplicates(keep="last")
        found = places_in(last.reset_index(drop=True), names)
        return np.where(found >= 0, last.index.to_numpy()[found], NONE)
    cells, found = TextColumn.of(names), np.empty(len(names), row_type(len(earlier)))
    for start in range(0, len(cells), _PIECE):
        piece = places.find_all(cells[start : start + _PIECE])
        found[start : start + len(piece)] = [NONE if place is None else place for place in piece]
    return found
