"""Files that are either wholly there or not there at all. The only place that renames files.

A writer fills a temporary file beside the target, flushes it to disk, and renames it over the target. A kill at any moment
leaves the old file, the new file, or a stray `.tmp` that `sweep_temporaries` removes. A full disk becomes a `MachineError`
and leaves nothing half-written.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from unchoke.core import listing
from unchoke.core.errors import MachineError
from unchoke.core.units import format_bytes

TEMPORARY_PREFIX = ".unchoke-"
TEMPORARY_SUFFIX = ".tmp"
_BUSY = ".busy"


def write_with(path: Path, write: Callable[[IO[bytes]], object], *, durable: bool = True) -> None:
    """Create or replace `path` with what `write` puts into the binary file it is handed.

    Not `durable`, it is not flushed to disk: for one of many small files whose sizes and digests stand in a record that is.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}{TEMPORARY_SUFFIX}"
    with no_room_explained(path):
        try:
            with temporary.open("xb") as file:
                write(file)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        if durable:
            _sync_folder(path.parent)


def write_bytes(path: Path, data: bytes) -> None:
    """Create or replace `path` with `data`."""
    write_with(path, lambda file: file.write(data))


def write_text(path: Path, text: str) -> None:
    """Create or replace `path` with UTF-8 `text`, line endings as given, and names that are no UTF-8 spelled out."""
    write_bytes(path, valid_text(text).encode("utf-8"))


def valid_text(text: str) -> str:
    """Undecodable bytes of a file name (lone surrogates) as ``\\udcff``, so that the text can be written as UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def write_json(path: Path, value: Any) -> None:
    """Create or replace `path` with `value` as sorted, indented JSON."""
    write_text(path, render_json(value))


def render_json(value: Any) -> str:
    """`value` as sorted, indented JSON: what `write_json` writes."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


@contextmanager
def build_folder(target: Path) -> Iterator[Path]:
    """An empty folder to fill. When the block ends well it becomes `target`, which must not exist yet; otherwise it vanishes.

    What a kill left of it is swept with `sweep_temporaries(target.parent, of=target.name)`. `is_being_built` tells others of it.
    """
    from filelock import FileLock

    built = target.parent / f"{_prefix_of(target.name)}{secrets.token_hex(8)}{TEMPORARY_SUFFIX}"
    built.mkdir(parents=True)
    try:
        with no_room_explained(target):
            with FileLock(built / _BUSY):
                yield built
            (built / _BUSY).unlink(missing_ok=True)
            built.replace(target)
    except BaseException:
        shutil.rmtree(built, ignore_errors=True)
        raise


def is_being_built(target: Path) -> bool:
    """Whether a living process is filling what becomes `target`."""
    from filelock import FileLock, Timeout

    for name in listing.names(target.parent, prefix=_prefix_of(target.name), suffix=TEMPORARY_SUFFIX):
        busy = target.parent / name / _BUSY
        try:
            if busy.exists():
                FileLock(busy).acquire(timeout=0).lock.release()
        except Timeout:
            return True
    return False


def adopt(built: Path, target: Path) -> None:
    """Make a finished file, written by someone else on the same disk, become `target`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with no_room_explained(target):
        with built.open("rb+") as file:
            os.fsync(file.fileno())
        built.replace(target)
    _sync_folder(target.parent)


@contextmanager
def no_room_explained(path: Path) -> Iterator[None]:
    """Translate 'disk full' into a sentence; let every other error through."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise no_room(path, error) from error


def no_room(path: Path, error: OSError | None = None) -> MachineError:
    """The error for a full disk, a quota or a limit on the size of files, naming the file that did not fit."""
    code = None if error is None else error.errno
    limit = ""
    with suppress(ImportError):  # not on Windows
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        limit = "" if soft == resource.RLIM_INFINITY else f"{format_bytes(soft)} at most"
    if code == errno.EFBIG or (code is None and limit):
        return MachineError(
            f"{path.name} may not become as large as it has to be",
            code="file-size-limit",
            why=f"files in {path.parent} may have {limit or 'a largest size'} (ulimit -f, or the disk's own limit); "
            "nothing was half-written",
            try_="ulimit -f unlimited, then the same command again: it goes on from here",
        )
    if code == errno.EDQUOT:
        return MachineError(
            f"no room left to write {path.name}",
            code="disk-quota",
            why=f"this user's quota on the disk that holds {path.parent} is used up; nothing was half-written",
            try_="free some space, or name a folder on another disk with --out; the same command goes on from here",
        )
    free_bytes = 0
    with suppress(OSError):
        free_bytes = shutil.disk_usage(path.parent).free
    return MachineError(
        f"no room left to write {path.name}",
        code="disk-full",
        why=f"the disk that holds {path.parent} has {format_bytes(free_bytes)} free; nothing was half-written",
        try_="free some space and run the same command again: it goes on from here",
    )


def sweep_temporaries(folder: Path, *, of: str = "") -> int:
    """Remove what an earlier kill left behind in `folder`, in all or of a folder named `of`; return how many files."""
    strays = listing.names(folder, prefix=_prefix_of(of) if of else TEMPORARY_PREFIX, suffix=TEMPORARY_SUFFIX)
    for stray in strays:
        path = folder / stray
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return len(strays)


def _prefix_of(name: str) -> str:
    """Of what becomes the folder `name`; a digest, because a name may be as long as names can be."""
    return f"{TEMPORARY_PREFIX}{hashlib.sha256(name.encode()).hexdigest()[:8]}-"


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable where the platform can (not on Windows)."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
