"""`unchoke curate` as it is typed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Type


def test_curate_answers_as_text_and_as_json(unchoke: Type, workspace: Path, tmp_path: Path) -> None:
    answer = unchoke("curate", "--out", workspace, "--csv", tmp_path / "found.csv", "--json")
    assert answer.code == 0
    assert answer.result["num_photos"] == 42
    assert set(answer.result["queue"]) <= {one["id"] for one in answer.result["findings"]}
    assert (tmp_path / "found.csv").read_text().startswith("place,id,kind,score")
    text = unchoke("curate", "--out", workspace)
    assert text.code == 0
    assert "42 photos" in text.stdout


def test_unreadable_corrections(unchoke: Type, workspace: Path) -> None:
    (workspace / "corrections.csv").write_text("photo,what,value\na.jpg,use,perhaps\n")
    for command in ("check", "fit", "curate"):
        answer = unchoke(command, "--out", workspace)
        assert answer.code == 1
        assert "line 2" in answer.stderr
        assert "[bad-correction]" in answer.stderr
