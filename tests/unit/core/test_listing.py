"""Listings are sorted, pass over hidden things, and end even where links run in circles."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unchoke.core.listing import names, walk


def tree(root: Path, *files: str) -> None:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_bytes(file.encode())


def test_files_come_in_name_order_with_forward_slashes(tmp_path: Path) -> None:
    tree(tmp_path, "b.txt", "a/z.txt", "a/b/c.txt", "A.txt", "a (2)/x,y.txt", "ü.txt", "-dash")
    found = [entry.relative for entry in walk(tmp_path)]
    assert found == ["-dash", "A.txt", "a/b/c.txt", "a/z.txt", "a (2)/x,y.txt", "b.txt", "ü.txt"]


def test_an_entry_carries_what_the_disk_knows(tmp_path: Path) -> None:
    tree(tmp_path, "one.jpg")
    (entry,) = walk(tmp_path)
    stat = (tmp_path / "one.jpg").stat()
    assert (entry.path, entry.size_bytes, entry.mtime_ns) == (str(tmp_path / "one.jpg"), stat.st_size, stat.st_mtime_ns)


def test_hidden_files_and_folders_are_passed_over(tmp_path: Path) -> None:
    tree(tmp_path, ".hidden", ".git/config", "seen/.DS_Store", "seen/x")
    assert [entry.relative for entry in walk(tmp_path)] == ["seen/x"]


def test_links_that_run_in_a_circle_are_entered_once(tmp_path: Path) -> None:
    tree(tmp_path, "a/one", "b/two")
    (tmp_path / "a" / "up").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "b" / "aside").symlink_to(tmp_path / "a", target_is_directory=True)
    assert [entry.relative for entry in walk(tmp_path)] == ["a/one", "b/two"]


def test_link_to_a_file_counts_a_dangling_one_not(tmp_path: Path) -> None:
    tree(tmp_path / "data", "x")
    (tmp_path / "data" / "link").symlink_to(tmp_path / "data" / "x")
    (tmp_path / "data" / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "data" / "itself").symlink_to(tmp_path / "data" / "itself")
    assert [entry.relative for entry in walk(tmp_path / "data")] == ["link", "x"]


def test_what_is_neither_file_nor_folder_is_told_of(tmp_path: Path) -> None:
    tree(tmp_path, "a/x")
    os.mkfifo(tmp_path / "a" / "pipe")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "itself").symlink_to(tmp_path / "itself")
    told: dict[str, str] = {}
    files = list(walk(tmp_path, on_special=lambda relative, what: told.update({relative: what})))
    assert [entry.relative for entry in files] == ["a/x"]
    assert told == {"a/pipe": "a pipe", "gone": "a link that leads nowhere", "itself": "a link that leads to itself"}


def test_walking_nothing_raises_and_naming_nothing_is_empty(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(walk(tmp_path / "nowhere"))
    assert names(tmp_path / "nowhere") == []
