"""How what a job writes on a node comes home: not at all where the workspace is a shared folder, else as bytes.

A job writes below a folder. On a node that is the driver's own folder if both see the same one, which a mark in it tells; else
a scratch folder, whose files travel back with their digests and are put in place here, the job's artefact last.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from unchoke.core import atomic, listing
from unchoke.core.errors import DataError
from unchoke.core.fingerprint import digest_bytes
from unchoke.core.temporary_folders import scratch_folder


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
        try:
            if not self.is_seen():
                return False
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


@dataclass(frozen=True)
class SentFile:
    """A file on its way home."""

    data: bytes
    sha256: str


@contextmanager
def writing_for(shared: SharedFolder, *, shares: bool) -> Iterator[tuple[Path, dict[str, SentFile]]]:
    """Where a job may write now, and what of it must travel: filled when the block ends, empty where the folder is shared."""
    files: dict[str, SentFile] = {}
    if shares:
        yield shared.folder, files
        return
    with scratch_folder("job") as scratch:
        yield scratch, files
        for file in listing.walk(scratch):
            data = Path(file.path).read_bytes()
            files[file.relative] = SentFile(data, digest_bytes(data))


def put_in_place(folder: Path, files: Mapping[str, SentFile], *, artefact: str) -> None:
    """Write what came home below `folder`, as it left the node; the artefact last."""
    for name in sorted(files, key=lambda name: (name == artefact, name)):
        if digest_bytes(files[name].data) != files[name].sha256:
            raise DataError(
                f"{name} was damaged on its way from a node",
                code="damaged-transfer",
                why="its checksum is not the one the node worked out",
                try_="run the same command again; if it happens again, test the network between the machines",
            )
        atomic.write_bytes(folder / name, files[name].data)
