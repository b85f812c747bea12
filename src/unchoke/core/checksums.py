"""Files that are read as they were written: their SHA-256 stands beside them, in `SHA256SUMS` of their folder or the one above.

In: bytes to write, finished files, files to read. Out: the very bytes that were written, or a `DamagedFile`. The list is one that
`sha256sum -c SHA256SUMS` reads; its first line is a checksum of the others. A file that it does not name is used as it is, so
older folders open. A kill between a file and its checksum must not make a sound file look damaged: the new sum is added first,
then the file is replaced, then the old sum goes. Until then both count.
"""

from __future__ import annotations

import errno
import hashlib
import re
import shlex
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

from unchoke.core import atomic
from unchoke.core.errors import DamagedFile
from unchoke.core.fingerprint import digest_bytes, digest_file
from unchoke.core.input_file import open_plain, parse_json

CHECKSUMS = "SHA256SUMS"
Sums = dict[str, tuple[str, ...]]
_MARK = "# sealed "
_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")
_TRIES = 3
_PIECE_BYTES = 1 << 20
_NONSENSE = (ValueError, KeyError, TypeError, AttributeError, IndexError, EOFError, RecursionError)


def write_checked(path: Path, data: bytes) -> None:
    """Create or replace `path` with `data`, and keep its checksum."""
    write_checked_pieces(path, [data])


def write_checked_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """Create or replace `path` with `pieces`, one after the other; only one of them is held at a time."""
    sums = _load(path.parent)
    known, new = sums.get(path.name, ()), ""

    def write(file: IO[bytes]) -> None:
        nonlocal new
        whole = hashlib.sha256()
        for piece in pieces:
            whole.update(piece)
            file.write(piece)
        new = whole.hexdigest()
        if known != (new,):
            _save(path.parent, {**sums, path.name: tuple(dict.fromkeys((*known, new)))})

    atomic.write_with(path, write)
    if known and known != (new,):
        _save(path.parent, {**sums, path.name: (new,)}, durable=False)


def save_checked_json(path: Path, value: Any) -> None:
    """`atomic.write_json` with a checksum."""
    write_checked(path, atomic.valid_text(atomic.render_json(value)).encode("utf-8"))


def add_checksums(folder: Path, names: Iterable[str]) -> None:
    """List those of `names` that are in `folder` or below it, and nothing else there."""
    _save(folder, {name: (digest_file(folder / name),) for name in sorted(names) if (folder / name).is_file()})


def drop_checksums(folder: Path, names: Iterable[str]) -> None:
    """List `names` no longer: they are about to be made again."""
    sums = _load(folder)
    left = {name: sum_ for name, sum_ in sums.items() if name not in set(names)}
    if left != sums:
        _save(folder, left)


def has_checksum(path: Path) -> bool:
    """Whether `path` is listed, even where the file itself is gone."""
    return bool(_sums(path))


def is_listed(path: Path) -> bool:
    """Whether replacing `path` would break a list that we wrote: it is named there, or is the list."""
    lists = [file for file in (path.parent / CHECKSUMS, path.parent.parent / CHECKSUMS) if file.is_file()]
    ours = any(file.read_bytes().startswith(_MARK.encode()) for file in lists)
    return ours and (path.name == CHECKSUMS or has_checksum(path))


def read_checked(path: Path, *, try_: str = "") -> bytes:
    """The bytes of `path` as they were written; `DamagedFile` for others, the system's own error where there is no such file."""
    with open_checked(path, try_=try_) as file:
        return file.read()


@contextmanager
def open_checked(path: Path, *, try_: str = "") -> Iterator[BufferedReader]:
    """`path` opened at its beginning, once it was read through and found as it was written.

    A file that replaces it later is not read.
    """
    for _ in range(_TRIES):  # another process may have replaced file and checksum between the two looks
        with _opened(path, try_=try_) as file:
            sums = _sums(path)
            if not sums or hashlib.file_digest(file, "sha256").hexdigest() in sums:
                file.seek(0)
                yield file
                return
    raise damaged(path, try_=try_)


