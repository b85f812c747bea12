"""Every error says three things, has its exit code, and survives a process boundary."""

from __future__ import annotations

import pickle

import pytest

from unchoke.core.errors import DataError, Interrupted, MachineError, UnchokeError, UsageError, list_some, missing_extra


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
