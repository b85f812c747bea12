"""`unchoke budget` as it is typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Type


def test_the_answer_is_one_json_object(unchoke: Type) -> None:
    typed = ["--encoder", "test_vit", "--cut", "end", "--batch-size", "1", "--memory", "1GB", "--device", "cpu"]
    answer = unchoke("budget", *typed, "--json")
    assert answer.code == 0, answer.stdout
    result = answer.result
    assert (answer.last["command"], result["cut"], result["plan"]["sub_batch"]) == ("budget", "end", 1)
    assert result["memory"]["planned_bytes"] < result["memory"]["limit_bytes"] == 1_000_000_000
    kinds = {line.get("event") for line in answer.lines[:-1]}
    assert "progress" in kinds


def test_what_is_mistyped_is_explained(unchoke: Type) -> None:
    answer = unchoke("budget", "--encoder", "test_vit", "--cut", "4")
    assert answer.code == 2
    assert "-4" in answer.stderr
