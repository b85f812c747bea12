"""Where a user may have a result written, and where not."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from errors import refused
from unchoke.core.checksums import add_checksums
from unchoke.core.output_file import OutputFile, output_file


def named(path: Path | str, *sources: Path) -> OutputFile:
    return output_file(path, option="--to", example="rows.csv", sources=sources)


def why_not(path: Path | str, *sources: Path) -> str:
    with refused("output-not-writable") as caught:
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


def test_a_folder_a_socket_and_a_loop_are_why_not(tmp_path: Path) -> None:
    assert "folder" in why_not(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        assert "socket" in why_not(tmp_path / "s")
    (tmp_path / "loop").symlink_to("loop")
    why_not(tmp_path / "loop")
    assert "is a file" in why_not(Path(__file__) / "rows.csv") or "Not a directory" in why_not(Path(__file__) / "rows.csv")
    why_not(tmp_path / ("x" * 300))
    why_not("zero\0byte")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such devices here")
def test_devices_are_refused_but_dev_null() -> None:
    assert "device" in why_not("/dev/full")
    assert "device" in why_not("/dev/zero")
    named("/dev/null").write_text("gone")
    assert not Path("/dev/null").is_file()


def test_a_file_that_the_command_reads_is_never_replaced(tmp_path: Path) -> None:
    photo = tmp_path / "photo.jpg"
    photo.write_bytes(b"pixels")
    (tmp_path / "alias").symlink_to(photo)
    assert "reads that file" in why_not(tmp_path / "alias", photo)
    assert photo.read_bytes() == b"pixels"


def test_pipe_is_written_only_while_somebody_reads(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with refused("output-not-writable", str(tmp_path / "pipe")):
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
def test_what_this_user_may_not_change_is_why_not(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "kept").chmod(0o444)
    assert "may not change" in why_not(tmp_path / "kept")
    tmp_path.chmod(0o555)
    try:
        assert "may not write" in why_not(tmp_path / "new")
    finally:
        tmp_path.chmod(0o755)


OWN_FILES = (
    "manifest.csv",
    "SHA256SUMS",
    ".owner",
    "quarantine.csv",
    "experiments/exp_1/checkpoints/best_head.pt",
    "logs/1.jsonl",
)


@pytest.mark.parametrize("name", OWN_FILES)
def test_files_of_a_workspace_are_never_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / "unchoke.toml").write_text("")
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    assert "keeps its own files there" in why_not(tmp_path / name)
    (tmp_path / name).write_text("kept")
    (tmp_path / "link.csv").symlink_to(tmp_path / name)
    assert "keeps its own files there" in why_not(tmp_path / "link.csv")


@pytest.mark.parametrize("name", ["rows.csv", "answers/rows.json", "logs/profiler/view.html"])
def test_results_in_a_workspace_may_be_written_again(tmp_path: Path, name: str) -> None:
    (tmp_path / "unchoke.toml").write_text("")
    named(tmp_path / name).write_text("first")
    named(tmp_path / name).write_text("second")
    assert (tmp_path / name).read_text() == "second"


def test_no_picture_is_replaced_by_a_table(tmp_path: Path) -> None:
    (tmp_path / "photo.JPG").write_bytes(b"pixels")
    assert "picture" in why_not(tmp_path / "photo.JPG")
    named(tmp_path / "chart.svg").write_text("new")


def test_what_a_list_of_ours_names_is_never_replaced(tmp_path: Path) -> None:
    export = tmp_path / "export"
    (export / "checkpoints").mkdir(parents=True)
    (export / "checkpoints" / "head.pt").write_bytes(b"weights")
    add_checksums(export, ["checkpoints/head.pt"])
    for name in ("checkpoints/head.pt", "SHA256SUMS"):
        assert "lists that file" in why_not(export / name)
    named(export / "rows.csv").write_text("new")
