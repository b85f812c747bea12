"""`manifest.csv`: one row per sample with its path, its label or targets, its extra inputs, its group and its split.

The same samples give the same bytes. Cells are quoted as RFC 4180 says, so that names with commas, quotes and line breaks
survive; lines end in a line feed.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unchoke.core.errors import DataError
from unchoke.core.seals import SEALS, is_sealed, read_sealed, write_sealed
from unchoke.photos.samples.sample_set import Samples

if TYPE_CHECKING:
    import pandas as pd

TEXT_COLUMNS = ("sample_id", "path", "label", "group", "split")
_REQUIRED = {"sample_id", "path", "split"}


def save_manifest(samples: Samples, file: Path) -> None:
    """Write the samples' manifest, wholly or not at all; leave the file alone if it already says the same."""
    data = render_manifest(samples)
    if not (file.is_file() and file.read_bytes() == data and is_sealed(file)):
        write_sealed(file, data)


def render_manifest(samples: Samples) -> bytes:
    """The manifest's bytes."""
    frame = samples.frame.sort_values("sample_id", kind="stable")
    fold = ["fold"] if "fold" in frame.columns else []
    names = ["sample_id", "path", *samples.value_columns, *samples.input_columns, "group", "split", *fold]
    out = io.StringIO()
    out.write(_line(names))
    out.writelines(_line(row) for row in zip(*(frame[name].tolist() for name in names), strict=True))
    return out.getvalue().encode("utf-8")


def _line(cells: Iterable[Any]) -> str:
    return ",".join(_quote(cell if isinstance(cell, str) else repr(cell)) for cell in cells) + "\n"


def _quote(cell: str) -> str:
    """A cell as CSV; quoted when it must be, or when a reader might strip or skip it otherwise."""
    plain = cell.isprintable() and cell == cell.strip() and not any(mark in cell for mark in ',"')
    return cell if plain else '"' + cell.replace('"', '""') + '"'


def recall_manifest(file: Path, warn: Callable[[str], object]) -> pd.DataFrame | None:
    """The earlier manifest, if there is one; that there was one once is told, since splits are made anew without it."""
    found = load_manifest(file)
    if found is None and is_sealed(file):
        warn(f"{file.name} is gone: splits are made anew, and samples that earlier runs were trained on may come to test them")
    return found


def load_manifest(file: Path) -> pd.DataFrame | None:
    """The manifest as a frame (text as text, targets and inputs as floats, fold as integer), or None if there is none yet."""
    import pandas as pd

    if not file.exists():
        return None
    edited = f"remove its line from {SEALS} if it was changed on purpose"
    anew = f"put a copy of it in its place; {edited}; or rm {shlex.quote(str(file))}, and the splits are made anew"
    data = read_sealed(file, try_=anew)
    try:
        if not data.endswith(b"\n"):
            raise ValueError("its last line was cut off")
        frame = pd.read_csv(io.BytesIO(data), dtype="str", na_filter=False, skip_blank_lines=False, encoding="utf-8")
        missing = _REQUIRED - set(frame.columns)
        if missing:
            raise ValueError(f"it lacks the columns {', '.join(sorted(missing))}")
        numeric = {name: "int64" if name == "fold" else "float64" for name in frame.columns if name not in TEXT_COLUMNS}
        return frame.astype(numeric)
    except ValueError as error:
        raise DataError(
            f"the manifest {file} cannot be read",
            why=f"{str(error).splitlines()[0]}; without it the splits are made anew",
            try_=f"rm {shlex.quote(str(file))}",
        ) from error
