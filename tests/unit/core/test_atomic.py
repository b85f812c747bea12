"""A file is wholly there or not there at all."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from errors import refused
from unchoke.core import atomic

KILLED_WHILE_WRITING = """
import os, signal, sys
from pathlib import Path
from unchoke.core import atomic
def write(file):
    file.write(b"half of the new")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
atomic.write_with(Path(sys.argv[1]), write)
"""


def failing(number: int) -> Callable[[IO[bytes]], object]:
    def write(file: IO[bytes]) -> None:
        file.write(b"half")
        raise OSError(number, os.strerror(number))

    return write


def everything(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_bytes_text_and_json_arrive_and_folders_are_made(tmp_path: Path) -> None:
    atomic.write_bytes(tmp_path / "a" / "b" / "c.bin", b"\x00\xff")
    atomic.write_text(tmp_path / "t.txt", "ü\r\n")
    atomic.write_json(tmp_path / "v.json", {"b": 1, "a": "ü"})
    assert (tmp_path / "a" / "b" / "c.bin").read_bytes() == b"\x00\xff"
    assert (tmp_path / "t.txt").read_bytes() == "ü\r\n".encode()
    assert list(json.loads((tmp_path / "v.json").read_text())) == ["a", "b"]


def test_names_that_are_no_utf8_are_spelled_out(tmp_path: Path) -> None:
    atomic.write_text(tmp_path / "rows.csv", "n\udcff.jpg,é\n")
    assert (tmp_path / "rows.csv").read_text(encoding="utf-8") == "n\\udcff.jpg,é\n"
    atomic.write_json(tmp_path / "rows.json", {"path": "n\udcff.jpg"})
    assert json.loads((tmp_path / "rows.json").read_text(encoding="utf-8")) == {"path": "n\udcff.jpg"}


def test_kill_leaves_the_old_file_and_a_stray(tmp_path: Path) -> None:
    file = tmp_path / "kept.txt"
    file.write_text("old")
    done = subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING, str(file)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert file.read_text() == "old"
    assert len(everything(tmp_path)) == 2
    assert atomic.sweep_temporaries(tmp_path) == 1
    assert everything(tmp_path) == ["kept.txt"]


@pytest.mark.parametrize(
    ("number", "code"), [(errno.ENOSPC, "disk-full"), (errno.EDQUOT, "disk-quota"), (errno.EFBIG, "file-size-limit")]
)
def test_full_disk_leaves_the_old_file(tmp_path: Path, number: int, code: str) -> None:
    file = tmp_path / "shard.npz"
    file.write_text("old")
    with refused(code, "shard.npz", str(tmp_path)):
        atomic.write_with(file, failing(number))
    assert (everything(tmp_path), file.read_text()) == (["shard.npz"], "old")


def test_other_errors_pass_through_and_leave_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Input/output"):
        atomic.write_with(tmp_path / "new", failing(errno.EIO))
    assert everything(tmp_path) == []


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_files_and_folders_get_the_rights_the_umask_allows(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        atomic.write_text(tmp_path / "f", "x")
        with atomic.build_folder(tmp_path / "d") as built:
            (built / "inner").mkdir()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == mode
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o777 & ~mask


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with atomic.build_folder(tmp_path / "deep" / "good") as built:
        assert not (tmp_path / "deep" / "good").exists()
        (built / "x").write_text("1")
    assert (tmp_path / "deep" / "good" / "x").read_text() == "1"
    with refused("disk-full", "bad"), atomic.build_folder(tmp_path / "deep" / "bad") as built:
        (built / "x").write_text("1")
        raise OSError(errno.ENOSPC, "full")
    assert everything(tmp_path / "deep") == ["good"]


def test_sweeping_takes_only_our_own_temporaries(tmp_path: Path) -> None:
    (tmp_path / f"{atomic.TEMPORARY_PREFIX}folder{atomic.TEMPORARY_SUFFIX}" / "inner").mkdir(parents=True)
    for name in (f"{atomic.TEMPORARY_PREFIX}x{atomic.TEMPORARY_SUFFIX}", "notes.tmp", ".unchoke-notes", "data.csv"):
        (tmp_path / name).write_text("x")
    assert atomic.sweep_temporaries(tmp_path) == 2
    assert everything(tmp_path) == [".unchoke-notes", "data.csv", "notes.tmp"]
    assert atomic.sweep_temporaries(tmp_path / "nowhere") == 0


def test_file_built_elsewhere_replaces_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "built.tmp").write_bytes(b"new")
    (tmp_path / "target").write_bytes(b"old")
    atomic.adopt(tmp_path / "built.tmp", tmp_path / "target")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("target", b"new")]
