"""A column of text as a sequence of `str`, without a Python object for each cell: ten million of those take a gigabyte.

In: a column of pandas or Arrow. Out: its cells, one by one or in slices, as lists. Cells are made when they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

_PIECE = 65_536


class TextColumn(Sequence[str]):
    """The cells of a column that is packed or kept by Arrow."""

    def __init__(self, cells: Any) -> None:
        self._cells = cells

    @classmethod
    def of(cls, column: pd.Series[str]) -> TextColumn:
        """The same cells; those that are packed, or that pandas keeps as Arrow does, are not copied."""
        import pyarrow as pa

        from unchoke.core.packed_text import PackedText

        cells = column.array
        return cls(cells if isinstance(cells, PackedText) else pa.array(column, from_pandas=True))

    def __len__(self) -> int:
        return len(self._cells)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, int):
            text: str = self._cells.slice(place + len(self) * (place < 0), 1)[0].as_py()
            return text
        start, stop, step = place.indices(len(self))
        if step != 1:
            return [self[index] for index in range(start, stop, step)]
        cells: list[str] = self._cells.slice(start, max(0, stop - start)).to_pylist()
        return cells

    def at(self, rows: NDArray[np.integer[Any]]) -> list[str]:
        """The cells of some rows."""
        import pyarrow as pa

        from unchoke.core.packed_text import PackedText

        cells = self._cells.gather(rows) if isinstance(self._cells, PackedText) else [self._cells.take(pa.array(rows))]
        return [text for part in cells for text in part.to_pylist()]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _PIECE):
            yield from self[start : start + _PIECE]
