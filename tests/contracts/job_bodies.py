"""Plain functions for engines to run. Imported by name, so that spawned processes find them too."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

from unchoke.core.errors import MachineError

_greeting = "nobody called setup"


class UnsendableError(Exception):
    """An error that pickles but does not come back."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one + two)


def greet(text: str) -> None:
    global _greeting
    _greeting = text


def refuse() -> None:
    raise MachineError("no weights here", code="of-a-test", why="a test", try_="nothing")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def greeting(task: int) -> str:
    return f"{_greeting} {task}"


def square(task: int) -> int:
    return task * task


def fail_on_odd(task: int) -> int:
    if task % 2:
        raise ValueError(f"odd: {task}")
    return task


def leave_on_odd(task: int) -> int:
    if task % 2:
        raise SystemExit(3)
    return task


def raise_unsendable(task: int) -> int:
    raise UnsendableError("strange ", "words")


def return_unsendable(task: int) -> object:
    return threading.Lock() if task == 1 else task


def machine_error(task: int) -> int:
    raise MachineError(f"no room for {task}", code="of-a-test", why="a test", try_="nothing")


def wait_for_file(task: tuple[str, float]) -> str:
    """Wait until the named file is there; an empty name is not waited for."""
    path, limit_s = task
    started = time.monotonic()
    while path and not Path(path).exists():
        if time.monotonic() - started > limit_s:
            raise TimeoutError(path)
        time.sleep(0.005)
    return path


def mark_then_wait(task: tuple[str, str]) -> str:
    """Leave a sign of having begun, then wait for permission to end."""
    mark, permission = task
    Path(mark).write_text(str(os.getpid()))
    return wait_for_file((permission, 60.0)) and mark


def kill_self_once(task: tuple[int, str]) -> int:
    """The first to come here is killed; the mark lets everyone else through."""
    number, mark = task
    if number == 2 and not Path(mark).exists():
        Path(mark).write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def leave_a_child_and_die(task: int) -> int:
    """The child keeps a copy of every descriptor open, the worker's pipe among them, for a while after the worker is gone."""
    if task == 1:
        if os.fork() == 0:
            time.sleep(8)
            os._exit(0)
        die()
    return task


def process_of(task: int) -> int:
    return os.getpid()


def interrupt_self(task: int) -> int:
    """As if Ctrl-C had reached every process of the group."""
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.05)
    return task
