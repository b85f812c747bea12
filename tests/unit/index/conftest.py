"""Small trees of files and tables for the index tests; the files are never decoded, so a few bytes will do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

MakeFiles = Callable[[Iterable[str]], Path]


@pytest.fixture
def make_files(tmp_path: Path) -> MakeFiles:
    """Create files (relative paths) below a folder called data, and return that folder."""

    def make(relatives: Iterable[str]) -> Path:
        root = tmp_path / "data"
        root.mkdir(exist_ok=True)
        for relative in relatives:
            file = root / relative
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"x" + relative.encode())
        return root

    return make
