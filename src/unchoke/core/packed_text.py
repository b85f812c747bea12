"""Columns of text that stay compressed: all that pandas asks of a column, with a piece of it as text at a time.

In: text from Arrow, pandas or Python, or a Parquet file. Out: columns for a frame. Ids and paths, which share most of their
letters, take about four bytes for each sample instead of thirty, words that repeat less, digests half of their letters.

A column is a list of pieces, each a batch in Arrow's own stream format under zstd. Pieces are never changed: copies and
concatenations share them, and a cell that is set makes a new one. Cells in another order than theirs are gathered as plain text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pandas.api.extensions import ExtensionArray, ExtensionDtype
from pandas.api.indexers import check_array_indexer

_PIECE = 16_384
_RECENT_PIECES = 16
_OPTIONS = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1), use_threads=False)


class PackedTextDtype(ExtensionDtype):
    """The type of such a column."""

    name = "packed text"
    type = str
    na_value = np.nan

    @classmethod
    def construct_array_type(cls) -> Any:
        return PackedText

    def _get_common_dtype(self, dtypes: list[Any]) -> PackedTextDtype | None:
        """Text beside it becomes packed, too."""
        return self if all(isinstance(one, PackedTextDtype | pd.StringDtype) for one in dtypes) else None


class PackedText(ExtensionArray):
    """Cells of text, in pieces of any length."""

    def __init__(self, pieces: Iterable[bytes], sizes: Iterable[int]) -> None:
        self._pieces, self._sizes = list(pieces), list(sizes)
        self._ends = np.cumsum(self._sizes, dtype=np.int64)
        self._recent: dict[int, pa.Array] = {}

    @classmethod
    def of(cls, cells: Iterable[pa.Array]) -> Self:
        """Arrays of text, one after the other."""
        packed = [
            (_pack(piece := part.slice(start, _PIECE)), len(piece)) for part in cells for start in range(0, len(part), _PIECE)
        ]
        return cls((piece for piece, _ in packed), (size for _, size in packed))

    @classmethod
    def _from_sequence(cls, scalars: Any, *, dtype: Any = None, copy: bool = False) -> Self:  # noqa: ARG003 (as pandas calls it)
        if isinstance(scalars, cls):
            return scalars.copy()
        cells = pa.array(scalars, from_pandas=True)
        if not (_is_text(cells.type) or pa.types.is_null(cells.type)):
            raise TypeError(f"{cells.type} is not text")
        return cls.of(cells.chunks if isinstance(cells, pa.ChunkedArray) else [cells])

    @classmethod
    def _concat_same_type(cls, to_concat: Sequence[Self]) -> Self:
        return cls(
            (piece for one in to_concat for piece in one._pieces),
            (size for one in to_concat for size in one._sizes),
        )

    @property
    def dtype(self) -> PackedTextDtype:
        return PackedTextDtype()

    @property
    def nbytes(self) -> int:
        return sum(map(len, self._pieces))

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __reduce__(self) -> tuple[type[Self], tuple[list[bytes], list[int]]]:
        return type(self), (self._pieces, self._sizes)

    def arrays(self) -> Iterator[pa.Array]:
        """The cells as Arrow has them, a piece at a time."""
        return map(_unpack, self._pieces)

    def slice(self, start: int, length: int) -> pa.Array:
        """Cells that follow one another, as Arrow has them."""
        stop, parts = min(start + length, len(self)), []
        while start < stop:
            number = int(np.searchsorted(self._ends, start, side="right"))
            begin, end = int(self._ends[number]) - self._sizes[number], min(stop, int(self._ends[number]))
            parts.append(self._read(number).slice(start - begin, end - start))
            start = end
        return parts[0] if len(parts) == 1 else pa.concat_arrays([pa.array([], pa.string()), *parts])

    def _read(self, number: int) -> pa.Array:
        """A piece as Arrow has it; those asked for last are kept, since it is cells next to each other that are asked for."""
        if number not in self._recent:
            if len(self._recent) == _RECENT_PIECES:
                del self._recent[next(iter(self._recent))]
            self._recent[number] = _unpack(self._pieces[number])
        return self._recent[number]

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, int | np.integer):
            place = int(item) + len(self) * int(item < 0)
            if not 0 <= place < len(self):
                raise IndexError(f"there is no row {item} of {len(self)}")
            cell = self.slice(place, 1)[0]
            return cell.as_py() if cell.is_valid else self.dtype.na_value
        rows = check_array_indexer(self, item)
        if isinstance(rows, slice) and (span := range(len(self))[rows]).step == 1:
            return self._span(span.start, span.stop)
        return self.take(np.arange(len(self))[rows])

    def _span(self, start: int, stop: int) -> Self:
        """Cells that follow one another: whole pieces are shared, the first and the last are cut."""
        inner = np.flatnonzero((self._ends - self._sizes >= start) & (self._ends <= stop)).tolist()
        if not inner:
            return self.of([self.slice(start, stop - start)])
        begin, end = int(self._ends[inner[0]]) - self._sizes[inner[0]], int(self._ends[inner[-1]])
        whole = type(self)((self._pieces[number] for number in inner), (self._sizes[number] for number in inner))
        ends = self.of([self.slice(start, begin - start)]), self.of([self.slice(end, stop - end)])
        return self._concat_same_type([ends[0], whole, ends[1]])

    def take(self, indices: Any, *, allow_fill: bool = False, fill_value: Any = None) -> Self:
        rows = np.asarray(indices, np.int64)
        if allow_fill and (rows < -1).any():
            raise ValueError("rows below -1 cannot be filled")
        if allow_fill and (rows < 0).any():
            filling = pa.array([None if pd.isna(fill_value) else fill_value], pa.string())
            there = pa.concat_arrays([*self.gather(rows[rows >= 0]), filling])
            places = np.full(len(rows), len(there) - 1)
            places[rows >= 0] = np.arange(len(there) - 1)
            return self.of([there.take(pa.array(places))])
        if len(rows) and rows.min() < 0:
            rows = np.where(rows < 0, rows + len(self), rows)
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(self):
            raise IndexError("cannot do a non-empty take from an empty axes" if not len(self) else "out of bounds")
        return self.of(self.gather(rows))

    def gather(self, rows: NDArray[np.integer[Any]]) -> Iterator[pa.Array]:
        """The cells of `rows`, piece by piece where these ascend."""
        if len(rows) and (np.diff(rows) < 0).any():
            order = np.argsort(rows, kind="stable")
            back = np.empty(len(rows), np.int64)
            back[order] = np.arange(len(rows))
            yield pa.chunked_array(self.gather(rows[order])).combine_chunks().take(pa.array(back))
            return
        cuts = np.searchsorted(rows, np.append(0, self._ends))
        for number, (begin, end) in enumerate(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)):
            if end > begin:
                first = int(self._ends[number]) - self._sizes[number]
                yield _unpack(self._pieces[number]).take(pa.array(rows[begin:end] - first))

    def __setitem__(self, key: Any, value: Any) -> None:
        rows = np.atleast_1d(np.arange(len(self))[check_array_indexer(self, key)])
        values = [value] * len(rows) if isinstance(value, str) or pd.api.types.is_scalar(value) else list(value)
        if len(values) != len(rows):
            raise ValueError(f"{len(values)} values for {len(rows)} rows")
        number_of = np.searchsorted(self._ends, rows, side="right")
        for number in np.unique(number_of).tolist():
            cells, first = _unpack(self._pieces[number]).to_pylist(), int(self._ends[number]) - self._sizes[number]
            for place in np.flatnonzero(number_of == number).tolist():
                cells[rows[place] - first] = None if pd.isna(values[place]) else values[place]
            self._pieces[number] = _pack(pa.array(cells, pa.string()))
            self._recent.pop(number, None)

    def copy(self) -> Self:
        return type(self)(self._pieces, self._sizes)

    def __iter__(self) -> Iterator[Any]:
        for cells in self.arrays():
            texts = cells.to_pylist()
            yield from texts if not cells.null_count else (self.dtype.na_value if text is None else text for text in texts)

    def tolist(self) -> list[Any]:
        return list(self)

    def isna(self) -> NDArray[np.bool_]:
        return self._each(lambda cells: cells.is_null())

    def __eq__(self, other: Any) -> Any:
        if isinstance(other, pd.Series | pd.Index | pd.DataFrame):
            return NotImplemented
        if isinstance(other, str):
            return self._each(lambda cells: pc.fill_null(pc.equal(cells, other), False))
        if isinstance(other, PackedText) and len(other) == len(self):
            parts = ((self.slice(row, _PIECE), other.slice(row, _PIECE)) for row in range(0, len(self), _PIECE))
            return _joined(pc.fill_null(pc.equal(*both), False) for both in parts)
        if pd.api.types.is_list_like(other):
            return np.asarray(self) == np.asarray(other, dtype=object)
        return np.zeros(len(self), bool)

    def isin(self, values: Any) -> NDArray[np.bool_]:
        wanted = pa.array([value for value in values if isinstance(value, str)], pa.string())
        return self._each(lambda cells: pc.is_in(cells, value_set=wanted))

    def _each(self, ask: Any) -> NDArray[np.bool_]:
        return _joined(map(ask, self.arrays()))

    def factorize(self, use_na_sentinel: bool = True) -> tuple[NDArray[np.int64], Self]:
        number_of: dict[str | None, int] = {}
        codes = np.empty(len(self), np.int64)
        for cells, size, end in zip(self.arrays(), self._sizes, self._ends.tolist(), strict=True):
            coded = cells.dictionary_encode("mask" if use_na_sentinel else "encode")
            numbers = [number_of.setdefault(text, len(number_of)) for text in coded.dictionary.to_pylist()]
            codes[end - size : end] = np.array([*numbers, -1])[coded.indices.fill_null(-1).to_numpy()]
        return codes, self.of([pa.array(list(number_of), pa.string())])

    def unique(self) -> Self:
        return self.factorize(use_na_sentinel=False)[1]

    def value_counts(self, dropna: bool = True) -> pd.Series[int]:
        codes, texts = self.factorize(use_na_sentinel=dropna)
        return pd.Series(np.bincount(codes[codes >= 0], minlength=len(texts)), index=pd.Index(texts.astype("str")))

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        wanted = pd.api.types.pandas_dtype(dtype)
        if isinstance(wanted, pd.StringDtype):
            return pd.array(self.__arrow_array__(), dtype=wanted)
        return super().astype(wanted, copy=copy)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        cells = np.empty(len(self), object)
        cells[:] = list(self)
        return cells if dtype is None else cells.astype(dtype, copy=False)

    def __arrow_array__(self, type: pa.DataType | None = None) -> pa.ChunkedArray:
        cells = pa.chunked_array(self.arrays(), pa.string())
        return cells if type is None else cells.cast(type)


def pack_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with its text packed."""
    texts = {
        str(name): column.array
        for name, column in frame.items()
        if isinstance(column.dtype, pd.StringDtype | np.dtypes.ObjectDType)
    }
    return frame.assign(**{name: PackedText._from_sequence(cells) for name, cells in texts.items()})


