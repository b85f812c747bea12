"""A table file to a frame of text: CSV, TSV, JSON lines, Excel or Parquet in, every cell a string ("" where there is none).

UTF-8 is expected of text; another encoding is recognised, and `frame.attrs["encoding"]` says which. The delimiter is taken from
the header. A cell with several values (a list) holds them joined by `|`. Pictures inside a Parquet file are unpacked. Which
column means what is decided in `columns`.
"""

from __future__ import annotations

import codecs
import math
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from unchoke.core import atomic, listing
from unchoke.core.errors import DataError, UsageError, list_some, missing_extra
from unchoke.core.findings import Finding
from unchoke.core.fingerprint import digest
from unchoke.core.input_file import open_plain, parse_json, refuse_special, size_and_time
from unchoke.core.remote import DataPlace
from unchoke.core.stores import explain, stat_url
from unchoke.core.units import format_bytes, format_count

if TYPE_CHECKING:
    import pandas as pd

CSV_SUFFIXES = (".csv", ".tsv", ".txt")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_COMMA_NUMBER = re.compile(r"[+-]?(\d+(,\d+)?|\d{1,3}(\.\d{3})+,\d+)")
_CERTAIN_COMMA = re.compile(r"[+-]?(\d+,(?!\d{3}$)\d+|(0|\d{4,}),\d+|\d{1,3}(\.\d{3})+,\d+)")
"""Unlike `1,234`, which is more than a thousand where decimals have a point."""
_WITH_UNIT = re.compile(r"[+-]?\d[\d.,]*\s*([^\W\d_]\S*|[%°€$£µ]\S*)")
PARQUET_SUFFIXES = (".parquet", ".pq")
TABLE_SUFFIXES = (*CSV_SUFFIXES, *PARQUET_SUFFIXES, ".jsonl", ".ndjson", ".json", ".xlsx")
MISSING_WORDS = frozenset({"", "na", "n/a", "nan", "null", "#n/a", "<na>"})
SEVERAL = "|"
"""What stands between the values of a cell that has several."""
PICTURES = "pictures"
"""The attribute of a frame that names the column with files that were unpacked, and their folder."""
_NAME_AND_WORD = re.compile(r"\S+\.(jpe?g|png|bmp|tiff?|webp) \S+", re.IGNORECASE)
_MOST_COLUMNS = 5_000
_MOST_BYTES = 4_000_000_000
_PICTURE_MARKS = {b"\xff\xd8\xff": ".jpg", b"\x89PNG": ".png", b"RIFF": ".webp", b"GIF8": ".gif", b"BM": ".bmp",
                  b"II*\0": ".tif", b"MM\0*": ".tif"}  # fmt: skip


def is_missing(cell: str) -> bool:
    """Whether a cell stands for no value: empty, NA, NaN, null. ("none" is a word, and may be a class.)"""
    return cell.strip().lower() in MISSING_WORDS


def is_number(cell: str) -> bool:
    """Whether a cell is a finite number."""
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def read_table(path: DataPlace, *, unpack_to: Path | None = None) -> pd.DataFrame:
    """Every readable column of a table as text; column names stripped of surrounding space.

    Pictures inside it are written below `unpack_to`, once; without it their column is left out.
    """
    suffix = path.suffix.lower()
    if suffix not in TABLE_SUFFIXES:
        raise UsageError(
            f"not a table this can read: {path.name!r}",
            code="not-a-table",
            why=f"tables end in {', '.join(TABLE_SUFFIXES)}",
            try_="save the table as CSV in UTF-8, or give a folder with one sub-folder per class",
        )
    refuse_special(path)
    if suffix in PARQUET_SUFFIXES:
        frame = _read_parquet(path, unpack_to)
    elif suffix in (".jsonl", ".ndjson", ".json"):
        frame = _read_json(path)
    else:
        frame = _read_excel(path) if suffix == ".xlsx" else _read_csv(path)
    frame.columns = [str(name).strip() for name in frame.columns]
    twins = sorted(name for name, count in Counter(frame.columns).items() if count > 1)
    if twins:
        raise DataError(
            f"{path.name} has several columns of the same name: {', '.join(map(repr, twins))}",
            code="duplicate-columns",
            why="a column is chosen by its name",
            try_="rename the columns in the header so that each name occurs once",
        )
    return frame