def _opened(path: Path, *, try_: str = "") -> BufferedReader:
    """A file to be read; a pipe or a device in its place counts as damage."""
    try:
        return open_plain(path)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise damaged(path, f"it is {error.strerror}", try_=try_) from error


def load_checked_json(path: Path, *, try_: str = "") -> Any:
    """The value in a JSON file, as it was written."""
    data = read_checked(path, try_=try_)
    with making_sense(path, try_=try_):
        return parse_json(data)


def recall_json(path: Path, warn: Callable[[str], object]) -> dict[str, Any]:
    """The object in a file that is only a memory; a damaged one is reported and counts as absent."""
    try:
        found = load_checked_json(path)
        with making_sense(path):
            return dict(found)
    except FileNotFoundError:
        return {}
    except DamagedFile as error:
        warn(f"{path.name} is not used ({error.why}): what it remembered is found out again")
        return {}


def verify(path: Path, *, try_: str = "") -> None:
    """Refuse a file that is not as it was written: by its checksum, or by the sums that an archive has inside."""
    if not has_checksum(path):
        return verify_archive(path, try_=try_)
    with open_checked(path, try_=try_):
        return None


def verify_folder(folder: Path) -> None:
    """Refuse a folder where a listed file is missing, or not as it was written."""
    for name in _load(folder):
        if not (folder / name).is_file():
            raise damaged(folder / name, "it is not there")
        verify(folder / name)


def verify_archive(path: Path, *, try_: str = "") -> None:
    """Compare every member of a zip archive (`.pt`, `.npz`) with its CRC-32; other files have nothing to compare."""
    try:
        with open_plain(path) as file, zipfile.ZipFile(file) as archive:
            for info in archive.infolist():
                with archive.open(info) as member:
                    while member.read(_PIECE_BYTES):
                        pass
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        if zipfile.is_zipfile(path):
            raise damaged(path, str(error), try_=try_) from error


def damaged(path: Path, fact: str = "it no longer has the checksum it was written with", *, try_: str = "") -> DamagedFile:
    """The error for a file that is not what was written."""
    sums = next((folder / CHECKSUMS for folder in path.parents[:2] if (folder / CHECKSUMS).is_file()), path.with_name(CHECKSUMS))
    changed = f"rm {shlex.quote(str(sums))} if it was changed on purpose: files beside that are then used as they are"
    return DamagedFile(
        f"{path} is damaged", code="damaged-file", why=fact, try_=try_ or f"put a copy of it in its place, or {changed}"
    )


@contextmanager
def making_sense(path: Path, *, try_: str = "") -> Iterator[None]:
    """A file without a checksum whose content makes no sense is damaged, too."""
    try:
        yield
    except _NONSENSE as error:
        fact = f"its content makes no sense ({type(error).__name__}: {str(error)[:120]})"
        raise damaged(path, fact, try_=try_) from error


def _sums(path: Path) -> tuple[str, ...]:
    """The sums that `path` may have, listed in its folder or the one above."""
    for folder in (path.parent, path.parent.parent):
        if found := _load(folder).get(path.relative_to(folder).as_posix()):
            return found
    return ()


def _load(folder: Path) -> Sums:
    """The list of a folder. One of somebody else's, without our mark, is as good."""
    file = folder / CHECKSUMS
    use = f"rm {shlex.quote(str(file))}: the files beside it are then used as they are"
    try:
        with _opened(file, try_=use) as opened:
            text = opened.read().decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    first, _, lines = text.partition("\n")
    if first.startswith(_MARK) and first != _MARK + digest_bytes(lines.encode()):
        raise damaged(file, "its lines are not those that were written", try_=use)
    sums: Sums = {}
    for line in text.split("\n"):
        if match := _LINE.fullmatch(line):
            sums[match[2]] = (*sums.get(match[2], ()), match[1])
    return sums


def _save(folder: Path, sums: Sums, *, durable: bool = True) -> None:
    lines = "".join(f"{sha256}  {name}\n" for name in sorted(sums) for sha256 in sums[name])
    data = f"{_MARK}{digest_bytes(lines.encode())}\n{lines}".encode()
    atomic.write_with(folder / CHECKSUMS, lambda file: file.write(data), durable=durable)
