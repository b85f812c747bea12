"""Where a user may have a result written, and where not."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from unchoke.core.errors import UsageError
from unchoke.core.output_file import OutputFile, output_file


def named(path: Path | str, *sources: Path) -> OutputFile:
    return output_file(path, option="--to", example="rows.csv", sources=sources)


def refused(path: Path | str, *sources: Path) -> str:
    with pytest.raises(UsageError) as caught:
        named(path, *sources)
    assert "--to" in caught.value.what
    assert caught.value.try_ == "--to rows.csv"
    return caught.value.why


def test_a_new_file_and_its_folders_are_made(tmp_path: Path) -> None:
    named(tmp_path / "new" / "rows.csv").write_text("é\n")
    assert (tmp_path / "new" / "rows.csv").read_text(encoding="utf-8") == "é\n"


def test_a_link_stays_one_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "target.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to("target.csv")
    named(tmp_path / "link.csv").write_text("new")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "target.csv").read_text() == "new"


def test_a_link_to_nothing_makes_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to("later.csv")
    named(tmp_path / "link.csv").write_text("new")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "later.csv").read_text() == "new"


def test_a_folder_a_socket_and_a_loop_are_refused(tmp_path: Path) -> None:
    assert "folder" in refused(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        assert "socket" in refused(tmp_path / "s")
    (tmp_path / "loop").symlink_to("loop")
    refused(tmp_path / "loop")
    assert "is a file" in refused(Path(__file__) / "rows.csv") or "Not a directory" in refused(Path(__file__) / "rows.csv")
    refused(tmp_path / ("x" * 300))
    refused("zero\0byte")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such devices here")
def test_devices_are_refused_but_the_one_that_swallows_everything() -> None:
    assert "device" in refused("/dev/full")
    assert "device" in refused("/dev/zero")
    named("/dev/null").write_text("gone")
    assert not Path("/dev/null").is_file()


def test_a_file_that_the_command_reads_is_never_replaced(tmp_path: Path) -> None:
    photo = tmp_path / "photo.jpg"
    photo.write_bytes(b"pixels")
    (tmp_path / "alias").symlink_to(photo)
    assert "reads that file" in refused(tmp_path / "alias", photo)
    assert photo.read_bytes() == b"pixels"


def test_a_pipe_is_written_to_while_somebody_reads_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="cannot write"):
        named(tmp_path / "pipe").write_text("to nobody")
    heard: list[str] = []
    descriptor = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    reader = threading.Thread(target=lambda: heard.append(os.fdopen(descriptor).read()))
    named(tmp_path / "pipe").write_text("x" * 100)
    reader.start()
    reader.join(timeout=30)
    assert heard == ["x" * 100]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_what_this_user_may_not_change_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "kept").chmod(0o444)
    assert "may not be changed" in refused(tmp_path / "kept")
    tmp_path.chmod(0o555)
    try:
        assert "may not write" in refused(tmp_path / "new")
    finally:
        tmp_path.chmod(0o755)
