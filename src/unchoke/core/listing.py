"""Directory listings: the only place that reads folders. One pass with `os.scandir`, sorted, so the order is always the same."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file as the listing saw it; `relative` uses forward slashes on every system."""

    path: str
    relative: str
    size_bytes: int
    mtime_ns: int


def walk(root: Path) -> Iterator[FileEntry]:
    """Every file below `root`, depth first, in name order; hidden folders and files (a leading dot) are passed over.

    Links to files count as files; a link to a folder that was already entered is not entered again.
    """
    seen: set[tuple[int, int]] = set()
    yield from _walk(os.fspath(root), "", seen)


def _walk(folder: str, prefix: str, seen: set[tuple[int, int]]) -> Iterator[FileEntry]:
    info = os.stat(folder)
    identity = (info.st_dev, info.st_ino)
    if identity in seen and info.st_ino:
        return
    seen.add(identity)
    with os.scandir(folder) as scan:
        entries = sorted((entry for entry in scan if not entry.name.startswith(".")), key=lambda entry: entry.name)
    for entry in entries:
        if _is_loop(entry):
            continue
        if entry.is_dir():
            yield from _walk(entry.path, f"{prefix}{entry.name}/", seen)
        elif entry.is_file() and (stat := _stat(entry)) is not None:
            yield FileEntry(entry.path, prefix + entry.name, stat.st_size, stat.st_mtime_ns)


def _is_loop(entry: os.DirEntry[str]) -> bool:
    """Whether it is a link that only leads to itself: like one that leads nowhere, it is no file."""
    try:
        entry.is_dir()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return True
    return False


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    """None for a file that was deleted since its folder was read."""
    try:
        return entry.stat()
    except FileNotFoundError:
        return None


def names(folder: Path, *, prefix: str = "", suffix: str = "") -> list[str]:
    """Names of the entries directly in `folder` with that beginning and end, sorted; empty if there is no such folder."""
    try:
        found = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(name for name in found if name.startswith(prefix) and name.endswith(suffix))
