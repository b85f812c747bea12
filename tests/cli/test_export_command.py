"""`unchoke export` as it is typed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Type


def test_what_cannot_be_written_is_said_before_anything_is_read(unchoke: Type, tmp_path: Path) -> None:
    answer = unchoke("export", "latest", "--to", tmp_path / "m", "--format", "pt2", "--precision", "f16", "--out", tmp_path)
    assert answer.code == 2 and "cannot be written" in answer.stderr
    assert not (tmp_path / "m").exists()
