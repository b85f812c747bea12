"""Files that a node needs and may not see: looked for there first, and else sent from the driver, whole and once for each host.

On the driver a `FileSet` says which files belong together and how they were; a node that finds them so reads them where they are.
What is sent keeps its names, its neighbours and its times, and lies in a folder of the host that vanishes with it. Values that
name files are rewritten to where these are on the node (`with_paths`), and texts about them back again (`FileStore.told`).
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from unchoke.core.errors import DataError
from unchoke.core.fingerprint import digest_bytes
from unchoke.core.input_file import read_plain
from unchoke.core.temporary_folders import keep_scratch
from unchoke.core.units import format_bytes
from unchoke.core.urls import is_url
from unchoke.jobs.cluster.homing import SentFile

MOST_SENT_BYTES = 2**30
"""The largest set of files that is sent: it is held in memory on the way, on both sides."""
_FREE_SHARE = 0.5
"""What all files that are sent may take of a node's free disk."""
_ARRIVES_WITHIN_S = 600.0
T = TypeVar("T")


@dataclass(frozen=True)
class NeededFile:
    """A file as the driver has it: by the name that values use for it, and in full."""

    name: str
    path: str
    size_bytes: int
    mtime_ns: int

    def is_here(self) -> bool:
        """Whether this machine sees the same file in the same place."""
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        return (found.st_size, found.st_mtime_ns) == (self.size_bytes, self.mtime_ns)


@dataclass(frozen=True)
class FileSet:
    """Files that are used together, under a key."""

    key: str
    files: tuple[NeededFile, ...]

    @classmethod
    def of(cls, key: str, names: Sequence[str]) -> FileSet:
        """The files of these names as they are now. One that is gone is left out: whoever reads it will say so.

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
        """Whether this machine sees every one of them."""
        return all(file.is_here() for file in self.files)

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
            sent[file.name] = SentCopy(file.path, SentFile(data, digest_bytes(data)), found.st_mtime_ns)
        return SentSet(self.key, sent)


@dataclass(frozen=True)
class SentCopy:
    """A file on its way to a node, with the time it has at home."""

    path: str
    file: SentFile
    mtime_ns: int


@dataclass(frozen=True)
class SentSet:
    """A set of files on its way."""

    key: str
    copies: Mapping[str, SentCopy]


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
        self._arrived = threading.Condition()
        self._places: dict[str, dict[str, str]] = {}
        self._failed: dict[str, Exception] = {}

    @cached_property
    def folder(self) -> Path:
        """Made when the first file arrives."""
        return keep_scratch("sent")

    def take_in(self, sent: SentSet) -> None:
        """Put the files in place, with their times, and wake those who wait for them."""
        try:
            places = self._write(sent)
        except Exception as error:
            with self._arrived:
                self._failed[sent.key] = error
                self._arrived.notify_all()
            raise
        with self._arrived:
            self._places[sent.key] = places
            self._arrived.notify_all()

    def places(self, key: str) -> Mapping[str, str]:
        """Where the files of a set lie here, by the names the driver has for them; waits for one that is under way."""
        with self._arrived:
            there = self._arrived.wait_for(lambda: key in self._places or key in self._failed, _ARRIVES_WITHIN_S)
            if not there or key in self._failed:
                why = str(self._failed.get(key) or f"they did not arrive within {_ARRIVES_WITHIN_S:g} s")
                raise DataError(
                    f"the files of {key} are not on this node",
                    code="files-not-on-node",
                    why=why,
                    try_="run the same command again",
                )
            return self._places[key]

    def told(self, text: str) -> str:
        """`text` with the names that the driver knows, where it speaks of files that were sent."""
        with self._arrived:
            pairs = [(place, name) for places in self._places.values() for name, place in places.items()]
        for place, name in sorted(pairs, key=lambda pair: -len(pair[0])):
            text = text.replace(place, name)
        return text

    def _write(self, sent: SentSet) -> dict[str, str]:
        folders: dict[str, Path] = {}
        places = {}
        root = Path(tempfile.mkdtemp(dir=self.folder))
        for name, copy in sent.copies.items():
            if digest_bytes(copy.file.data) != copy.file.sha256:
                raise DataError(
                    f"{name} was damaged on its way to a node",
                    code="damaged-transfer",
                    why="its checksum differs",
                    try_="run it again",
                )
            beside, file = os.path.split(copy.path)
            folder = folders.setdefault(beside, root / str(len(folders)))
            folder.mkdir(exist_ok=True)
            place = folder / file
            place.write_bytes(copy.file.data)
            os.utime(place, ns=(copy.mtime_ns, copy.mtime_ns))
            places[name] = str(place)
        return places


def with_paths(value: T, places: Mapping[str, str]) -> T:
    """`value` with every text that is a name in `places` replaced by its place: in dataclasses, tuples, lists and mappings."""
    found: Any = value
    if isinstance(value, str):
        found = places.get(value, value)
    elif is_dataclass(value) and not isinstance(value, type):
        settled = [one.name for one in fields(value) if one.init]
        new = {name: with_paths(getattr(value, name), places) for name in settled}
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
