"""`unchoke claims`: the list, a run of what takes no time, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Type


def test_list_of_claims(unchoke: Type) -> None:
    listed = unchoke("claims", "list", "--json").result["claims"]
    assert len(listed) == 13
    assert unchoke("claims", "run", "--list", "--json").result["claims"] == listed
    assert "20–40 %" in unchoke("claims", "run", "batched-tiles", "--list").stdout


def test_no_time_to_measure(unchoke: Type) -> None:
    answer = unchoke("claims", "run", "batched-tiles", "--minutes", "0.01", "--json")
    (claim,) = answer.result["claims"]
    assert claim["verdict"] == "not measured"
    assert claim["measured"] is None
    assert answer.result["file"] is None


def test_unknown_claims_are_refused(unchoke: Type) -> None:
    answer = unchoke("claims", "run", "faster-everything")
    assert answer.code == 2
    assert "[unknown-claim]" in answer.stderr
    assert "unchoke claims list" in answer.stderr
