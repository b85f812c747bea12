"""Columns that the network is given beside the picture (NDVI, height): cells to numbers, and what keeps one from being used.

In: a table of text and the names of such columns. Out: one float column `input/NAME` for each, NaN where a cell is no number,
with a finding that names the images. Nothing is filled in. Scaling is left to training.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unchoke.core.errors import DataError, UsageError, list_some
from unchoke.core.findings import Finding
from unchoke.core.listing import FileEntry
from unchoke.core.remote import DataPlace, locate
from unchoke.core.units import format_count
from unchoke.data.columns import describe_columns, require_columns
from unchoke.data.image_files import FileMatcher
from unchoke.data.sample_set import input_column
from unchoke.data.table import as_numbers, mend_numbers, name_rows, no_rows, read_table

if TYPE_CHECKING:
    import pandas as pd

Found = Mapping[str, list[str]]
"""Picture → the cells that name it: one, none, or several that could mean it."""


def read_inputs(table: pd.DataFrame, names: Sequence[str], *, ids: pd.Series[str]) -> tuple[pd.DataFrame, list[Finding]]:
    """One float column per input, row for row; one finding per column names the images (`ids`) without a number."""
    numbers = _as_numbers(table, names)
    return numbers, [found for name in names for found in _bad_cells(table[name], numbers[input_column(name)], ids=ids)]


def settle_inputs(rows: pd.DataFrame, names: Sequence[str], *, key: str) -> tuple[pd.DataFrame, list[Finding]]:
    """The inputs of a long table, one row per image: the rows of an image must agree, or it has none and is named."""
    numbers = _as_numbers(rows, names).assign(**{key: rows[key]})
    settled = numbers.drop_duplicates(key).set_index(key)
    findings: list[Finding] = []
    for name in names:
        column = input_column(name)
        varies = numbers.groupby(key)[column].nunique(dropna=False) > 1
        clashing = [str(image) for image in varies.index[varies]]
        settled.loc[clashing, column] = np.nan
        rest = ~rows[key].duplicated() & ~rows[key].isin(clashing)
        findings += _conflict(name, clashing) + _bad_cells(rows[name][rest], numbers[column][rest], ids=rows[key][rest])
    return settled, findings


def _as_numbers(table: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """The inputs as numbers, under the names they have among the samples."""
    return as_numbers(table, names).rename(columns=input_column)


def _bad_cells(cells: pd.Series[str], numbers: pd.Series[float], *, ids: pd.Series[str]) -> list[Finding]:
    bad = numbers.isna().to_numpy(dtype=bool)
    if not bad.any():
        return []
    images, written = [str(image) for image in ids[bad]], [str(cell) for cell in cells[bad]]
    shown = list_some([f"{image} {cell!r}" for image, cell in zip(images, written, strict=True)])
    name, rows = str(cells.name), name_rows(cells.to_frame(), bad)
    mend = f"fill in the number or remove the row, or leave out --input {shlex.quote(name)}; nothing is filled in for you"
    return [
        Finding(
            "bad-inputs",
            f"{format_count(len(images), 'image')} without a finite number in the input {name!r}: {shown}",
            severity="error",
            evidence={"column": name, "ids": images[:1000], "rows": rows[:1000], "count": len(images)},
            fix=mend_numbers(written) or mend,
        )
    ]


def _conflict(name: str, images: list[str]) -> list[Finding]:
    if not images:
        return []
    return [
        Finding(
            "input-conflict",
            f"{format_count(len(images), 'image')} with several values of the input {name!r}: {list_some(images)}",
            severity="error",
            evidence={"column": name, "images": images[:1000], "count": len(images)},
            fix="give every row of an image the same value",
        )
    ]


def read_given_inputs(file: Path | str | None, names: Sequence[str], paths: Sequence[str]) -> NDArray[np.float32] | None:
    """(pictures, names): the inputs `names` of each of `paths`; None for a run that takes none."""
    if not names:
        if file is not None:
            raise UsageError(
                f"--inputs {file} has no use",
                code="inputs-not-used",
                why="the run was trained on pictures alone",
                try_="leave --inputs out, or name a run that was trained with --input",
            )
        return None
    if file is None:
        raise UsageError(
            f"the run was trained with extra inputs: {list_some(list(names), limit=20)}",
            code="inputs-missing",
            why="the network is given these numbers beside each picture, and none were given",
            try_="--inputs TABLE.csv, with a column of picture names and those columns",
        )
    place = locate(file)
    if not place.is_file():
        raise UsageError(
            f"no such table: {file}", code="no-such-file", why="--inputs names a file that exists", try_="check the path"
        )
    table = read_table(place)
    if not len(table):
        raise no_rows(place)
    require_columns(table, {"which the run was trained with": list(names)})
    key, found = _choose_key(table, names, paths)
    _refuse_unmatched(place, key, found)
    wanted = table[table[key].isin([cells[0] for cells in found.values()])]
    settled, findings = settle_inputs(wanted, names, key=key)
    if findings:
        raise DataError(
            f"{place.name} cannot be used: {findings[0].message}",
            code="bad-inputs",
            why="the network needs one number of each kind for each picture",
            try_=findings[0].fix,
        )
    rows = settled.loc[[found[path][0] for path in paths], [input_column(name) for name in names]]
    return rows.to_numpy(dtype=np.float32)


def _choose_key(table: pd.DataFrame, names: Sequence[str], paths: Sequence[str]) -> tuple[str, Found]:
    """The column that names most of the pictures, and which of its cells names each."""
    columns = [str(name) for name in table.columns if name not in names]
    found = {name: _find(list(dict.fromkeys(table[name])), paths) for name in columns}
    best = max(columns, key=lambda name: sum(bool(cells) for cells in found[name].values()), default=None)
    if best is None or not any(found[best].values()):
        raise UsageError(
            "no column of the table names the pictures",
            code="no-key-column",
            why=f"its columns are {describe_columns(table)}",
            try_="add a column with the pictures' paths or file names",
        )
    return best, found[best]


def _find(cells: Sequence[str], paths: Sequence[str]) -> Found:
    """Which of `cells` names each picture. Where a cell names folders, too, they are the picture's own."""
    tidy = [cell.strip().replace("\\", "/").removeprefix("./") for cell in cells]
    matcher = FileMatcher([FileEntry(cell, cell, 0, 0) for cell in tidy])
    return {path: [cells[hit] for hit in matcher.find(str(locate(path).absolute()))] for path in paths}


def _refuse_unmatched(file: DataPlace, key: str, found: Found) -> None:
    lost = [path for path, cells in found.items() if not cells]
    several = [f"{path} ({' or '.join(map(repr, cells[:2]))})" for path, cells in found.items() if len(cells) > 1]
    if lost:
        raise DataError(
            f"{format_count(len(lost), 'picture')} without a row in {file.name}: {list_some(lost)}",
            code="inputs-unmatched",
            why=f"pictures are looked up in its column {key!r}, by path or by file name",
            try_="add their rows, or leave these pictures out",
        )
    if several:
        raise DataError(
            f"{format_count(len(several), 'picture')} could be several rows of {file.name}: {list_some(several, limit=3)}",
            code="inputs-ambiguous",
            why=f"its column {key!r} does not tell them apart",
            try_=f"write the pictures' folders into {shlex.quote(key)}, too",
        )
