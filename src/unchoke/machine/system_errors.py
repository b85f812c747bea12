"""Errors of the system in three lines: what was reached (memory, threads, open files, room on a disk) and places that are amiss.

In: an exception that nobody explained on its way up. Out: the error for a person, or None where it is about something else.
Libraries meet these limits wherever they happen to be, so this is asked once, at the end of every command.
"""

from __future__ import annotations

import errno
import os
import shlex
from pathlib import Path

from unchoke.core import atomic
from unchoke.core.errors import MachineError, UnchokeError, UsageError
from unchoke.core.units import format_bytes
from unchoke.machine.memory.oom import out_of_memory

NOT_ALLOWED = {errno.EACCES, errno.EPERM, errno.EROFS}
"""What the system says where something may not be written or read."""
_AGAIN = "; the same command goes on from here"
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_FILES = {errno.EMFILE, errno.ENFILE}
_NO_SPACE = "No space left on device"
_FAILING = {errno.EIO, errno.ESTALE, errno.EBUSY, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTEMPTY,
            errno.ENXIO, errno.ENODEV, errno.EXDEV, errno.EMLINK}  # fmt: skip
_LEAST_ADDRESSES = 400_000_000
_NOT_MAPPED = ("failed to map segment from shared object", "cannot allocate memory in static TLS block")
_NO_THREAD = ("can't start new thread", "Resource temporarily unavailable", "pthread_create")


def limit_reached(error: BaseException) -> MachineError | None:
    """The limit that `error` is about, as an error of its own; None where it is about something else."""
    code = error.errno if isinstance(error, OSError) else None
    text = str(error)
    if isinstance(error, OSError) and code in _NO_ROOM:
        return atomic.no_room(Path(error.filename), error) if error.filename else _no_room_somewhere(error)
    if _NO_SPACE in text:  # libraries that write by themselves raise errors of their own
        return _no_room_somewhere(OSError(errno.ENOSPC, _NO_SPACE))
    if code in _NO_FILES:
        return MachineError(
            "too many files are open at once",
            code="too-many-open-files",
            why=f"this shell allows {soft_limit('RLIMIT_NOFILE') or 'fewer'} (ulimit -n)",
            try_="ulimit -n 4096, then the same command again: it goes on from here",
        )
    if out_of_memory(error) is not None or any(words in text for words in _NOT_MAPPED):
        return _no_memory(text)
    if isinstance(error, SystemError) and soft_limit("RLIMIT_AS") is not None:  # an import that failed without a word
        return _no_memory(text)
    if code == errno.EAGAIN or any(words in text for words in _NO_THREAD):
        return _no_memory(text) if soft_limit("RLIMIT_AS") is not None else _no_threads(text)
    return None


def refuse_no_addresses() -> None:
    """Refuse to begin where a limit on addresses (ulimit -v) leaves next to nothing: native libraries end the process there."""
    limit = soft_limit("RLIMIT_AS")
    if limit is not None and limit - _addresses() < _LEAST_ADDRESSES:
        raise _no_memory("")


def _addresses() -> int:
    """How many bytes of addresses this process has; 0 where that cannot be seen."""
    try:
        import resource

        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    except (ImportError, OSError):
        return 0


def soft_limit(name: str) -> int | None:
    """A limit of this process, such as RLIMIT_AS; None where there is none, or the system knows no such thing."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    number = getattr(resource, name, None)
    if number is None:
        return None
    soft, _ = resource.getrlimit(number)
    return None if soft == resource.RLIM_INFINITY else soft


def _no_room_somewhere(error: OSError) -> MachineError:
    why = f"{error.strerror}: the workspace, the folder for temporary files (TMPDIR) or shared memory (/dev/shm) is full"
    if error.errno == errno.EFBIG:
        why = f"{error.strerror}: files may have {soft_limit('RLIMIT_FSIZE')} bytes here (ulimit -f)"
    return MachineError(
        "something could not be written",
        code="disk-full",
        why=why,
        try_=f"make room (df -h shows where it lacks), or lift the limit{_AGAIN}",
    )


def _no_memory(text: str) -> MachineError:
    limit = soft_limit("RLIMIT_AS")
    if limit is None:
        return MachineError(
            "the memory did not suffice",
            code="out-of-memory",
            why=_first_line(text) or "what was asked for could not be had",
            try_=f"close what else runs, or give a smaller --batch-size or fewer --workers{_AGAIN}",
        )
    return MachineError(
        "the memory that this shell allows did not suffice",
        code="out-of-memory",
        why=f"a process may have {format_bytes(limit)} of addresses (ulimit -v), and torch alone takes several GB of them",
        try_="ulimit -v unlimited, then the same command again: it goes on from here",
    )


def _no_threads(text: str) -> MachineError:
    limit = soft_limit("RLIMIT_NPROC")
    return MachineError(
        "no further thread or process could be started",
        code="too-many-processes",
        why=f"this user may have {limit:,} at once (ulimit -u)" if limit is not None else _first_line(text),
        try_=f"end what else runs, or give fewer --workers{_AGAIN}",
    )


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]


def explain_place(error: OSError) -> UnchokeError | None:
    """The error in words, if it is about a place that a person can do something about."""
    try:
        refuse_gone_folder()
    except UsageError as gone:
        return gone
    names = [name for name in (error.filename2, error.filename) if isinstance(name, str | bytes | os.PathLike)]
    path = Path(os.fsdecode(names[0])) if names else None  # of a rename, the place that was to be
    if path is None and error.errno not in _FAILING:
        return None
    if path is not None and error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST):  # a file for a folder, or the other way
        files = [one for one in (*reversed(path.parents), path) if one.exists() and not one.is_dir()]
        place, lies, belongs = (files[0], "a file", "a folder") if files else (path, "a folder", "a file")
        aside = f"mv {shlex.quote(str(place))} {shlex.quote(f'{place}.aside')}, or name another workspace with --out DIR"
        return UsageError(f"{place} is {lies}", code="place-taken", why=f"{belongs} of the workspace belongs there", try_=aside)
    if path is not None and error.errno == errno.ENOENT:
        again = "run the same command again: what can be made again is made again"
        return MachineError(
            f"{path} is gone", code="file-gone", why="it was expected there, and somebody removed or renamed it", try_=again
        )
    if error.errno not in NOT_ALLOWED | _FAILING:
        return None
    try_ = "mend that, then run the same command again"
    if error.errno in NOT_ALLOWED and path is not None:
        path = path.parent if path.name.startswith(".") else path  # a lock or a file in the making: the folder is what matters
        try_ = "name a folder that may be written (a workspace with --out DIR), or change the rights of this one"
    why = f"the system says: {error.strerror}"
    return MachineError(f"{path or 'a file'} cannot be used", code="place-not-usable", why=why, try_=try_)


def refuse_gone_folder() -> None:
    """Refuse to work from a folder that no longer exists: native libraries end the process when they are loaded in one."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise UsageError(
            "the folder this command was started in no longer exists",
            code="working-folder-gone",
            why="paths that do not begin with / are looked for there",
            try_="cd to a folder that exists",
        ) from None
