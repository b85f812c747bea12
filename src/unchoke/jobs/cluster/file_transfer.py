"""Files between the driver and nodes, in both directions.

Down: files that a node needs are looked for there first, and else sent from the driver, whole and once for each host. What is
sent keeps its names, its neighbours and its times, and lies in a folder of the host that vanishes with it. Values that name files
are rewritten to where these are on the node (`with_paths`), and texts about them back again (`FileStore.restore_names`).

Up: a job writes below a folder. On a node that is the driver's own folder if both see the same one, which a mark in it tells;
else a scratch folder, whose files are uploaded with their checksums and put in place here, the job's artefact last.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from unchoke.core import atomic, listing
from unchoke.core.errors import DataError
from unchoke.core.fingerprint import digest_bytes
from unchoke.core.input_file import read_plain
from unchoke.core.temporary_folders import keep_scratch, scratch_folder
from unchoke.core.units import format_bytes
from unchoke.core.urls import is_url

MOST_SENT_BYTES = 2**30
"""The largest set of files that is sent: it is held in memory on the way, on both ends."""
_FREE_SHARE = 0.5
"""How much of a node's free disk all files that are sent may take."""
_ARRIVES_WITHIN_S = 600.0
T = TypeVar("T")


@dataclass(frozen=True)
class SentFile:
    """The content of a file on its way, in either direction."""

    data: bytes
    sha256: str

    @classmethod
    def of(cls, data: bytes) -> SentFile:
        return cls(data, digest_bytes(data))

    def checked(self, name: str) -> bytes:
        """The content, refused where it is not what was sent."""
        if digest_bytes(self.data) != self.sha256:
            raise DataError(
                f"{name} was damaged on its way between the driver and a node",
                code="damaged-transfer",
                why="its checksum is not the one it was sent with",
                try_="run the same command again; if it happens again, test the network between the machines",
            )
        return self.data


@dataclass(frozen=True)
class SharedFolder:
    """Where artefacts go on the driver's machine, with a mark in it that only the same folder can hold."""

    folder: Path
    mark: str
    content: str

    def is_seen(self) -> bool:
        """Whether this machine sees that very folder."""
        try:
            return (self.folder / self.mark).read_text(encoding="utf-8") == self.content
        except (OSError, ValueError):
            return False

    def is_here(self) -> bool:
        """Whether this machine sees that very folder, and may write to it."""
        if not self.is_seen():
            return False
        try:
            atomic.write_bytes(self.folder / f"{self.mark}.{secrets.token_hex(4)}{atomic.TEMPORARY_SUFFIX}", b"")
        except (OSError, DataError):
            return False
        return True


@contextmanager
def marked(folder: Path) -> Iterator[SharedFolder]:
    """Leave a mark in `folder` by which another machine can tell that it sees the very same one."""
    name = f"{atomic.TEMPORARY_PREFIX}shared-{secrets.token_hex(8)}"
    shared = SharedFolder(folder.resolve(), f"{name}{atomic.TEMPORARY_SUFFIX}", secrets.token_hex(16))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / shared.mark).write_text(shared.content, encoding="utf-8")
    try:
        yield shared
    finally:
        for left in listing.names(folder, prefix=name):  # the mark, and what nodes tried to write beside it
            (folder / left).unlink(missing_ok=True)


@contextmanager
def writing_for(shared: SharedFolder, *, shares: bool) -> Iterator[tuple[Path, dict[str, SentFile]]]:
    """Where a job may write now, and what must be uploaded: filled when the block ends, empty where the folder is shared."""
    files: dict[str, SentFile] = {}
    if shares:
        yield shared.folder, files
        return
    with scratch_folder("job") as scratch:
        yield scratch, files
        files.update({file.relative: SentFile.of(Path(file.path).read_bytes()) for file in listing.walk(scratch)})


def put_in_place(folder: Path, files: Mapping[str, SentFile], *, artefact: str) -> None:
    """Write what was uploaded below `folder`, as it left the node; the artefact last."""
    for name in sorted(files, key=lambda name: (name == artefact, name)):
        atomic.write_bytes(folder / name, files[name].checked(name))


class NeededFile(NamedTuple):
    """A file as the driver has it: by the name that values use for it, and in full."""

    name: str
    path: str
    size_bytes: int
    mtime_ns: int


class SentCopy(NamedTuple):
    """A file on its way to a node, with the path and the time it has on the driver."""

    path: str
    file: SentFile
    mtime_ns: int


class SentSet(NamedTuple):
    """A set of files on its way."""

    key: str
    copies: Mapping[str, SentCopy]