def _malformed(path: DataPlace, why: str, try_: str) -> DataError:
    return DataError(f"{path.name} is not a well-formed table", code="malformed-table", why=why, try_=try_)


def _read_csv(path: DataPlace) -> pd.DataFrame:
    """The header is read like any row, so that a row with more cells than it has is refused and not cut short."""
    import io

    import pandas as pd

    text, encoding = _decode(path)
    delimiter = "\t" if path.suffix.lower() == ".tsv" else sniff_delimiter(text)
    _refuse_wide(path, 1 + text.partition("\n")[0].count(delimiter))
    try:
        rows = pd.read_csv(io.StringIO(text), sep=delimiter, header=None, dtype="str", keep_default_na=False, na_filter=False)
    except pd.errors.EmptyDataError:
        raise no_rows(path) from None
    except pd.errors.ParserError as error:
        why = str(error).removeprefix("Error tokenizing data. C error: ").strip()
        try_ = "put double quotes around each cell that holds the delimiter or a line break, and double any quotes inside it"
        raise _malformed(path, why, try_) from error
    return _below_header(rows, encoding)


def _below_header(rows: pd.DataFrame, encoding: str = "") -> pd.DataFrame:
    frame = rows.iloc[1:].fillna("").reset_index(drop=True)
    frame.columns = rows.iloc[0].tolist()
    frame.attrs |= {"encoding": encoding} if encoding else {}
    return frame


def _read_excel(path: DataPlace) -> pd.DataFrame:
    """The first sheet."""
    import pandas as pd

    try:
        import openpyxl  # noqa: F401
    except ImportError:
        raise missing_extra("openpyxl", extra="excel", purpose=f"reading {path.name}") from None
    try:
        with ExitStack() as stack:
            file = path if isinstance(path, Path) else stack.enter_context(open_plain(str(path)))
            rows = pd.read_excel(file, header=None, dtype=object, engine="openpyxl")
    except (ValueError, KeyError, OSError, BadZipFile) as error:  # what a file that is no workbook leads to
        raise _malformed(path, str(error).partition("\n")[0], "save it as CSV in UTF-8") from error
    if not len(rows):
        raise no_rows(path)
    return _below_header(rows.map(_cell_text).astype("str"))


def _read_json(path: DataPlace) -> pd.DataFrame:
    """Objects, one in each line or all in a list; or one object that maps names to values."""
    import pandas as pd

    text, encoding = _decode(path)
    try:
        if path.suffix.lower() == ".json":
            found = parse_json(text)
            if isinstance(found, dict) and not any(isinstance(value, dict | list) for value in found.values()):
                found = [{"file_name": name, "label": value} for name, value in found.items()]
        else:
            found = [parse_json(line) for line in text.splitlines() if line.strip()]
        if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
            raise ValueError("it is no list of objects, each with the same keys")
    except ValueError as error:
        raise _malformed(path, str(error), "write one JSON object per line, or save it as CSV") from error
    names = dict.fromkeys(name for row in found for name, value in row.items() if not isinstance(value, dict))
    frame = pd.DataFrame({name: pd.Series([_cell_text(row.get(name)) for row in found], dtype="str") for name in names})
    frame.attrs |= {"encoding": encoding} if encoding else {}
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


