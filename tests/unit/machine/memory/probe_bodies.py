"""What the probes of the tests run, each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unchoke.core.errors import MachineError
from unchoke.machine.memory.memory_watch import MemoryWatch


def allocate(spec: dict[str, Any]) -> Iterator[int]:
    """Peaks of blocks of these sizes, really touched, for a moment."""
    for size in spec["sizes"]:
        with MemoryWatch(exact=True) as watch:
            block = b"x" * size
            del block
        yield watch.peak_bytes


def keep_growing(spec: dict[str, Any]) -> Iterator[Any]:
    """Never stops by itself, and never lets another thread run Python meanwhile."""
    yield "begun"
    kept = []
    while True:
        kept.append(b"x" * 20_000_000)


def die(spec: dict[str, Any]) -> Iterator[Any]:
    yield 1
    os.kill(os.getpid(), signal.SIGKILL)


def ask_too_much_of_torch(spec: dict[str, Any]) -> Iterator[Any]:
    import torch

    yield torch.empty(10**15).numel()


def ask_too_much_of_numpy(spec: dict[str, Any]) -> Iterator[Any]:
    import numpy as np

    yield np.empty(10**15).size


def wrap_a_lack(spec: dict[str, Any]) -> Iterator[Any]:
    raise ValueError("a library's own words") from MemoryError("no room")


def abort_for_memory(spec: dict[str, Any]) -> Iterator[Any]:
    """As a C++ exception that nobody catches ends a process."""
    os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n")
    os.abort()


def abort(spec: dict[str, Any]) -> Iterator[Any]:
    os.write(2, b"something else is wrong\n")
    os.abort()


def hang(spec: dict[str, Any]) -> Iterator[Any]:
    time.sleep(600)
    raise AssertionError


def hang_with_a_child(spec: dict[str, Any]) -> Iterator[Any]:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(spec["file"]).write_text(str(child.pid))
    yield from hang(spec)


def have_a_bug(spec: dict[str, Any]) -> Iterator[Any]:
    raise ValueError(f"cannot work with {spec}")


class UnpicklableError(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__("two needed, one kept")


def have_an_odd_bug(spec: dict[str, Any]) -> Iterator[Any]:
    raise UnpicklableError(1, 2)


def refuse(spec: dict[str, Any]) -> Iterator[Any]:
    raise MachineError("no such card", code="of-a-test", why="there is none", try_="--device cpu")


def be_chatty(spec: dict[str, Any]) -> Iterator[Any]:
    os.write(1, b"native noise\n")
    sys.stdout.write("python noise\n")
    yield 7


def tell_what_is_imported(spec: dict[str, Any]) -> Iterator[Any]:
    yield list(sys.modules)


def report_to_file_and_wait(spec: dict[str, Any]) -> Iterator[Any]:
    Path(spec["file"]).write_text(str(os.getpid()))
    yield from hang(spec)
