"""Worker processes, each with its own pipe, replaced when they die. The driver's end; `attempts.py` is the other end.

A standard process pool is broken for good once a worker is killed, and keeps threads and locks of its own. Here a worker that
vanishes costs one outcome, and the next task starts another. Not safe to share between threads.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from types import ModuleType
from typing import Any, Generic, TypeVar

from unchoke.core.errors import MachineError
from unchoke.jobs.attempts import Outcome, TaskFailed, WorkerDied, serve
from unchoke.jobs.signals import STOP_SIGNALS

T = TypeVar("T")
R = TypeVar("R")

_STILLBORN_LIMIT = 3
_LOOK_EVERY_S = 1.0
_LEAVE_WITHIN_S = 5.0
_SAFE_PATH = "PYTHONSAFEPATH"


@dataclass(eq=False)
class _Worker(Generic[T]):
    process: BaseProcess
    connection: Connection[Any, Any]
    ready: bool = False
    task: T | None = None


class WorkerPool(Generic[T, R]):
    """Up to `size` workers, started as tasks come. `give` while `has_room`, then take `next_outcome`.

    They are spawned; or, with `start_method` "forkserver", forked from a process that has imported already what they need
    (`loader_processes.py` says what), which takes hundredths of a second each.
    """

    def __init__(
        self,
        body: Callable[[T], R],
        *,
        size: int,
        setup: Callable[..., None] | None = None,
        setup_args: tuple[Any, ...] = (),
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
            for worker in [] if readable else list(self._busy.values()):
                # a pipe that something the worker started still holds open does not show up as readable
                if not worker.process.is_alive() and not worker.connection.poll():
                    self._lost(worker)
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
        """A new worker. The process that workers are forked from may have died: the next try starts another."""
        context: Any = self._context
        spawned = context.get_start_method() == "spawn"
        tied = spawned and threading.current_thread() is threading.main_thread()  # else another process or thread is its parent
        while True:
            try:
                ours, theirs = context.Pipe(duplex=True)
                try:
                    process = context.Process(target=serve, args=(theirs, self._parcel, os.getpid(), tied), daemon=True)
                    hidden = nullcontext() if self._import_main else main_script_hidden()
                    with hidden, stop_signals_held_back(), _children_allowed():
                        process.start()
                except BaseException:
                    ours.close()
                    raise
                finally:
                    theirs.close()
                return _Worker(process, ours)
            except (EOFError, ConnectionError) as error:
                self._count_stillborn(f"could not be forked ({type(error).__name__})")
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE):
                    raise
                raise MachineError(
                    f"too many open files to start {self._size} worker processes",
                    code="too-many-open-files",
                    why="each worker needs about four descriptors, and the limit (`ulimit -n`) is reached",
                    try_=f"run the same command again with --workers {max(1, self._size // 2)}",
                ) from error

    def _receive(self, worker: _Worker[T]) -> None:
        """Take one message from a busy worker: that it is ready, that it cannot start, or an outcome; or notice that it died."""
        try:
            message = worker.connection.recv_bytes()
        except (EOFError, ConnectionError):
            self._lost(worker)
            return
        try:
            answer: Outcome[Any, Any] = pickle.loads(message)
        except Exception as error:
            failure = TaskFailed(f"the result cannot be read back: {type(error).__name__}: {error}")
            answer = Outcome(None, error=failure, traceback_text=traceback.format_exc())
        if worker.ready:
            self._idle.append(self._busy.pop(worker.connection))
            self._answers.append(replace(answer, task=worker.task))
        elif answer.error is None:
            worker.ready, self._stillborn = True, 0
        else:
            answer.error.add_note(f"in the set-up of a worker process:\n{answer.traceback_text}")
            raise answer.error

    def _lost(self, worker: _Worker[T]) -> None:
        self._busy.pop(worker.connection)
        task: Any = worker.task
        self._answers.append(Outcome(task, error=WorkerDied(f"the worker process {self._bury(worker)}")))

    def _bury(self, worker: _Worker[T]) -> str:
        """Let go of a dead worker and say how it ended; several that never got ready mean that none will."""
        worker.process.join(_LEAVE_WITHIN_S)
        code = worker.process.exitcode
        how = "stopped answering" if code is None else f"ended by itself with exit code {code}"
        if code is not None and code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            how = f"was ended by {name}"
            how += " (often the system's answer to too little memory)" if name == "SIGKILL" else ""
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


_hide_lock = threading.Lock()
_num_hiding = 0
_hidden: tuple[ModuleType, str | None]


@contextmanager
def main_script_hidden() -> Iterator[None]:
    """Let a child start without importing the caller's main script, which may lack a guard and would run all over again.

    Nor does it import modules from the folder the user is in: a numpy.py or a random.py lying there would be imported instead of
    the real one. Threads may start processes at the same time: the last of them restores both.
    """
    global _num_hiding, _hidden
    with _hide_lock:
        if _num_hiding == 0:
            _hidden = sys.modules["__main__"], os.environ.get(_SAFE_PATH)
            sys.modules["__main__"] = ModuleType("__main__")
            os.environ[_SAFE_PATH] = "1"
        _num_hiding += 1
    try:
        yield
    finally:
        with _hide_lock:
            _num_hiding -= 1
            if _num_hiding == 0:
                sys.modules["__main__"], safe_path = _hidden
                if safe_path is None:
                    del os.environ[_SAFE_PATH]
                else:
                    os.environ[_SAFE_PATH] = safe_path


@contextmanager
def stop_signals_held_back() -> Iterator[None]:
    """A Ctrl-C while a worker starts must not end it: it inherits the mask, and sets its own handlers before lifting it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # starting it lifts the mask, so it must not be started below
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _children_allowed() -> Iterator[None]:
    """Start a process although this one is itself a worker of a pool, which multiprocessing forbids to have children.

    It forbids it because they would be left behind when the pool ends its workers; ours end when their driver does.
    """
    config: dict[str, object] = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    if not config.get("daemon"):
        yield
        return
    config["daemon"] = False
    try:
        yield
    finally:
        config["daemon"] = True
