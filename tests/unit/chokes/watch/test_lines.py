"""The file of a record stays small, and its newest line is never the one that goes."""

from __future__ import annotations

import os
from pathlib import Path

from unchoke.chokes.watch.lines import Lines


def lines(folder: Path) -> list[int]:
    return [int(line) for file in folder.iterdir() for line in file.read_text().split()]


def test_the_newest_line_is_there_at_every_moment_and_files_stay_small(tmp_path: Path) -> None:
    written = Lines(str(tmp_path), max_bytes=20)
    for number in range(100, 140):
        written.write(f"{number}\n".encode())
        assert max(lines(tmp_path)) == number
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 60
    assert {file.name for file in tmp_path.iterdir()} == {f"{os.getpid()}.jsonl", f"{os.getpid()}.next.jsonl"}
