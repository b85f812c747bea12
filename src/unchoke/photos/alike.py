"""Which rows of a long column hold the same text, and where rows of one table stand in another. Text in, numbers out. Pure.

Columns are read in pieces and only hashes are kept, so that ten million rows need no ten million objects; rows whose hashes are
equal are compared as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unchoke.core.errors import DataError
from unchoke.core.text_column import TextColumn
from unchoke.jobs.name_places import Places

if TYPE_CHECKING:
    import pandas as pd

_PIECE = 8192
NONE = -1


def first_alike(cells: Sequence[str]) -> NDArray[np.int64]:
    """For each row the first one that holds the same text; `NONE` where there is none."""
    hashes, blank = np.zeros(len(cells), np.int64), np.zeros(len(cells), bool)
    for start in range(0, len(cells), _PIECE):
        piece = cells[start : start + _PIECE]
        hashes[start : start + len(piece)] = [hash(cell) for cell in piece]
        blank[start : start + len(piece)] = [not cell for cell in piece]
    first = np.where(blank, NONE, np.arange(len(cells), dtype=np.int64))
    rows = np.flatnonzero(~blank)
    rows = rows[np.argsort(hashes[rows], kind="stable")]
    alike = np.diff(hashes[rows], prepend=np.int64(0)) == 0
    alike[:1] = False
    for place in np.flatnonzero(alike & ~np.append(False, alike[:-1])).tolist():
        texts: dict[str, int] = {}
        end = place
        while end < len(rows) and (end == place or alike[end]):
            end += 1
        for row in rows[place - 1 : end].tolist():
            first[row] = texts.setdefault(cells[row], row)
    return first


def codes_of(column: pd.Series[str]) -> tuple[NDArray[np.int64], list[str]]:
    """A number for each row's text, and the texts, sorted: for columns of which most values come often."""
    import pandas as pd

    codes, texts = pd.factorize(column)
    names = [str(text) for text in texts]
    order = sorted(range(len(names)), key=names.__getitem__)
    rank = np.empty(len(names), np.int64)
    rank[order] = np.arange(len(names))
    return rank[codes], [names[place] for place in order]


def text_of(codes: NDArray[np.int64], names: Sequence[str]) -> pd.Series[str]:
    """The column that has `names[codes[i]]` in row i."""
    import pandas as pd
    import pyarrow as pa

    taken = pa.array(list(names), pa.large_string()).take(pa.array(codes))
    return pd.Series(pd.array(taken, dtype="str"))


def places_in(earlier: pd.Series[str], names: pd.Series[str], *, distinct: bool = False) -> NDArray[np.int64]:
    """Where each of `names` stands in the `earlier` ones, `NONE` where it does not; the last place of one that comes twice.

    With `distinct` none does.
    """
    try:
        places = Places(TextColumn.of(earlier), distinct=distinct)
    except DataError:
        last = earlier.reset_index(drop=True).drop_duplicates(keep="last")
        found = places_in(last.reset_index(drop=True), names)
        return np.where(found >= 0, last.index.to_numpy()[found], NONE)
    cells, found = TextColumn.of(names), np.empty(len(names), np.int64)
    for start in range(0, len(cells), _PIECE):
        piece = places.find_all(cells[start : start + _PIECE])
        found[start : start + len(piece)] = [NONE if place is None else place for place in piece]
    return found
