"""Files that are read. A pipe (reading would wait) or a device (it may have no end) is refused unread.

In: a path or a URL. Out: its content, or the system's own error; for what a user named, a `UsageError`.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import stat
import tomllib
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

from unchoke.core.errors import UsageError
from unchoke.core.listing import special_kind
from unchoke.core.remote import DataPlace, RemotePlace
from unchoke.core.stores import RemoteFile, read_url, stat_url
from unchoke.core.urls import is_url

_NO_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # the second on Windows alone


def open_plain(path: Path | str) -> BufferedReader:
    """The file, opened to be read; an `OSError` for anything else that lies there. A URL is read piece by piece."""
    if is_url(path):
        return BufferedReader(RemoteFile(str(path)))
    descriptor = os.open(path, os.O_RDONLY | _NO_WAITING)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if what := special_kind(mode):
            raise OSError(errno.ENXIO, f"{what}, not a file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        with suppress(OSError):  # a Ctrl-C within fdopen has closed it already, and must not be hidden behind that
            os.close(descriptor)
        raise


def read_plain(path: Path | str) -> bytes:
    """The content of a file; an `OSError` for anything else that lies there."""
    if is_url(path):
        return read_url(str(path))
    with open_plain(path) as file:
        return file.read()


def parse_json(data: bytes | str) -> Any:
    """The value; a `ValueError` for everything else, JSON nested too deeply among it."""
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_toml(file: Path, *, what: str, try_: str) -> tuple[str, dict[str, Any]]:
    """The text of a TOML file, and its values; `what` names it in the error."""
    try:
        text = read_plain(file).decode("utf-8").replace("\r\n", "\n")
        return text, tomllib.loads(text)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise UsageError(f"{what} cannot be read", code="unreadable-file", why=f"it is {error.strerror}", try_=try_) from error
    except (ValueError, RecursionError) as error:  # wrong TOML, wrong UTF-8, a number of 5,000 digits; nested too deeply
        raise UsageError(f"{what} cannot be read", code="unreadable-file", why=str(error), try_=try_) from error


def size_and_time(path: str) -> tuple[int, int]:
    """A file's size and time of change in nanoseconds, or what a store has instead; another pair means another content."""
    if is_url(path):
        return stat_url(path)
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


def refuse_special(path: DataPlace | str) -> None:
    """Refuse what is there and is neither a file nor a folder; stores have nothing else."""
    if isinstance(path, RemotePlace):
        return
    try:
        what = special_kind(os.stat(path).st_mode)
    except (OSError, ValueError):  # unchoke: ignore[blank-on-error]  reading it raises an error with the reason
        return
    if what:
        raise UsageError(
            f"{path} is {what}, not a file",
            code="not-a-regular-file",
            why="it would be waited for, might have no end, and could not be read a second time",
            try_=f"cat {shlex.quote(str(path))} > FILE, then give that file",
        )
