"""A body run on one task: its outcome, in this process or as the loop of a worker process.

An outcome is plain data that can cross a process boundary. A worker receives tasks and sends outcomes until the other end is
gone; it ignores Ctrl-C and SIGTERM (the driver decides when to stop) and never outlives its driver, however that one ends.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

from unchoke.jobs.signals import STOP_SIGNALS

_PR_SET_PDEATHSIG = 1
T = TypeVar("T")
R = TypeVar("R")


class WorkerDied(Exception):  # noqa: N818 (what happened, as the standard library names such things)
    """The process that ran the task ended without an answer: killed, out of memory, or crashed in native code."""


class TaskFailed(Exception):  # noqa: N818
    """Stands for an error or a result that could not be sent between processes; says what it was."""


@dataclass(frozen=True)
class Outcome(Generic[T, R]):
    """`error` is None exactly when `value` is the body's result. `traceback_text` comes from where the body ran."""

    task: T
    value: R | None = None
    error: BaseException | None = None
    traceback_text: str = ""
    seconds: float = 0.0


def attempt(body: Callable[[T], R], task: T) -> Outcome[T, R]:
    """Run the body on one task; an exception becomes part of the outcome."""
    started = time.perf_counter()
    try:
        value = body(task)
    except (Exception, SystemExit) as error:
        text = traceback.format_exc()
        error.__traceback__ = None  # would keep every local of the body alive
        return Outcome(task, error=error, traceback_text=text, seconds=time.perf_counter() - started)
    return Outcome(task, value=value, seconds=time.perf_counter() - started)


def serve(connection: Connection[Any, Any], parcel: bytes, driver_pid: int, tied: bool) -> None:
    """Answer tasks on `connection`. `parcel` is the pickled (body, setup, setup_args).

    The process ignores requests to stop and ends with its driver: by the kernel where it can (`tied`: at once, even inside native
    code), and by a thread that watches the driver everywhere.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    if tied and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != driver_pid:
            os._exit(1)
    threading.Thread(target=_watch_driver, daemon=True).start()
    with suppress(EOFError, ConnectionError):  # the driver closed its end, or is gone
        try:
            body, setup, setup_args = pickle.loads(parcel)
            if setup is not None:
                setup(*setup_args)
        except (Exception, SystemExit) as error:
            connection.send_bytes(pack_failure(error))
            return
        connection.send_bytes(pickle.dumps(Outcome(None)))
        while True:
            connection.send_bytes(answer(body, connection.recv_bytes()))


def _watch_driver() -> None:
    driver = multiprocessing.parent_process()
    if driver is not None:
        multiprocessing.connection.wait([driver.sentinel])
        os._exit(1)


def answer(body: Any, message: bytes) -> bytes:
    """The outcome of one task as bytes, without the task: the driver still has it."""
    try:
        outcome: Outcome[Any, Any] = replace(attempt(body, pickle.loads(message)), task=None)
    except Exception as error:
        return pack_failure(error)
    if outcome.error is not None:
        return pickle.dumps(replace(outcome, error=_portable(outcome.error)))
    try:
        return pickle.dumps(outcome)
    except Exception as error:
        failure = TaskFailed(f"the result, a {type(outcome.value).__name__}, cannot be sent between processes: {error}")
        return pickle.dumps(Outcome(None, error=failure, traceback_text=traceback.format_exc(), seconds=outcome.seconds))


def pack_failure(error: BaseException) -> bytes:
    """The outcome of what failed with `error`, which is being handled, as bytes."""
    return pickle.dumps(Outcome(None, error=_portable(error), traceback_text=traceback.format_exc()))


def _portable(error: BaseException) -> BaseException:
    """`error` if it survives being sent, else a stand-in that says what it was."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return TaskFailed(f"{type(error).__name__}: {error}")
    return error
