"""Folders for what is needed only for a while. What a process puts there is gone when it ends, however that happens.

All of them lie in one folder of the process, among the machine's temporary files. A process that is killed cannot tidy up: a
small one that outlives it does. It waits for the end of a pipe, which the system closes with the process and all it started.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

_REMOVE_LATER = """import shutil, sys, time
sys.stdin.buffer.read()
for turn in range(5):
    shutil.rmtree(sys.argv[1], turn < 4)
    time.sleep(turn)"""  # what the process started may still be writing there
_ENDS_WITHIN_S = 2.0
_watching: list[subprocess.Popen[bytes]] = []


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
    # A Ctrl-C, or a terminal that is closed, is not for it.
    apart: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        apart = {"creationflags": subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP}
    with suppress(OSError):  # where no process can be started, one that is killed leaves its folder
        command, quiet = [sys.executable, "-I", "-S", "-c", _REMOVE_LATER, folder], subprocess.DEVNULL
        _watching.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, **apart))
    return folder


def _remove(folder: str, pid: int) -> None:
    if pid != os.getpid():
        return
    shutil.rmtree(folder, ignore_errors=True)
    for watching in _watching:
        with suppress(OSError, subprocess.TimeoutExpired):
            watching.communicate(timeout=_ENDS_WITHIN_S)
