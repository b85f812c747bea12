"""Worker processes, each with its own pipe, replaced when they die. The driver's side; `attempts.py` is the other end.

A standard process pool is broken for good once a worker is killed, and keeps threads and locks of its own. Here a worker that
vanishes costs one outcome, and the next task starts another. Not safe to share between threads.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any, Generic, TypeVar

from unchoke.core.errors import MachineError
from unchoke.jobs.attempts import Outcome, TaskFailed, WorkerDied, serve
from unchoke.jobs.child_start import children_allowed, main_script_hidden, stop_signals_held_back

T = TypeVar("T")
R = TypeVar("R")

_STILLBORN_LIMIT = 3
_LOOK_EVERY_S = 1.0
_LEAVE_WITHIN_S = 5.0


@dataclass(eq=False)
class _Worker(Generic[T]):
    process: BaseProcess
    connection: Connection[Any, Any]
    ready: bool = False
    task: T | None = None


class WorkerPool(Generic[T, R]):
    """Up to `size` workers, started as tasks come. `give` while `has_room`, then take `next_outcome`.

    They are spawned; or, with `start_method` "forkserver", forked from a process that has imported already what they need
    (`readers.py` says what), which takes hundredths of a second each.
    """

    def __init__(
        self,
        body: Callable[[T], R],
        *,
        size: int,
        setup: Callable[..., None] | None,
        setup_args: tuple[Any, ...],
        import_main: bool = False,
        start_method: str = "spawn",
    ) -> None:
        self._context = multiprocessing.get_context(start_method)
        self._parcel = pickle.dumps((body, setup, setup_args))
        self._import_main = import_main or b"__main__" in self._parcel
        self._size = size
        self._idle: list[_Worker[T]] = []
        self._busy: dict[Any, _Worker[T]] = {}
        self._answers: deque[Outcome[T, R]] = deque()
        self._stillborn = 0
        self._at_exit = Finalize(self, _kill_all, args=(self._idle, self._busy), exitpriority=10)

    @property
    def has_room(self) -> bool:
        return len(self._busy) < self._size and not self._answers

    @property
    def has_answers(self) -> bool:
        """Whether an outcome is on its way."""
        return bool(self._answers or self._busy)

    def give(self, task: T) -> None:
        """Hand one task to a worker, starting one if none is free."""
        try:
            message = pickle.dumps(task)
        except Exception as error:
            failure = TaskFailed(f"the task cannot be sent to a process: {error}")
            self._answers.append(Outcome(task, error=failure, traceback_text=traceback.format_exc()))
            return
        while True:
            worker = self._idle.pop() if self._idle else self._start()
            try:
                worker.connection.send_bytes(message)
            except ConnectionError:
                self._bury(worker)
                continue
            worker.task = task
            self._busy[worker.connection] = worker
            return

    def next_outcome(self) -> Outcome[T, R]:
        """Wait for one task to end, one way or the other."""
        while (found := self.poll(_LOOK_EVERY_S)) is None:
            pass
        return found

    def poll(self, timeout_s: float) -> Outcome[T, R] | None:
        """The same, but None where no task ended within that time."""
        if not self._answers:
            readable = wait(list(self._busy), timeout=timeout_s)
            for key in readable:
                self._receive(self._busy[key])
            if not readable:
                self._look_for_the_dead()
        return self._answers.popleft() if self._answers else None

    def close(self) -> None:
        """End every worker: idle ones leave by themselves, busy ones are killed."""
        for worker in self._busy.values():
            worker.process.kill()
        for worker in self._idle:
            worker.connection.close()
        for worker in [*self._idle, *self._busy.values()]:
            worker.process.join(_LEAVE_WITHIN_S)
            _release(worker)
        self._idle.clear()
        self._busy.clear()
        self._at_exit.cancel()

    def _start(self) -> _Worker[T]:
        """A new worker. Where they are forked, the process they are forked from may have died: the next try starts another."""
        while True:
            try:
                return self._started()
            except (EOFError, ConnectionError) as error:
                self._count_stillborn(f"could not be forked ({type(error).__name__})")

    def _started(self) -> _Worker[T]:
        context: Any = self._context
        spawned = context.get_start_method() == "spawn"
        tied = spawned and threading.current_thread() is threading.main_thread()  # else another process or thread is its parent
        with _descriptors_explained(self._size):
            ours, theirs = context.Pipe(duplex=True)
            try:
                process = context.Process(target=serve, args=(theirs, self._parcel, os.getpid(), tied), daemon=True)
                hidden = nullcontext() if self._import_main else main_script_hidden()
                with hidden, stop_signals_held_back(), children_allowed():
                    process.start()
            except BaseException:
                ours.close()
                raise
            finally:
                theirs.close()
        return _Worker(process, ours)

    def _receive(self, worker: _Worker[T]) -> None:
        """Take one message from a busy worker: that it is ready, that it cannot start, or an outcome; or notice that it died."""
        try:
            message = worker.connection.recv_bytes()
        except (EOFError, ConnectionError):
            self._lost(worker)
            return
        answer = _unpacked(message)
        if worker.ready:
            self._busy.pop(worker.connection)
            self._idle.append(worker)
            self._answers.append(_with_task(answer, worker))
        elif answer.error is None:
            worker.ready, self._stillborn = True, 0
        else:
            answer.error.add_note(f"in the set-up of a worker process:\n{answer.traceback_text}")
            raise answer.error

    def _look_for_the_dead(self) -> None:
        """A worker whose pipe stays open because something it started still holds it does not show up as readable."""
        for worker in list(self._busy.values()):
            if not worker.process.is_alive() and not worker.connection.poll():
                self._lost(worker)

    def _lost(self, worker: _Worker[T]) -> None:
        self._busy.pop(worker.connection)
        how = self._bury(worker)
        self._answers.append(_with_task(Outcome(None, error=WorkerDied(f"the worker process {how}")), worker))

    def _bury(self, worker: _Worker[T]) -> str:
        """Let go of a dead worker and say how it ended; several that never got ready mean that none will."""
        worker.process.join(_LEAVE_WITHIN_S)
        how = _describe_exit(worker.process.exitcode)
        _release(worker)
        if not worker.ready:
            self._count_stillborn(how)
        return how

    def _count_stillborn(self, how: str) -> None:
        self._stillborn += 1
        if self._stillborn >= _STILLBORN_LIMIT:
            raise MachineError(
                f"worker processes cannot be started here: the last one {how} before it was ready",
                code="workers-cannot-start",
                why=f"{self._stillborn} in a row ended that way; too little memory, or a script without an"
                " `if __name__ == '__main__'` guard, does this",
                try_="run the same command again with --workers 1",
            )


def _unpacked(message: bytes) -> Outcome[Any, Any]:
    try:
        answer: Outcome[Any, Any] = pickle.loads(message)
    except Exception as error:
        failure = TaskFailed(f"the result cannot be read back: {type(error).__name__}: {error}")
        return Outcome(None, error=failure, traceback_text=traceback.format_exc())
    return answer


def _with_task(answer: Outcome[Any, Any], worker: _Worker[T]) -> Outcome[T, Any]:
    task, worker.task = worker.task, None
    return Outcome(task, answer.value, answer.error, answer.traceback_text, answer.seconds)  # type: ignore[arg-type]


def _describe_exit(code: int | None) -> str:
    if code is None:
        return "stopped answering"
    if code >= 0:
        return f"ended by itself with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = " (often the system's answer to too little memory)" if name == "SIGKILL" else ""
    return f"was ended by {name}{hint}"


def _release(worker: _Worker[Any]) -> None:
    """Give back the pipe and the process; one that lingers is killed."""
    worker.connection.close()
    if worker.process.is_alive():
        worker.process.kill()
        worker.process.join()
    worker.process.close()


def _kill_all(idle: list[_Worker[Any]], busy: dict[Any, _Worker[Any]]) -> None:
    for worker in [*idle, *busy.values()]:
        worker.process.kill()


@contextmanager
def _descriptors_explained(num_workers: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        raise MachineError(
            f"too many open files to start {num_workers} worker processes",
            code="too-many-open-files",
            why="each worker needs about four descriptors, and the limit (`ulimit -n`) is reached",
            try_=f"run the same command again with --workers {max(1, num_workers // 2)}",
        ) from error