@dataclass(frozen=True)
class FileSet:
    """Files that are used together, under a key."""

    key: str
    files: tuple[NeededFile, ...]

    @classmethod
    def of(cls, key: str, names: Sequence[str]) -> FileSet:
        """The files of these names as they are now. One that is gone is left out: reading it will fail with a reason.

        So are those behind a URL, which means the same everywhere.
        """
        files = []
        for name in (name for name in dict.fromkeys(names) if not is_url(name)):
            path = str(Path(name).absolute())
            try:
                found = os.stat(path)
            except OSError:
                continue
            files.append(NeededFile(name, path, found.st_size, found.st_mtime_ns))
        return cls(key, tuple(files))

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def is_here(self) -> bool:
        """Whether this machine sees every one of them, as it is on the driver."""
        try:
            found = [os.stat(file.path) for file in self.files]
        except OSError:
            return False
        return [(one.st_size, one.st_mtime_ns) for one in found] == [file[2:] for file in self.files]

    def places(self) -> dict[str, str]:
        """Where each file lies for those who see it: a driver's relative name means nothing elsewhere."""
        return {file.name: file.path for file in self.files}

    def read(self) -> SentSet:
        """Everything in it, as it is now. What cannot be read is left out, as above."""
        sent = {}
        for file in self.files:
            try:
                found, data = os.stat(file.path), read_plain(file.path)
            except OSError:
                continue
            sent[file.name] = SentCopy(file.path, SentFile.of(data), found.st_mtime_ns)
        return SentSet(self.key, sent)


def too_much(unseen: Sequence[FileSet], *, free_bytes: int) -> str:
    """Why these cannot all be sent to a node with so much free disk; "" where they can."""
    largest = max(unseen, key=lambda one: one.size_bytes, default=None)
    if largest is None:
        return ""
    if largest.size_bytes > MOST_SENT_BYTES:
        size, most = format_bytes(largest.size_bytes), format_bytes(MOST_SENT_BYTES)
        return f"it does not see the files of {largest.key}, and their {size} are more than the {most} that are sent"
    total = sum(one.size_bytes for one in unseen)
    if total > _FREE_SHARE * free_bytes:
        free = format_bytes(free_bytes)
        return f"it does not see {format_bytes(total)} of files, and {free} are free on its disk for what is sent"
    return ""


class FileStore:
    """What a host was sent, in a folder of its own. Several tasks may ask at once: those that need the same set wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrived: defaultdict[str, Future[dict[str, str]]] = defaultdict(Future)

    @cached_property
    def folder(self) -> Path:
        """Made when the first file arrives."""
        return keep_scratch("sent")

    def take_in(self, sent: SentSet) -> None:
        """Put the files in place, with their times, and wake those who wait for them."""
        with self._lock:
            arrived = self._arrived[sent.key]
        try:
            arrived.set_result(self._write(sent))
        except Exception as error:
            arrived.set_exception(error)
            raise

    def places(self, key: str) -> Mapping[str, str]:
        """Where the files of a set lie here, by the names the driver has for them; waits for one that is under way."""
        with self._lock:
            arrived = self._arrived[key]
        try:
            return arrived.result(_ARRIVES_WITHIN_S)
        except Exception as error:
            why = str(error) or f"they did not arrive within {_ARRIVES_WITHIN_S:g} s"
            what = f"the files of {key} are not on this node"
            raise DataError(what, code="files-not-on-node", why=why, try_="run the same command again") from error

    def restore_names(self, text: str) -> str:
        """`text` with the names that the driver knows, where it speaks of files that were sent."""
        with self._lock:
            there = [one.result() for one in self._arrived.values() if one.done() and one.exception() is None]
        pairs = [(place, name) for places in there for name, place in places.items()]
        for place, name in sorted(pairs, key=lambda pair: -len(pair[0])):
            text = text.replace(place, name)
        return text

    def _write(self, sent: SentSet) -> dict[str, str]:
        folders: dict[str, Path] = {}
        places = {}
        root = Path(tempfile.mkdtemp(dir=self.folder))
        for name, copy in sent.copies.items():
            beside, file = os.path.split(copy.path)
            folder = folders.setdefault(beside, root / str(len(folders)))
            folder.mkdir(exist_ok=True)
            place = folder / file
            place.write_bytes(copy.file.checked(name))
            os.utime(place, ns=(copy.mtime_ns, copy.mtime_ns))
            places[name] = str(place)
        return places


def with_paths(value: T, places: Mapping[str, str]) -> T:
    """`value` with every text that is a name in `places` replaced by its place: in dataclasses, tuples, lists and mappings.

    What nothing is replaced in stays the very same object.
    """
    found: Any = value
    if isinstance(value, str):
        found = places.get(value, value)
    elif is_dataclass(value) and not isinstance(value, type):
        new = {one.name: with_paths(getattr(value, one.name), places) for one in fields(value) if one.init}
        changed = {name: one for name, one in new.items() if one is not getattr(value, name)}
        found = replace(value, **changed) if changed else value
    elif isinstance(value, tuple | list):
        items = [with_paths(item, places) for item in value]
        if any(item is not before for item, before in zip(items, value, strict=True)):
            found = type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    elif isinstance(value, dict):
        rewritten = {key: with_paths(item, places) for key, item in value.items()}
        if any(rewritten[key] is not value[key] for key in value):
            found = rewritten
    return found  # type: ignore[no-any-return]
