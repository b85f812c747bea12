"""A file that a user named for a command to write: checked before the work begins, written at its end.

In: what was typed after an option. Out: an `OutputFile`, or a `UsageError` that names the option. A plain file is replaced as a
whole, where a link leads to if it is one. A pipe that is read from, a terminal and /dev/null are written to as they are. A
folder, a disk, any other device is refused, and so is what would be lost: a file that the command reads, a picture, what a
workspace or an exported run is made of.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from unchoke.core import atomic
from unchoke.core.checksums import CHECKSUMS, is_listed
from unchoke.core.errors import UsageError
from unchoke.core.image_names import PICTURE_SUFFIXES, suffix_of
from unchoke.core.workspace import keeper_of

_NO_WAITING = getattr(os, "O_NONBLOCK", 0)
_STREAMS = (os.devnull, "/dev/tty", "/dev/stdout", "/dev/stderr")


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
        try:
            if not self.is_stream:
                return atomic.write_text(Path(os.path.realpath(self.path)), text)
            # without waiting for a reader that may never come; once there is one, as slowly as it reads
            descriptor = os.open(self.path, os.O_WRONLY | _NO_WAITING)
            os.set_blocking(descriptor, True)
            with os.fdopen(descriptor, "wb") as file:
                file.write(atomic.valid_text(text).encode("utf-8"))
        except OSError as error:
            raise self.refusal(error.strerror or str(error)) from error

    def refusal(self, why: str) -> UsageError:
        what, try_ = f"cannot write {self.path}, named with {self.option}", f"{self.option} {self.example}"
        return UsageError(what, code="output-not-writable", why=why, try_=try_)


def output_file(named: Path | str, *, option: str, example: str, sources: Iterable[Path | str] = ()) -> OutputFile:
    """The file that was `named` after `option`, refused if it cannot be written or is one of `sources`, which are read."""
    output = OutputFile(Path(named), option, example)
    try:
        mode = output.path.stat().st_mode
    except FileNotFoundError:
        mode = None
    except (OSError, ValueError) as error:  # the second: a name with a zero byte
        raise output.refusal(getattr(error, "strerror", None) or str(error)) from error
    if mode is not None and any(_same(output.path, Path(source)) for source in sources):
        raise output.refusal("the command reads that file: it would be lost")
    if mode is None or stat.S_ISREG(mode):
        problem = _why_not(Path(os.path.realpath(output.path)))
    elif stat.S_ISDIR(mode):
        problem = "it is a folder, and a file is written"
    elif stat.S_ISFIFO(mode) or any(_same(output.path, Path(device)) for device in _STREAMS):
        return OutputFile(output.path, option, example, is_stream=True)
    else:
        problem = "it is a device or a socket, and what lies there would be overwritten"
    if problem:
        raise output.refusal(problem)
    return output


def _same(path: Path, source: Path) -> bool:
    try:
        return path.samefile(source)
    except OSError:  # unchoke: ignore[blank-on-error]  a source that does not exist cannot be overwritten
        return False


def _why_not(path: Path) -> str:
    """Why a plain file cannot be put there, or would replace something of value; "" if it can."""
    if (workspace := keeper_of(path)) is not None:
        return f"the workspace {workspace} keeps its own files there"
    if path.exists():
        if suffix_of(path.name) in PICTURE_SUFFIXES:
            return "a picture lies there: it would be lost"
        if is_listed(path):
            return f"{CHECKSUMS} beside it lists that file: it would be lost"
        if not os.access(path, os.W_OK):
            return "this user may not change the file there"
    folder = next(parent for parent in path.parents if parent.exists())
    if not folder.is_dir():
        return f"{folder} is a file, not a folder"
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"this user may not write to {folder}"
