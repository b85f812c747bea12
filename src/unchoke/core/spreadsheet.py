"""Cells of tables that people open in spreadsheets.

A name that begins with `=`, `+`, `-` or `@` would be computed as a formula there, and a file name may come from anybody.
Tables that are read again (corrections, manifests, predictions) have names as they are.
"""

from __future__ import annotations

_BEGINS_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def as_text(cell: str) -> str:
    """The cell, behind an apostrophe where a spreadsheet would compute it; numbers stay numbers."""
    return f"'{cell}" if cell.startswith(_BEGINS_FORMULA) and not _is_number(cell) else cell


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