def _decode(path: DataPlace) -> tuple[str, str]:
    """The text of a file, and its encoding where that is not UTF-8, with what gave it away."""
    try:
        size_bytes = path.stat().st_size if isinstance(path, Path) else stat_url(str(path))[0]
    except OSError as error:
        if isinstance(path, Path):
            raise
        raise explain(path.url, error) from error
    if size_bytes > _MOST_BYTES:
        raise DataError(
            f"{path.name} is too large for a table: {format_bytes(size_bytes)}",
            code="table-too-large",
            why=f"the limit is {format_bytes(_MOST_BYTES)}, tens of millions of rows",
            try_="check that this is the file that was meant; or keep the columns that are needed, as Parquet",
        )
    data = path.read_bytes()
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace"), "UTF-16, as its first two bytes say"
    zeros = [data[start:1000:2].count(0) for start in (0, 1)]
    if max(zeros) > len(data[:1000]) // 4:
        return data.decode("utf-16-le" if zeros[1] > zeros[0] else "utf-16-be", "replace"), "UTF-16, as every second byte is 0"
    try:
        return data.decode("utf-8-sig"), ""
    except UnicodeDecodeError as error:
        line, byte = data.count(b"\n", 0, error.start) + 1, data[error.start]
        name = "cp1252" if _decodes(data, "cp1252") else "latin-1"
        text = data.decode(name)
        word = re.search(r"\w*[^\x00-\x7f]\w*", text)
        example = f", so that it reads {word[0]!r}" if word else ""
        return text, f"{name}, as line {line} holds the byte 0x{byte:02x}, which UTF-8 does not allow there{example}"


def _decodes(data: bytes, encoding: str) -> bool:
    try:
        data.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def sniff_delimiter(text: str) -> str:
    """The one of comma, semicolon and tab that the header uses most outside quotes, else a bar, else a comma; a space where the
    first line is the name of a picture and a word.
    """
    unquoted = re.sub(r'"(?:[^"]|"")*"', "", text[:65536])
    header = unquoted.lstrip("\r\n").partition("\n")[0]
    if not any(mark in header for mark in ",;\t|") and _NAME_AND_WORD.fullmatch(header.strip()):
        return " "
    return max(",;\t", key=header.count) if any(mark in header for mark in ",;\t") or "|" not in header else "|"


def _read_parquet(path: DataPlace, unpack_to: Path | None) -> pd.DataFrame:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with ExitStack() as stack:
            file = path if isinstance(path, Path) else stack.enter_context(open_plain(str(path)))
            schema = pq.read_schema(file)
            classes = _class_names(schema.metadata)
            names = [column.name for column in schema if _is_text(column.type, column.name in classes)]
            table = pq.read_table(file, columns=names)
            pictures = [column.name for column in schema if _may_be_pictures(column.type)] if unpack_to is not None else []
            unpacked = [(name, *found) for name in pictures if unpack_to and (found := _unpack(path, file, name, unpack_to))]
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
    cells = {name: table.column(name).to_pylist() for name in names}
    for name in names & classes.keys():
        cells[name] = [_named(value, classes[name]) for value in cells[name]]
    frame = pd.DataFrame({name: pd.Series(map(_cell_text, column), dtype="str") for name, column in cells.items()})
    for name, folder, files in unpacked[:1]:
        frame[name] = pd.Series(files, dtype="str")
        frame.attrs[PICTURES] = (name, folder)
    return frame


