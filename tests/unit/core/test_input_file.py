"""What may be named as a file to read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from errors import refused
from unchoke.core.input_file import read_plain, refuse_special
from unchoke.core.presets import load_preset
from unchoke.data.table import read_table


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe.csv")
    return tmp_path / "pipe.csv"


def test_pipes_and_devices_are_refused_unread(pipe: Path) -> None:
    for path, what in ((pipe, "a pipe"), (Path("/dev/zero"), "a device")):
        with refused("not-a-regular-file", what):
            refuse_special(path)
    with refused("not-a-regular-file", str(pipe)):
        read_table(pipe)


def test_files_folders_and_missing_ones_pass(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file", tmp_path / "nowhere", tmp_path / ("x" * 300)):
        refuse_special(path)


@pytest.mark.parametrize("content", ["epochs = " + "9" * 5000, "x = " + "[" * 5000 + "]" * 5000, "no toml"])
def test_a_preset_that_cannot_be_parsed_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "p.toml").write_text(content)
    with refused("unreadable-file", "p.toml"):
        load_preset(str(tmp_path / "p.toml"))


def test_only_files_are_read_and_nothing_is_waited_for(pipe: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    assert read_plain(tmp_path / "file") == b"content"
    with pytest.raises(OSError, match="a pipe, not a file"):
        read_plain(pipe)
    with pytest.raises(IsADirectoryError):
        read_plain(tmp_path)
