"""`unchoke export` as it is typed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Type


def test_impossible_precision_is_refused_first(unchoke: Type, tmp_path: Path) -> None:
    answer = unchoke("export", "latest", "--to", tmp_path / "m", "--format", "pt2", "--precision", "f16", "--out", tmp_path)
    assert answer.code == 2 and "[precision-unsupported]" in answer.stderr
    assert not (tmp_path / "m").exists()