def _is_text(kind: Any, has_names: bool) -> bool:
    """What can be an id or a label: plain values, and lists of words, or of numbers that have names."""
    import pyarrow as pa

    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return bool(pa.types.is_string(kind.value_type) or has_names)
    return not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _may_be_pictures(kind: Any) -> bool:
    """Bytes, or bytes beside a path, as Hugging Face writes them."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        kind = next((kind.field(place).type for place in range(kind.num_fields) if kind.field(place).name == "bytes"), kind)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _unpack(path: DataPlace, file: Any, column: str, below: Path) -> tuple[Path, list[str]] | None:
    """The folder with the pictures of a column, and the file of each row; None where its bytes are no pictures."""
    import pyarrow.parquet as pq

    pictures = pq.ParquetFile(file)
    stamp = size_and_time(str(path)) if isinstance(path, Path) else ()
    folder = below / f"{path.stem}-{digest([str(path), *map(str, stamp), column])[:12]}"
    if folder.exists():
        names = [""] * pictures.metadata.num_rows
        for name in listing.names(folder):
            names[int(name.partition(".")[0])] = name
        return folder, names
    with ExitStack() as stack:
        building, names = None, []
        for batch in pictures.iter_batches(batch_size=256, columns=[column]):
            for value in batch.column(0).to_pylist():
                data = value.get("bytes") if isinstance(value, dict) else value
                suffix = next((suffix for mark, suffix in _PICTURE_MARKS.items() if data and data.startswith(mark)), "")
                names.append(f"{len(names):07d}{suffix}" if suffix else "")
                if data and suffix:
                    building = building or stack.enter_context(atomic.build_folder(folder))
                    (building / names[-1]).write_bytes(data)
                elif data and building is None:
                    return None
    return (folder, names) if building else None


def _class_names(metadata: dict[bytes, bytes] | None) -> dict[str, list[str]]:
    """The class names that Hugging Face keeps beside columns of numbers."""
    try:
        features = parse_json((metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, ValueError, TypeError):
        return {}
    named = {name: one.get("feature", one) if isinstance(one, dict) else {} for name, one in features.items()}
    return {name: one["names"] for name, one in named.items() if isinstance(one, dict) and isinstance(one.get("names"), list)}


def _named(value: Any, names: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [_named(one, names) for one in value]
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else None


def _cell_text(value: object) -> str:
    """A cell as a CSV would hold it: whole floats without their ".0", nothing for null and NaN, a list joined by `|`."""
    if isinstance(value, list):
        return SEVERAL.join(sorted(map(_cell_text, value)))
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
    """Floats, NaN where a cell is no number that float32 can hold, which is what training computes in.

    Decimal commas are read.
    """
    import pandas as pd

    cells = {name: pd.to_numeric(with_points(table[name]), errors="coerce") for name in columns}
    numbers = pd.DataFrame(cells, index=table.index, dtype="float64")
    with np.errstate(over="ignore"):
        return numbers.where(np.isfinite(numbers.to_numpy(dtype=np.float32)))


def with_points(column: pd.Series[str]) -> pd.Series[str]:
    """The cells without space around them; where all are numbers and a comma can only be a decimal comma, with points."""
    cells = column.str.strip()
    there = [cell for cell in cells.drop_duplicates() if not is_missing(cell)]
    if not all(map(_COMMA_NUMBER.fullmatch, there)) or not any(map(_CERTAIN_COMMA.fullmatch, there)):
        return cells
    return cells.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)


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
        fix=mend_numbers(cells) or _mend_size(cells),
    )


def mend_numbers(cells: Sequence[str]) -> str:
    """What to do about cells with a unit or a comma; "" where that is not what is wrong."""
    units = {unit[1] for cell in cells if not is_number(cell) and (unit := _WITH_UNIT.fullmatch(cell.strip()))}
    if len(units) == 1:
        return f"write numbers without their unit {units.pop()!r}"
    return "write decimals with a point, not a comma" if has_decimal_comma(cells) else ""


def _mend_size(cells: Sequence[str]) -> str:
    if any(NUMBER.fullmatch(cell.strip()) for cell in cells):
        return f"values beyond {np.finfo(np.float32).max:.1e} cannot be trained on: mend them, or use another unit"
    return "fill in a number or remove the row"


def has_decimal_comma(cells: Sequence[str]) -> bool:
    """Whether one of these cells would be a number if its comma were a point."""
    return any(cell.replace(",", ".", 1).strip().replace(".", "", 1).isdigit() and "," in cell for cell in cells)
