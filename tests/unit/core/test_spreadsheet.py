"""No cell that is made for a spreadsheet is computed there."""

from __future__ import annotations

import pytest

from unchoke.core.spreadsheet import as_text


@pytest.mark.parametrize("cell", ["=HYPERLINK(1)/1.jpg", "@x/1.jpg", "-1+cmd|' /C calc'!A0", "+x", "\t=1", "\r=1"])
def test_a_name_like_a_formula_is_text(cell: str) -> None:
    assert as_text(cell) == f"'{cell}"


@pytest.mark.parametrize("cell", ["", "a/1.jpg", "-1.5", "+3e4", "a=b", "'=x"])
def test_everything_else_is_as_it_was(cell: str) -> None:
    assert as_text(cell) == cell
