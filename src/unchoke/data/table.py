"""A table file to a frame of text: CSV, TSV or Parquet in, every cell a string ("" where there is none).

The encoding is UTF-8 and nothing is guessed about it; the delimiter is taken from the header. Which column means what is
decided in `columns`.
"""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from unchoke.core.errors import DataError, UsageError, list_some
from unchoke.core.findings import Finding
from unchoke.core.input_file import open_plain, refuse_special
from unchoke.core.remote import DataPlace
from unchoke.core.stores import explain, stat_url
from unchoke.core.units import format_bytes, format_count

if TYPE_CHECKING:
    import pandas as pd

CSV_SUFFIXES = (".csv", ".tsv", ".txt")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
PARQUET_SUFFIXES = (".parquet", ".pq")
TABLE_SUFFIXES = CSV_SUFFIXES + PARQUET_SUFFIXES
MISSING_WORDS = frozenset({"", "na", "n/a", "nan", "null", "#n/a", "<na>"})
_MOST_COLUMNS = 5_000
_MOST_BYTES = 4_000_000_000
_BOMS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


def is_missing(cell: str) -> bool:
    """Whether a cell stands for no value: empty, NA, NaN, null. ("none" is a word, and may be a class.)"""
    return cell.strip().lower() in MISSING_WORDS


def is_number(cell: str) -> bool:
    """Whether a cell is a finite number."""
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def read_table(path: DataPlace) -> pd.DataFrame:
    """Every readable column of a .csv, .tsv or .parquet file as text; column names stripped of surrounding space."""
    suffix = path.suffix.lower()
    if suffix not in TABLE_SUFFIXES:
        raise UsageError(
            f"not a table this can read: {path.name!r}",
            code="not-a-table",
            why=f"tables end in {', '.join(TABLE_SUFFIXES)}",
            try_="save the table as CSV in UTF-8, or give a folder with one sub-folder per class",
        )
    refuse_special(path)
    frame = _read_parquet(path) if suffix in PARQUET_SUFFIXES else _read_csv(path)
    frame.columns = [str(name).strip() for name in frame.columns]
    _refuse_twin_columns(path, frame.columns)
    return frame


def _read_csv(path: DataPlace) -> pd.DataFrame:
    """The header is read like any row, so that a row with more cells than it has is refused and not cut short."""
    import io

    import pandas as pd

    text = _decode(path)
    delimiter = "\t" if path.suffix.lower() == ".tsv" else sniff_delimiter(text)
    _refuse_wide(path, 1 + text.partition("\n")[0].count(delimiter))
    try:
        rows = pd.read_csv(io.StringIO(text), sep=delimiter, header=None, dtype="str", keep_default_na=False, na_filter=False)
    except pd.errors.EmptyDataError:
        raise no_rows(path) from None
    except pd.errors.ParserError as error:
        raise DataError(
            f"{path.name} is not a well-formed table",
            code="malformed-table",
            why=str(error).removeprefix("Error tokenizing data. C error: ").strip(),
            try_="put double quotes around each cell that holds the delimiter or a line break, and double any quotes inside it",
        ) from error
    frame = rows.iloc[1:].fillna("").reset_index(drop=True)
    frame.columns = rows.iloc[0].tolist()
    return frame


def _refuse_wide(path: DataPlace, num_columns: int) -> None:
    """Every column costs time and memory of its own, and one row per image has few: more are a matrix, or no table at all."""
    if num_columns > _MOST_COLUMNS:
        raise DataError(
            f"{path.name} has {num_columns:,} columns",
            code="table-too-wide",
            why=f"a table with one row per image has at most {_MOST_COLUMNS:,}: ids, labels, targets, inputs",
            try_="keep the columns that are needed, or turn the table around if its rows and columns are swapped",
        )


def _decode(path: DataPlace) -> str:
    if (size_bytes := _size(path)) > _MOST_BYTES:
        raise DataError(
            f"{path.name} is too large for a table: {format_bytes(size_bytes)}",
            code="table-too-large",
            why=f"the limit is {format_bytes(_MOST_BYTES)}, tens of millions of rows",
            try_="check that this is the file that was meant; or keep the columns that are needed, as Parquet",
        )
    data = path.read_bytes()
    if data[:2] in _BOMS:
        raise _wrong_encoding(path, where="its first two bytes mark it as UTF-16", encoding=_BOMS[data[:2]])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = f"0x{data[error.start]:02x} (byte {error.start + 1:,} of the file)"
        where = f"line {line} holds the byte {byte}, which UTF-8 does not allow there"
        raise _wrong_encoding(path, where=where, encoding="WINDOWS-1252") from None


def _size(path: DataPlace) -> int:
    """Of a table behind a URL as well; whether it can be reached is said here."""
    if isinstance(path, Path):
        return path.stat().st_size
    try:
        return stat_url(str(path))[0]
    except OSError as error:
        raise explain(path.url, error) from error


def _wrong_encoding(path: DataPlace, *, where: str, encoding: str) -> DataError:
    converted = path.parent / f"{path.stem}-utf8{path.suffix}" if isinstance(path, Path) else f"{path.stem}-utf8{path.suffix}"
    source = shlex.quote(str(path)) if isinstance(path, Path) else f"a copy of {path.name} on this machine"
    return DataError(
        f"{path.name} is not encoded as UTF-8",
        code="table-not-utf8",
        why=where,
        try_=f"iconv -f {encoding} -t UTF-8 {source} > {shlex.quote(str(converted))}",
    )


def sniff_delimiter(text: str) -> str:
    """The one of comma, semicolon and tab that the header uses most outside quotes; a comma when it uses none."""
    unquoted = re.sub(r'"(?:[^"]|"")*"', "", text[:65536])
    header = unquoted.lstrip("\r\n").partition("\n")[0]
    return max(",;\t", key=header.count)


