"""Predictions in the shape of somebody's sample file: its ids, its columns, its order (`predict --like sample_submission.csv`).

In: the sample's table and the rows of `predict`. Out: the text of the file to hand in. An id without a photo, a photo that could
not be read and a column that means nothing are refused: a file that is only nearly right is worth nothing.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unchoke.core.errors import DataError, UsageError, list_some
from unchoke.core.listing import FileEntry
from unchoke.core.remote import locate
from unchoke.core.units import format_count
from unchoke.data.image_files import FileMatcher
from unchoke.data.several_labels import split_cell
from unchoke.data.table import is_number, read_table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Sample:
    """A sample file, with the column that names photos and, for each row, the photo and what stands behind its name."""

    name: str
    table: pd.DataFrame
    key: str
    photos: Sequence[str]
    behind: Sequence[str]
    """``Dry_Green_g`` of ``ID7__Dry_Green_g``: the target of a row, where there is a row for each of them."""


def read_sample(file: str | Path, paths: Sequence[str]) -> Sample:
    """The sample file, each of whose ids names one of the photos `paths`."""
    place = locate(file)
    if not place.is_file():
        raise UsageError(
            f"no such file: {file}", code="no-such-file", why="--like names a sample of what is to be written", try_="check it"
        )
    table = read_table(place)
    matcher = FileMatcher([FileEntry(path, path.lstrip("/"), 0, 0) for path in paths])
    names = [str(name) for name in table.columns]
    head = table.iloc[:: max(1, len(table) // 200)]
    best = ("", -1.0, False)
    for name in names:
        cells = [str(cell) for cell in head[name]]
        for long in (False, True):
            share = matcher.share_found([cell.rpartition("__")[0] or cell for cell in cells] if long else cells)
            best = (name, share, long) if share > best[1] else best
    key, _, long = best
    cells = [str(cell).strip() for cell in table[key]]
    ids = [(cell.rpartition("__")[0], cell.rpartition("__")[2]) if long else (cell, "") for cell in cells]
    found = [matcher.find(name) for name, _ in ids]
    lost = [cell for cell, hits in zip(cells, found, strict=True) if len(hits) != 1]
    if lost or not cells:
        raise DataError(
            f"{format_count(len(lost), 'id')} of {place.name} without one photo of that name: {list_some(lost)}",
            code="ids-without-photo",
            why=f"its column {key!r} was compared with {format_count(len(paths), 'image')}",
            try_="name the folder that holds exactly these photos",
        )
    return Sample(place.name, table, key, [paths[hits[0]] for hits in found], [behind for _, behind in ids])


def fill_sample(sample: Sample, rows: Sequence[Mapping[str, Any]], classes: Sequence[str], *, several: bool = False) -> str:
    """The sample's rows with what was predicted; `classes` are the run's, none where it predicts values. Where a photo may have
    `several` of them, one cell has them all, separated as in the sample.
    """
    by_path = {row["path"]: row for row in rows}
    unread = [path for path in dict.fromkeys(sample.photos) if by_path[path]["error"]]
    if unread:
        raise DataError(
            f"{format_count(len(unread), 'photo')} could not be read: {list_some(unread)}",
            code="too-many-failed",
            why="every id of the sample needs an answer",
            try_="mend the files, and run the same command again",
        )
    others = [str(name) for name in sample.table.columns if name != sample.key]
    columns = {name: _source(sample, name, others, by_path[sample.photos[0]], classes) for name in others}

    def mark_of(name: str) -> str:
        return next((mark for mark in "|;," if sample.table[name].str.contains(mark, regex=False).any()), " ")

    marks = {name: mark_of(name) for name in others}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(sample.table.columns)
    for place, (path, behind) in enumerate(zip(sample.photos, sample.behind, strict=True)):
        row = by_path[path]
        cells = {name: row[behind if source is None else source] for name, source in columns.items()}
        if several:
            cells |= {
                name: marks[name].join(split_cell(row[source])) for name, source in columns.items() if source == "predicted"
            }
        cells[sample.key] = sample.table[sample.key].iloc[place]
        writer.writerow([cells[str(name)] for name in sample.table.columns])
    return out.getvalue()


def _source(sample: Sample, name: str, others: Sequence[str], row: Mapping[str, Any], classes: Sequence[str]) -> str | None:
    """The column of predictions that goes into the sample's column `name`; None for the one that its ids name."""
    if f"p/{name}" in row and (len(others) > 1 or len(classes) == 2):
        return f"p/{name}"
    if not classes and name in row:
        return name
    if len(others) == 1:
        if not classes and set(sample.behind) <= set(row) and "" not in sample.behind:
            return None
        values = [one for one in row if one not in ("path", "error") and not one.endswith(("/low", "/high"))]
        if not classes and len(values) == 1:
            return values[0]
        shares = [str(cell) for cell in sample.table[name]]
        if classes and list(classes) == ["0", "1"] and all(map(is_number, shares)) and any("." in cell for cell in shares):
            return "p/1"
        if classes:
            return "predicted"
    known = [one.removeprefix("p/") for one in row if one not in ("path", "error", "predicted", "confidence")]
    raise UsageError(
        f"the column {name!r} of {sample.name} is nothing that the run predicts",
        code="no-such-target",
        why=f"it predicts {list_some(known, limit=20)}",
        try_="train on the classes or targets that the sample has, under the same names",
    )
