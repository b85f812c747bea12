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
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from unchoke.core import listing
from unchoke.core.errors import MachineError
from unchoke.core.units import format_bytes

TEMPORARY_PREFIX = ".unchoke-"
_BUSY = ".busy"
TEMPORARY_SUFFIX = ".tmp"
_umask_lock = threading.Lock()
_SOME_SIZE = "a largest size"
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def write_with(path: Path, write: Callable[[IO[bytes]], object], *, durable: bool = True) -> None:
    """Create or replace `path` with what `write` puts into the binary file it is handed.

    Not `durable`, it is not flushed to disk: for one of many small files whose sizes and digests stand in a record that is.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with no_room_explained(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=TEMPORARY_PREFIX, suffix=TEMPORARY_SUFFIX)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                write(file)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            temporary.chmod(0o666 & ~_current_umask())
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


def write_changed(folder: Path, texts: Mapping[str, str]) -> list[str]:
    """Write the files below `folder` whose text is not this already; their names."""
    files = {name: folder / name for name in texts}
    changed = [name for name, file in files.items() if not file.is_file() or file.read_text(encoding="utf-8") != texts[name]]
    for name in changed:
        write_text(files[name], texts[name])
    return changed


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

    target.parent.mkdir(parents=True, exist_ok=True)
    name = tempfile.mkdtemp(dir=target.parent, prefix=_prefix_of(target.name), suffix=TEMPORARY_SUFFIX)
    built = Path(name)
    try:
        with no_room_explained(target):
            with FileLock(built / _BUSY):
                yield built
            (built / _BUSY).unlink(missing_ok=True)
            built.chmod(0o777 & ~_current_umask())
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
        if error.errno not in _NO_ROOM:
            raise
        raise no_room(path, error) from error


def no_room(path: Path, error: OSError | None = None) -> MachineError:
    """The error for a full disk, a quota or a limit on the size of files, naming the file that did not fit."""
    code = None if error is None else error.errno
    if code == errno.EFBIG or (code is None and _file_limit() != _SOME_SIZE):
        return MachineError(
            f"{path.name} may not become as large as it has to be",
            code="file-size-limit",
            why=f"files in {path.parent} may have {_file_limit()} (ulimit -f, or the disk's own limit); nothing was half-written",
            try_="ulimit -f unlimited, then the same command again: it goes on from here",
        )
    if code == errno.EDQUOT:
        return MachineError(
            f"no room left to write {path.name}",
            code="disk-quota",
            why=f"this user's quota on the disk that holds {path.parent} is used up; nothing was half-written",
            try_="free some space, or name a folder on another disk with --out; the same command goes on from here",
        )
    return MachineError(
        f"no room left to write {path.name}",
        code="disk-full",
        why=f"the disk that holds {path.parent} has {format_bytes(_free_bytes(path.parent))} free; nothing was half-written",
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


def _file_limit() -> str:
    try:
        import resource
    except ImportError:  # not on Windows
        return _SOME_SIZE
    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return _SOME_SIZE if soft == resource.RLIM_INFINITY else f"{format_bytes(soft)} at most"


def _free_bytes(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


def _current_umask() -> int:
    """Reading the mask means setting it: two threads at once would leave it at 0 for good."""
    with _umask_lock:
        mask = os.umask(0)
        os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable where the platform can (not on Windows)."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
