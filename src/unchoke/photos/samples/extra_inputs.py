"""Columns that the network is given beside the picture (NDVI, height): cells to numbers, and what keeps one from being used.

In: a table of text and the names of such columns. Out: one float column `input/NAME` for each, NaN where a cell is no number,
with a finding that names the images. Nothing is filled in. Scaling is left to training.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from unchoke.core.errors import UsageError, list_some
from unchoke.core.findings import Finding
from unchoke.core.units import format_count
from unchoke.photos.samples.sample_set import input_column
from unchoke.photos.samples.values import has_decimal_comma, name_rows

if TYPE_CHECKING:
    import pandas as pd


def refuse_leaks(inputs: Sequence[str], *, learnt: Sequence[str | None], taken: Sequence[str | None] = ()) -> None:
    """Refuse an input that is given twice, that is what shall be learnt, or that only says which image and side a row is."""
    for name in inputs:
        if name in learnt:
            raise UsageError(
                f"{name!r} is both what shall be learnt and an input",
                why="a network that is shown the answer learns nothing else, and its figures mean nothing",
                try_=f"leave out --input {shlex.quote(name)}",
            )
        if name in taken or inputs.count(name) > 1:
            why = "the column says which image a row is about, or which side it is on" if name in taken else "it was given twice"
            raise UsageError(f"{name!r} cannot be an input", why=why, try_=f"leave out one --input {shlex.quote(name)}")


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
    """Floats, NaN where a cell is no number that float32 can hold, which is what training computes in."""
    import pandas as pd

    columns = {input_column(name): pd.to_numeric(table[name].str.strip(), errors="coerce") for name in names}
    numbers = pd.DataFrame(columns, index=table.index, dtype="float64")
    with np.errstate(over="ignore"):
        return numbers.where(np.isfinite(numbers.to_numpy(dtype=np.float32)))


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
            fix="write decimals with a point, not a comma" if has_decimal_comma(written) else mend,
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
