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
    missing_extra,
    shorten_values,
)
from unchoke.core.events import Note
from unchoke.core.findings import Finding


@pytest.mark.parametrize(("kind", "code"), [(UsageError, 2), (DataError, 1), (MachineError, 3), (Interrupted, 130)])
def test_each_kind_has_its_exit_code_and_keeps_its_lines_when_pickled(kind: type[UnchokeError], code: int) -> None:
    copy = pickle.loads(pickle.dumps(kind("what", why="because", try_="this")))
    assert type(copy) is kind
    assert (str(copy), copy.what, copy.why, copy.try_, copy.exit_code) == ("what", "what", "because", "this", code)


def test_a_list_shows_the_first_few_and_counts_the_rest() -> None:
    assert list_some(["a", "b"]) == "a, b"
    assert list_some(list("abcdefg"), limit=3) == "a, b, c and 4 more"
    assert list_some([]) == ""


def test_a_missing_extra_names_the_command_that_installs_it() -> None:
    error = missing_extra("nncf", extra="int8", purpose="int8 precision")
    assert isinstance(error, MachineError)
    assert (error.try_, "nncf" in error.what) == ("pip install 'unchoke[int8]'", True)


def test_a_cell_of_three_megabytes_is_quoted_by_its_ends_and_its_length() -> None:
    for cell in ("x" * 3_000_000, "a word " * 400_000, "a word's " * 400_000):
        error = DataError(f"the value {cell!r} is no number", why=f"row 7 has {cell}", try_="mend the row")
        assert "characters) …" in error.what
        assert len(error.what) < 2_500
        assert len(error.why) < 2_500
    assert "the value 'xxx" in DataError(f"the value {'x' * 300!r} is no number", why="", try_="").what
    ordinary = "row 7 of table.csv has no number in the column 'height': 'tall'"
    assert shorten_values(ordinary) == ordinary


def test_findings_and_notes_quote_values_as_errors_do() -> None:
    cell = "x" * 3_000_000
    assert len(Finding("single-image-class", f"1 class with one image: {cell!r}").message) < 400
    assert len(Note(f"{cell!r} has one image").text) < 400
