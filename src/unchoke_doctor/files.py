"""Files that a command writes: whole or not at all, and never over what it reads."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from unchoke_doctor.errors import UsageError

_STREAMS = (os.devnull, "/dev/tty", "/dev/stdout", "/dev/stderr")


def write_bytes(path: Path, data: bytes) -> None:
    """Replace `path`, through a temporary file beside it; a link stays a link, and the file keeps its mode."""
    try:
        if path.exists() and not path.is_file():  # a pipe or a device
            with open(path, "wb", opener=None if os.name == "nt" else _open_if_read) as file:
                file.write(data)
            return
        path = Path(os.path.realpath(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o7777 if path.exists() else 0o666 & ~_umask()
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".unchoke-", suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(mode)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(
            f"cannot write {path}", code="output-not-writable", why=why, try_="name another file or folder"
        ) from error


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, ensure_ascii=False, default=str) + "\n")


def check_output(named: str | Path, option: str, sources: Iterable[str | Path]) -> None:
    """Refuse, before any work, a file that cannot be written or that the command reads."""
    path = Path(named)
    why, device = "", False
    try:
        with suppress(FileNotFoundError):
            mode = path.stat().st_mode
            device = stat.S_ISBLK(mode) or stat.S_ISCHR(mode)
        if path.is_dir():
            why = "it is a folder"
        elif device and not any(path.samefile(one) for one in _STREAMS if Path(one).exists()):
            why = "it is a device, and what lies there would be overwritten"
        elif path.exists() and any(Path(source).exists() and path.samefile(source) for source in sources):
            why = "the command reads that file: it would be lost"
        elif path.suffix == ".ipynb":
            why = "a notebook is never written"
        elif not os.access(next(parent for parent in path.absolute().parents if parent.exists()), os.W_OK):
            why = "this user may not write there"
    except OSError as error:  # a name too long, a loop of links
        why = error.strerror or str(error)
    if why:
        raise UsageError(
            f"cannot write {named}, named with {option}", code="output-not-writable", why=why, try_=f"{option} another-name"
        )


def _open_if_read(name: str, flags: int) -> int:
    """A pipe that nobody reads is refused, not waited for."""
    handle = os.open(name, flags | os.O_NONBLOCK)
    os.set_blocking(handle, True)
    return handle


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
