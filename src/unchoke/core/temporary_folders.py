"""Folders for what is needed only for a while. What a process puts there is gone when it ends, however that happens.

All of them lie in one folder of the process, among the machine's temporary files. A process that is killed cannot tidy up: a
shell that outlives it does.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

_REMOVE_LATER = """(trap "" HUP INT
alive() { kill -0 "$1" 2>/dev/null && ! grep -qs "^State:.*Z" "/proc/$1/status"; }  # one that nobody waited for is dead, too
while alive "$1" && [ -d "$2" ]; do sleep 1; done
for turn in 1 2 3 4 5; do rm -rf "$2" && break; sleep 1; done) &"""  # what the process started may still be writing there


@contextmanager
def scratch_folder(name: str) -> Iterator[Path]:
    """A folder for as long as the block runs, and no longer than this process."""
    folder = keep_scratch(name)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def keep_scratch(name: str) -> Path:
    """A new folder that stays as long as this process."""
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=_folder_of(os.getpid())))


@cache
def _folder_of(pid: int) -> str:
    """The folder of the process `pid`, which is this one: a fork has another."""
    folder = tempfile.mkdtemp(prefix="unchoke-")
    atexit.register(_remove, folder, pid)
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with suppress(OSError):  # where there is no shell, a process that is killed leaves its folder
        command = ["sh", "-c", _REMOVE_LATER, "_", str(pid), folder]
        subprocess.run(command, check=False, start_new_session=True, **quiet)  # type: ignore[call-overload]
    return folder


def _remove(folder: str, pid: int) -> None:
    if pid == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)