def read_packed(file: BufferedReader | Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """A Parquet file as a frame with its text packed, read in pieces."""
    source = pq.ParquetFile(file)
    fields = [field for field in source.schema_arrow if columns is None or field.name in columns]
    found: dict[str, Any] = {
        field.name: [PackedText([], [])]
        if _is_text(field.type)
        else np.empty(source.metadata.num_rows, field.type.to_pandas_dtype())
        for field in fields
    }
    row = 0
    for batch in _batches(source, list(found)):
        for name, cells in zip(batch.schema.names, batch.columns, strict=True):
            if isinstance(found[name], list):
                found[name].append(PackedText.of([cells]))
            else:
                found[name][row : row + len(cells)] = cells.to_numpy(zero_copy_only=False)
        row += len(batch)
    pa.default_memory_pool().release_unused()
    joined = {
        name: PackedText._concat_same_type(column) if isinstance(column, list) else column for name, column in found.items()
    }
    return pd.DataFrame(joined, copy=False)


def _batches(source: pq.ParquetFile, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Some rows at a time. One group of them after the other: what was read of a file is held until an iteration ends."""
    for group in range(source.num_row_groups):
        yield from source.iter_batches(batch_size=_PIECE, row_groups=[group], columns=columns, use_threads=False)


def _joined(answers: Iterable[pa.Array]) -> NDArray[np.bool_]:
    return np.concatenate([np.zeros(0, bool), *(answer.to_numpy(zero_copy_only=False) for answer in answers)])


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _pack(cells: pa.Array) -> bytes:
    sink, batch = pa.BufferOutputStream(), pa.record_batch([cells.cast(pa.string())], names=[""])
    with pa.ipc.new_stream(sink, batch.schema, options=_OPTIONS) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())  # the buffer itself has room for twice as much


def _unpack(piece: bytes) -> pa.Array:
    return pa.ipc.open_stream(piece).read_next_batch().column(0)
