"""What came of one task: a value or an error, as plain data that can cross a process boundary."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

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
