"""`manifest.csv`: one row per sample with its path, its label or targets, its extra inputs, its group and its split.

The same samples give the same bytes. Cells are quoted as RFC 4180 says, so that names with commas, quotes and line breaks
survive; lines end in a line feed.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BufferedReader
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unchoke.core.addresses import refuse_untyped
from unchoke.core.checksums import CHECKSUMS, has_checksum, open_checked, write_checked_pieces
from unchoke.core.errors import DataError
from unchoke.core.input_file import open_plain
from unchoke.core.text_column import TextColumn
from unchoke.core.workspace import out_option
from unchoke.data.sample_set import Samples, is_input

if TYPE_CHECKING:
    import pandas as pd

TEXT_COLUMNS = ("sample_id", "path", "label", "group", "split")
_ROWS_AT_ONCE = 100_000
_REQUIRED = {"sample_id", "path", "split"}


def save_manifest(samples: Samples, file: Path) -> None:
    """Write the samples' manifest, wholly or not at all; leave the file alone if it already says the same."""
    if not (file.is_file() and has_checksum(file) and _says(file, _render(samples))):
        write_checked_pieces(file, _render(samples))


def _says(file: Path, pieces: Iterable[bytes]) -> bool:
    """Whether a file holds just that."""
    with open_plain(file) as opened:
        return all(opened.read(len(piece)) == piece for piece in pieces) and not opened.read(1)


def render_manifest(samples: Samples) -> bytes:
    """The manifest's bytes."""
    return b"".join(_render(samples))


def _render(samples: Samples) -> Iterator[bytes]:
    """The manifest in pieces: as text, the cells of ten million samples take gigabytes."""
    frame = samples.frame if _ascends(samples.frame["sample_id"]) else samples.frame.sort_values("sample_id", kind="stable")
    fold = ["fold"] if "fold" in frame.columns else []
    names = ["sample_id", "path", *samples.value_columns, *samples.input_columns, "group", "split", *fold]
    yield _lines([[_quote(name)] for name in names])
    for start in range(0, len(frame), _ROWS_AT_ONCE):
        piece = frame.iloc[start : start + _ROWS_AT_ONCE]
        yield _lines([_quoted(piece[name].tolist()) for name in names])


def _ascends(column: pd.Series[str]) -> bool:
    return all(left <= right for left, right in pairwise(TextColumn(column)))


def _lines(columns: Sequence[Sequence[str]]) -> bytes:
    return "".join(f"{','.join(row)}\n" for row in zip(*columns, strict=True)).encode("utf-8")


def _quoted(cells: Sequence[Any]) -> Sequence[str]:
    """Cells as CSV: the very same ones where all of them together show that none needs quotes."""
    texts = [cell if isinstance(cell, str) else repr(cell) for cell in cells]
    together = "|".join(["", *texts, ""])
    plain = together.isprintable() and not any(mark in together for mark in (",", '"', "| ", " |"))
    return texts if plain else [_quote(text) for text in texts]


def _quote(cell: str) -> str:
    """A cell as CSV; quoted when it must be, or when a reader might strip or skip it otherwise."""
    plain = cell.isprintable() and cell == cell.strip() and not any(mark in cell for mark in ',"')
    return cell if plain else '"' + cell.replace('"', '""') + '"'


def target_columns(columns: Iterable[str]) -> list[str]:
    """Those of a manifest's columns that hold values to be learnt; none where samples have classes."""
    return [name for name in columns if name not in (*TEXT_COLUMNS, "fold") and not is_input(name)]


def recall_manifest(file: Path, warn: Callable[[str], object]) -> pd.DataFrame | None:
    """The earlier manifest, if there is one; that there was one once is told, since splits are made anew without it."""
    found = load_manifest(file)
    if found is None and has_checksum(file):
        warn(f"{file.name} is gone: splits are made anew, and samples that earlier runs were trained on may come to test them")
    return found


def load_manifest(file: Path) -> pd.DataFrame | None:
    """The manifest as a frame (text as text, targets and inputs as floats, fold as integer), or None if there is none yet."""
    if not file.exists():
        return None
    edited = f"rm {shlex.quote(str(file.with_name(CHECKSUMS)))} if it was changed on purpose"
    anew = f"put a copy of it in its place; {edited}; or rm {shlex.quote(str(file))}, and the splits are made anew"
    try:
        with open_checked(file, try_=anew) as opened:
            frame = _parse(opened)
        missing = _REQUIRED - set(frame.columns)
        if missing:
            raise ValueError(f"it lacks the columns {', '.join(sorted(missing))}")
        numeric = {name: "int64" if name == "fold" else "float64" for name in frame.columns if name not in TEXT_COLUMNS}
        remote = frame["path"][frame["path"].str.contains("://", regex=False)]
        refuse_untyped({"data": tuple(remote)}, file=file, out=out_option(file.parent))
        return frame.astype(numeric)
    except ValueError as error:
        raise DataError(
            f"the manifest {file} cannot be read",
            code="damaged-manifest",
            why=f"{str(error).splitlines()[0]}; without it the splits are made anew",
            try_=f"rm {shlex.quote(str(file))}",
        ) from error


def _parse(file: BufferedReader) -> pd.DataFrame:
    """All cells as text, read in pieces: those of a piece are Python objects for a moment."""
    import pandas as pd

    size_bytes = file.seek(0, os.SEEK_END)
    file.seek(max(0, size_bytes - 1))
    if file.read(1) != b"\n":
        raise ValueError("its last line was cut off")
    file.seek(0)
    with pd.read_csv(
        file, dtype="str", na_filter=False, skip_blank_lines=False, encoding="utf-8", chunksize=_ROWS_AT_ONCE
    ) as pieces:
        return pd.concat(pieces, ignore_index=True)
