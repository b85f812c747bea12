"""Directory listings: the only place that reads folders. One pass with `os.scandir`, sorted, so the order is always the same."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

OnSpecial = Callable[[str, str, str], None]
"""Hears of an entry that is neither file nor folder: its path, its path below the root, and what it is."""
LINK_TO_NOTHING = "a link that leads nowhere"
LINK_TO_ITSELF = "a link that leads to itself"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file as the listing saw it; `relative` uses forward slashes on every system."""

    path: str
    relative: str
    size_bytes: int
    mtime_ns: int


def walk(root: Path, *, on_special: OnSpecial | None = None) -> Iterator[FileEntry]:
    """Every file below `root`, depth first, in name order; hidden folders and files (a leading dot) are passed over.

    Links to files count as files; a link to a folder that was already entered is not entered again. What is neither file nor
    folder (a link to nothing, a pipe, a device) is only told of.
    """
    seen: set[tuple[int, int]] = set()
    yield from _walk(os.fspath(root), "", seen, on_special or _unheard)


def _unheard(_path: str, _relative: str, _what: str) -> None:
    pass


def _walk(folder: str, prefix: str, seen: set[tuple[int, int]], on_special: OnSpecial) -> Iterator[FileEntry]:
    info = os.stat(folder)
    identity = (info.st_dev, info.st_ino)
    if identity in seen and info.st_ino:
        return
    seen.add(identity)
    with os.scandir(folder) as scan:
        entries = sorted((entry for entry in scan if not entry.name.startswith(".")), key=lambda entry: entry.name)
    for entry in entries:
        if _is_loop(entry):
            on_special(entry.path, prefix + entry.name, LINK_TO_ITSELF)
        elif entry.is_dir():
            yield from _walk(entry.path, f"{prefix}{entry.name}/", seen, on_special)
        elif entry.is_file():
            if (found := _stat(entry)) is not None:
                yield FileEntry(entry.path, prefix + entry.name, found.st_size, found.st_mtime_ns)
        elif what := _special(entry):
            on_special(entry.path, prefix + entry.name, what)


def _is_loop(entry: os.DirEntry[str]) -> bool:
    """Whether it is a link that only leads to itself: like one that leads nowhere, it is no file."""
    try:
        entry.is_dir()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return True
    return False


def _special(entry: os.DirEntry[str]) -> str:
    """What an entry is that is neither file nor folder; "" for one that was deleted meanwhile."""
    found = _stat(entry)
    if found is None:
        return LINK_TO_NOTHING if entry.is_symlink() else ""
    return special_kind(found.st_mode)


def special_kind(mode: int) -> str:
    """In words what a mode says that is neither a file's nor a folder's; "" for those two."""
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    return kinds.get(stat.S_IFMT(mode), "")


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
