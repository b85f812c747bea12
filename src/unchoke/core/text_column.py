"""A pandas column of text as a sequence of `str`: cells become Python objects when they are asked for.

Ten million `str` objects take a gigabyte; the same cells in Arrow's memory, where pandas keeps them, a third of that.
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
    """The cells of `column`, which are not copied where pandas keeps them in Arrow's memory."""

    def __init__(self, column: pd.Series[str]) -> None:
        import pyarrow as pa

        self._cells: Any = pa.array(column, from_pandas=True)

    def __len__(self) -> int:
        return len(self._cells)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> Any:
        found = self._cells[place]
        return found.to_pylist() if isinstance(place, slice) else found.as_py()

    def at(self, rows: NDArray[np.integer[Any]]) -> list[str]:
        """The cells of some rows."""
        cells: list[str] = self._cells.take(rows).to_pylist()
        return cells

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _PIECE):
            yield from self[start : start + _PIECE]


def read_parquet(file: Any, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """A Parquet file as a frame. Column by column, so that no two copies of the whole are in memory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(file, columns=columns, use_threads=False)
    frame: pd.DataFrame = table.to_pandas(ignore_metadata=True, split_blocks=True, self_destruct=True)
    del table
    pa.default_memory_pool().release_unused()
    return frame
