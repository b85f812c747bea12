"""Directory listings: the only place that reads folders. One pass with `os.scandir`, sorted, so the order is always the same.

Folders behind a URL are listed as the store lists them, in few requests, and come in the order that local ones would.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unchoke.core.ahead import map_ahead
from unchoke.core.remote import DataPlace, RemotePlace, cannot_list, refuse_unlisted
from unchoke.core.stores import READS_AT_ONCE, ask, explain, stamp, stat_url

OnSpecial = Callable[[str, str], object]
"""Called for an entry that is neither file nor folder, with its path below the root and what it is."""
_SPECIAL = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
_FEW_OF_A_FOLDER = 20
"""So many files are asked for one by one before their folder is listed."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file as the listing saw it; `relative` uses forward slashes on every system."""

    path: str
    relative: str
    size_bytes: int
    mtime_ns: int


def walk(root: DataPlace, *, on_special: OnSpecial = lambda _relative, _what: None) -> Iterator[FileEntry]:
    """Every file below `root`, depth first, in name order, without hidden folders and files (a leading dot).

    Links to files count as files; a link to a folder that was already entered is not entered again. What is neither file nor
    folder (a link to nothing, a pipe, a device) is only reported.
    """
    if isinstance(root, RemotePlace):
        yield from _walk_remote(root)
    else:
        yield from _walk(os.fspath(root), "", set(), on_special)


def _walk(folder: str, prefix: str, seen: set[tuple[int, int]], on_special: OnSpecial) -> Iterator[FileEntry]:
    info = os.stat(folder)
    identity = (info.st_dev, info.st_ino)
    if identity in seen and info.st_ino:
        return
    seen.add(identity)
    with os.scandir(folder) as scan:
        entries = sorted((entry for entry in scan if not entry.name.startswith(".")), key=lambda entry: entry.name)
    for entry in entries:
        relative = prefix + entry.name
        try:
            if entry.is_dir():
                yield from _walk(entry.path, f"{relative}/", seen, on_special)
                continue
            found = entry.stat()
        except FileNotFoundError:  # deleted meanwhile, unless it is a link
            if entry.is_symlink():
                on_special(relative, "a link that leads nowhere")
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            on_special(relative, "a link that leads to itself")
        else:
            if what := special_kind(found.st_mode):
                on_special(relative, what)
            else:
                yield FileEntry(entry.path, relative, found.st_size, found.st_mtime_ns)


def special_kind(mode: int) -> str:
    """What a mode stands for that is neither a file nor a folder; "" for those two."""
    return _SPECIAL.get(stat.S_IFMT(mode), "")


def _walk_remote(root: RemotePlace) -> Iterator[FileEntry]:
    """Every file below a URL, in the order of `walk`, without names with a leading dot."""
    refuse_unlisted(root)
    infos = _ask_folder(root, lambda fs, path: fs.find(path, detail=True))
    entries = [_remote_entry(root, below, info) for below, info in infos if info.get("type") != "directory"]
    kept = [entry for entry in entries if not any(part.startswith(".") for part in entry.relative.split("/"))]
    yield from sorted(kept, key=lambda entry: entry.relative.split("/"))


def _ask_folder(folder: RemotePlace, request: Callable[[Any, str], Any]) -> list[tuple[str, dict[str, Any]]]:
    """What a store says of a folder's entries, each with its path below the folder."""

    def below(fs: Any, path: str) -> list[tuple[str, dict[str, Any]]]:
        found, own = request(fs, path), path.strip("/")
        named = [(str(info["name"]), info) for info in (found.values() if isinstance(found, dict) else found)]
        # stores without folders mark them by an empty object of that name
        named = [(name, info) for name, info in named if name.strip("/") != own and not name.endswith("/")]
        return [(name.strip("/").removeprefix(f"{own}/" if own else ""), info) for name, info in named]

    try:
        return ask(folder.url, below)
    except OSError as error:
        raise explain(folder.url, error) from error


def _remote_entry(root: RemotePlace, relative: str, info: dict[str, Any]) -> FileEntry:
    return FileEntry(f"{root}/{relative}", relative, int(info.get("size") or 0), stamp(info))


def look_up(urls: Iterable[str]) -> list[FileEntry]:
    """Those files of `urls` that exist, in their order; `relative` is the URL without its scheme.

    A folder of which many are wanted is listed once; others are asked for one by one, at the same time.
    """
    wanted: dict[RemotePlace, list[str]] = {}
    order = list(dict.fromkeys(urls))
    for url in order:
        wanted.setdefault(RemotePlace(url).parent, []).append(url)
    listed = {folder: some for folder, some in wanted.items() if len(some) > _FEW_OF_A_FOLDER and not cannot_list(folder)}
    single = [url for folder, some in wanted.items() if folder not in listed for url in some]
    found = dict(zip(single, map_ahead(_look_up_one, single, threads=READS_AT_ONCE, ahead=4 * READS_AT_ONCE), strict=True))
    for folder in listed:
        for below, info in _ask_folder(folder, lambda fs, path: fs.ls(path, detail=True)):
            found[f"{folder}/{below}"] = _remote_entry(folder, below, info) if info.get("type") != "directory" else None
    entries = ((url, found.get(url)) for url in order)
    return [FileEntry(url, url.partition("://")[2], one.size_bytes, one.mtime_ns) for url, one in entries if one is not None]


def _look_up_one(url: str) -> FileEntry | None:
    """None for a file that does not exist. One that the store did not answer for counts as existing: reading it will tell."""
    try:
        return FileEntry(url, url, *stat_url(url))
    except (FileNotFoundError, IsADirectoryError):
        return None
    except OSError:
        return FileEntry(url, url, 0, 0)


def links(folder: Path) -> list[Path]:
    """The symbolic links directly in `folder`; none where there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if entry.is_symlink()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def names(folder: DataPlace, *, prefix: str = "", suffix: str = "") -> list[str]:
    """Names of the entries directly in `folder` with that beginning and end, sorted; empty if there is no such folder."""
    if isinstance(folder, RemotePlace):
        found = [below for below, _ in _ask_folder(folder, lambda fs, path: fs.ls(path, detail=True))]
    else:
        try:
            found = os.listdir(folder)
        except FileNotFoundError:
            return []
    return sorted(name for name in found if name.startswith(prefix) and name.endswith(suffix))
