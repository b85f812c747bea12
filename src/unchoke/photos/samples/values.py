"""Cells to labels and numbers, with a finding for every row that has none. Pure: text columns in, typed columns out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from unchoke.core.errors import list_some
from unchoke.core.findings import Finding
from unchoke.core.units import format_count
from unchoke.photos.samples.table import MISSING_WORDS

if TYPE_CHECKING:
    import pandas as pd


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
    """The columns as floats, NaN where a cell is no finite number; one finding per column names those rows."""
    import pandas as pd

    numbers = pd.DataFrame({name: pd.to_numeric(table[name].str.strip(), errors="coerce") for name in columns}, dtype="float64")
    numbers = numbers.where(np.isfinite(numbers.to_numpy()))
    return numbers, [finding for name in columns if (finding := _bad_numbers(table, name, numbers[name])) is not None]


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
        fix="write decimals with a point, not a comma" if has_decimal_comma(cells) else "fill in a number or remove the row",
    )


def has_decimal_comma(cells: Sequence[str]) -> bool:
    """Whether one of these cells would be a number if its comma were a point."""
    return any(cell.replace(",", ".", 1).strip().replace(".", "", 1).isdigit() and "," in cell for cell in cells)