def _read_parquet(path: DataPlace) -> pd.DataFrame:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with ExitStack() as stack:
            file = path if isinstance(path, Path) else stack.enter_context(open_plain(str(path)))
            schema = pq.read_schema(file)
            names = [column.name for column in schema if not _is_nested(column.type)]
            table = pq.read_table(file, columns=names)
    except OSError as error:
        if isinstance(path, Path):
            raise
        raise explain(path.url, error) from error
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"{path.name} cannot be read as Parquet",
            code="malformed-table",
            why=str(error).splitlines()[0],
            try_="write the file again, or save it as CSV",
        ) from error
    return pd.DataFrame({name: pd.Series(map(_cell_text, table.column(name).to_pylist()), dtype="str") for name in names})


def _is_nested(kind: Any) -> bool:
    """Lists, structs and raw bytes can be neither an id nor a label; a column of picture bytes is not even read."""
    import pyarrow as pa

    return bool(pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _cell_text(value: object) -> str:
    """A cell as a CSV would hold it: whole floats without their ".0", nothing for null and NaN."""
    if value is None or value != value:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def no_rows(path: DataPlace) -> DataError:
    """The error for a table without a single row."""
    return DataError(
        f"{path.name} has zero rows",
        code="empty-table",
        why="there is nothing to learn from",
        try_="give a table with a header and one row per image",
    )


def all_dropped(path: DataPlace, count: int, noun: str) -> DataError:
    """The error for data of which corrections leave nothing."""
    return DataError(
        f"corrections drop all {format_count(count, noun)} of {path.name}",
        code="everything-dropped",
        why="there is nothing left to learn from",
        try_="take some of them back, by lines with an empty value in corrections.csv; or --corrections none",
    )


def _refuse_twin_columns(path: DataPlace, columns: Iterable[str]) -> None:
    names = list(columns)
    twins = sorted(name for name, count in Counter(names).items() if count > 1)
    if twins:
        raise DataError(
            f"{path.name} has several columns of the same name: {', '.join(map(repr, twins))}",
            code="duplicate-columns",
            why="a column is chosen by its name",
            try_="rename the columns in the header so that each name occurs once",
        )


def name_rows(table: pd.DataFrame, mask: npt.NDArray[np.bool_]) -> list[int]:
    """The numbers of the rows in `mask`, counted from 1 below the header."""
    return [int(row) + 1 for row in table.index[mask]]


def read_labels(table: pd.DataFrame, column: str) -> tuple[pd.Series[str], list[Finding]]:
    """The label of each row, stripped, "" where there is none; one finding names the rows without."""
    labels = table[column].str.strip()
    missing = labels.str.lower().isin(MISSING_WORDS).to_numpy(dtype=bool)
    labels = labels.mask(missing, "")
    if not missing.any():
        return labels, []
    rows = name_rows(table, missing)
    written = sorted({str(cell) for cell in table.loc[missing, column]})
    return labels, [
        Finding(
            "nan-labels",
            f"{format_count(len(rows), 'row')} without a label in {column!r}: {list_some([f'row {row}' for row in rows])}",
            severity="error",
            evidence={"rows": rows[:1000], "count": len(rows), "written": written[:10]},
            fix="fill in the label or remove the row; empty, NA, NaN and null mean no label (if one is a class, spell it out)",
        )
    ]


def read_numbers(table: pd.DataFrame, columns: Sequence[str]) -> tuple[pd.DataFrame, list[Finding]]:
    """The columns as floats, NaN where a cell is no usable number; one finding per column names those rows."""
    numbers = as_numbers(table, columns)
    return numbers, [finding for name in columns if (finding := _bad_numbers(table, name, numbers[name])) is not None]


def as_numbers(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Floats, NaN where a cell is no number that float32 can hold, which is what training computes in."""
    import pandas as pd

    cells = {name: pd.to_numeric(table[name].str.strip(), errors="coerce") for name in columns}
    numbers = pd.DataFrame(cells, index=table.index, dtype="float64")
    with np.errstate(over="ignore"):
        return numbers.where(np.isfinite(numbers.to_numpy(dtype=np.float32)))


def _bad_numbers(table: pd.DataFrame, column: str, numbers: pd.Series[float]) -> Finding | None:
    bad = numbers.isna().to_numpy(dtype=bool)
    if not bad.any():
        return None
    rows = name_rows(table, bad)
    cells = [str(cell) for cell in table.loc[bad, column].iloc[:5]]
    shown = [f"row {row} {cell!r}" for row, cell in zip(rows, cells, strict=False)]
    more = f" and {len(rows) - len(shown)} more" if len(rows) > len(shown) else ""
    return Finding(
        "bad-targets",
        f"{format_count(len(rows), 'row')} of {column!r} without a finite number: {', '.join(shown)}{more}",
        severity="error",
        evidence={"rows": rows[:1000], "count": len(rows)},
        fix="write decimals with a point, not a comma" if has_decimal_comma(cells) else _mend_number(cells),
    )


def _mend_number(cells: Sequence[str]) -> str:
    if any(NUMBER.fullmatch(cell.strip()) for cell in cells):
        return f"values beyond {np.finfo(np.float32).max:.1e} cannot be trained on: mend them, or use another unit"
    return "fill in a number or remove the row"


def has_decimal_comma(cells: Sequence[str]) -> bool:
    """Whether one of these cells would be a number if its comma were a point."""
    return any(cell.replace(",", ".", 1).strip().replace(".", "", 1).isdigit() and "," in cell for cell in cells)
