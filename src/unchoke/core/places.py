"""What the system says of files and folders, in three lines: read-only places, files where folders belong, places that are gone.

In: an `OSError` that nobody could do anything about. Out: the error for a person, or None where it is not about a place. What
lacks (room, memory, open files) is told elsewhere.
"""

from __future__ import annotations

import errno
import os
import shlex
from pathlib import Path

from unchoke.core.errors import MachineError, UnchokeError, UsageError

NOT_ALLOWED = {errno.EACCES, errno.EPERM, errno.EROFS}
"""What the system says where something may not be written or read."""
_FAILING = {errno.EIO, errno.ESTALE, errno.EBUSY, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTEMPTY,
            errno.ENXIO, errno.ENODEV, errno.EXDEV, errno.EMLINK}  # fmt: skip


def explain_place(error: OSError) -> UnchokeError | None:
    """The error in words, if it is about a place that a person can do something about."""
    path = _named(error)
    if working_folder_gone():
        return _nowhere()
    if error.errno in NOT_ALLOWED and path is not None:
        return _not_allowed(path, error)
    if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST) and path is not None:
        return _misplaced(path)
    if error.errno == errno.ENOENT and path is not None:
        again = "run the same command again: what can be made again is made again"
        return MachineError(
            f"{path} is gone", code="file-gone", why="it was expected there, and somebody removed or renamed it", try_=again
        )
    if error.errno in _FAILING:
        said = f"the system says: {error.strerror}"
        return MachineError(
            f"{path or 'a file'} cannot be used",
            code="place-not-usable",
            why=said,
            try_="mend that, then run the same command again",
        )
    return None


def working_folder_gone() -> bool:
    """Whether the folder this process was started in is no longer there."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def refuse_gone_folder() -> None:
    """Refuse to work from a folder that is no longer there: native libraries end the process when they are loaded in one."""
    if working_folder_gone():
        raise _nowhere()


def _nowhere() -> UsageError:
    gone = "the folder this command was started in no longer exists"
    return UsageError(
        gone,
        code="working-folder-gone",
        why="paths that do not begin with / are looked for there",
        try_="cd to a folder that exists",
    )


def _named(error: OSError) -> Path | None:
    """The place an error speaks of; of a rename, the place that was to be."""
    names = [name for name in (error.filename2, error.filename) if isinstance(name, str | bytes | os.PathLike)]
    return Path(os.fsdecode(names[0])) if names else None


def _not_allowed(path: Path, error: OSError) -> MachineError:
    place = path.parent if path.name.startswith(".") else path  # a lock or a file in the making: the folder is what matters
    return MachineError(
        f"{place} cannot be used",
        code="place-not-usable",
        why=f"the system says: {error.strerror}",
        try_="name a folder that may be written (a workspace with --out DIR), or change the rights of this one",
    )


def _misplaced(path: Path) -> UsageError:
    """A file where a folder belongs, or the other way round."""
    for place in (*reversed(path.parents), path):
        if place.exists() and not place.is_dir():
            return _in_the_way(place, "a file", "a folder")
    return _in_the_way(path, "a folder", "a file")


def _in_the_way(place: Path, lies: str, belongs: str) -> UsageError:
    aside = f"mv {shlex.quote(str(place))} {shlex.quote(f'{place}.aside')}, or name another workspace with --out DIR"
    return UsageError(f"{place} is {lies}", code="place-taken", why=f"{belongs} of the workspace belongs there", try_=aside)
