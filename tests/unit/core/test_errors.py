"""Every error says three things, has its exit code, and survives a process boundary."""

from __future__ import annotations

import pickle

import pytest

from unchoke.core.errors import (
    DataError,
    Interrupted,
    MachineError,
    UnchokeError,
    UsageError,
    list_some,
    shorten_values,
)
from unchoke.core.events import Note
from unchoke.core.findings import Finding


@pytest.mark.parametrize(("kind", "exit_code"), [(UsageError, 2), (DataError, 1), (MachineError, 3), (Interrupted, 130)])
def test_exit_codes_and_lines_survive_pickling(kind: type[UnchokeError], exit_code: int) -> None:
    copy = pickle.loads(pickle.dumps(kind("what", code="of-a-test", why="because", try_="this")))
    assert type(copy) is kind
    assert (str(copy), copy.what, copy.why, copy.try_) == ("what", "what", "because", "this")
    assert (copy.code, copy.exit_code) == ("of-a-test", exit_code)


def test_a_list_shows_the_first_few_and_counts_the_rest() -> None:
    assert list_some(["a", "b"]) == "a, b"
    assert list_some(list("abcdefg"), limit=3) == "a, b, c and 4 more"
    assert list_some([]) == ""


def test_huge_cell_is_quoted_by_its_ends() -> None:
    for cell in ("x" * 3_000_000, "a word " * 400_000, "a word's " * 400_000):
        error = DataError(f"the value {cell!r} is no number", code="of-a-test", why=f"row 7 has {cell}", try_="mend the row")
        assert "characters) …" in error.what
        assert len(error.what) < 2_500
        assert len(error.why) < 2_500
    assert "the value 'xxx" in DataError(f"the value {'x' * 300!r} is no number", code="of-a-test", why="", try_="").what
    ordinary = "row 7 of table.csv has no number in the column 'height': 'tall'"
    assert shorten_values(ordinary) == ordinary


def test_findings_and_notes_quote_values_as_errors_do() -> None:
    cell = "x" * 3_000_000
    assert len(Finding("single-image-class", f"1 class with one image: {cell!r}").message) < 400
    assert len(Note(f"{cell!r} has one image").text) < 400
