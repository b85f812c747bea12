"""A file that a user named for a command to write: looked at before the work begins, written at its end.

In: what was typed after an option. Out: an `OutputFile`, or a `UsageError` that names the option. A plain file is replaced as a
whole, where a link leads to if it is one. A pipe that is read from, a terminal and /dev/null are written to as they are. A
folder, a disk, any other device is refused, and so is what would be lost: a file that the command reads, a picture, what a
workspace or an exported run is made of.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from unchoke.core import atomic
from unchoke.core.checksums import CHECKSUMS, is_listed
from unchoke.core.errors import UsageError
from unchoke.core.image_names import PICTURE_SUFFIXES, suffix_of
from unchoke.core.workspace import keeper_of


@dataclass(frozen=True)
class OutputFile:
    """Where a result goes that was asked for by name."""

    path: Path
    """As it was typed."""
    option: str
    example: str
    is_stream: bool = False

    def write_text(self, text: str) -> None:
        """`text` as UTF-8: the whole file, or all of it into the stream."""
        with self._named():
            if self.is_stream:
                self._pour(atomic.valid_text(text).encode("utf-8"))
            else:
                atomic.write_text(Path(os.path.realpath(self.path)), text)

    def _pour(self, data: bytes) -> None:
        """Without waiting for somebody to read, which may never happen; once somebody does, as slowly as they read."""
        descriptor = os.open(self.path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
        os.set_blocking(descriptor, True)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._refusal(error.strerror or str(error)) from error

    def _refusal(self, why: str) -> UsageError:
        return UsageError(
            f"cannot write {self.path}, named with {self.option}",
            code="output-not-writable",
            why=why,
            try_=f"{self.option} {self.example}",
        )


def output_file(named: Path | str, *, option: str, example: str, sources: Iterable[Path | str] = ()) -> OutputFile:
    """The file that was `named` after `option`, refused if it cannot be written or is one of `sources`, which are read."""
    output = OutputFile(Path(named), option, example)
    try:
        with output._named():
            found = _mode(output.path)
            clash = found is not None and any(_same(output.path, Path(source)) for source in sources)
    except ValueError as error:  # a name with a zero byte
        raise output._refusal(str(error)) from error
    if clash:
        raise output._refusal("the command reads that file: it would be lost")
    if found is None or stat.S_ISREG(found):
        real = Path(os.path.realpath(output.path))
        problem = _precious(real) or _unwritable(real)
    elif stat.S_ISDIR(found):
        problem = "it is a folder, and a file is written"
    elif stat.S_ISFIFO(found) or _takes_text(output.path):
        return OutputFile(output.path, option, example, is_stream=True)
    else:
        problem = "it is a device or a socket, and what lies there would be overwritten"
    if problem:
        raise output._refusal(problem)
    return output


def _mode(path: Path) -> int | None:
    """What lies there, links followed; None if nothing does."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _same(path: Path, source: Path) -> bool:
    try:
        return path.samefile(source)
    except OSError:  # unchoke: ignore[blank-on-error]  a source that is not there cannot be overwritten
        return False


def _takes_text(path: Path) -> bool:
    """Whether it is a terminal, or the device that swallows everything."""
    if _same(path, Path(os.devnull)):
        return True
    try:
        descriptor = os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
    except OSError:  # unchoke: ignore[blank-on-error]  then it takes nothing
        return False
    try:
        return os.isatty(descriptor)
    finally:
        os.close(descriptor)


def _precious(path: Path) -> str:
    """Why what lies there, or belongs there, must not be replaced by a result; "" if nothing is lost."""
    if (workspace := keeper_of(path)) is not None:
        return f"the workspace {workspace} keeps its own files there"
    if path.exists() and suffix_of(path.name) in PICTURE_SUFFIXES:
        return "a picture lies there: it would be lost"
    if path.exists() and is_listed(path):
        return f"{CHECKSUMS} beside it vouches for that file: it would be lost"
    return ""


def _unwritable(path: Path) -> str:
    """Why a plain file cannot be put there; "" if it can."""
    if path.exists() and not os.access(path, os.W_OK):
        return "the file there may not be changed by this user"
    folder = next(parent for parent in path.parents if parent.exists())
    if not folder.is_dir():
        return f"{folder} is a file, not a folder"
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"this user may not write to {folder}"
