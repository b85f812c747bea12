"""`unchoke claims`: the list, a run of what takes no time, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Type


def test_the_list_is_the_same_by_either_command_and_can_be_narrowed(unchoke: Type) -> None:
    listed = unchoke("claims", "list", "--json").result["claims"]
    assert len(listed) == 13
    assert unchoke("claims", "run", "--list", "--json").result["claims"] == listed
    assert "20–40 %" in unchoke("claims", "run", "batched-tiles", "--list").stdout


def test_what_there_is_no_time_for_is_said_and_nothing_is_written(unchoke: Type) -> None:
    answer = unchoke("claims", "run", "batched-tiles", "--minutes", "0.01", "--json")
    (claim,) = answer.result["claims"]
    assert claim["verdict"] == "not measured"
    assert claim["measured"] is None
    assert answer.result["file"] is None


def test_unknown_claims_are_refused(unchoke: Type) -> None:
    answer = unchoke("claims", "run", "faster-everything")
    assert answer.code == 2
    assert "unchoke claims list" in answer.stderr
