"""Engines: things that run a plain function over many tasks, in whatever order they finish.

The contract, held by one test suite for all of them: every task taken has exactly one outcome; an exception belongs to its task
and stops no other; tasks are taken from the iterable only as there is room for them, in the thread that reads the outcomes;
`stop` takes no further task and lets those in flight finish; an exception in `setup` ends the run and is raised to the caller.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from typing import Any, Protocol, TypeVar, runtime_checkable

from unchoke.jobs.attempts import Outcome, attempt
from unchoke.jobs.pool import WorkerPool

T = TypeVar("T")
R = TypeVar("R")


class JobEngine(Protocol):
    """Runs plain functions. A third engine only has to pass the contract suite."""

    def map_unordered(
        self,
        body: Callable[[T], R],
        tasks: Iterable[T],
        *,
        setup: Callable[..., None] | None = None,
        setup_args: tuple[Any, ...] = (),
    ) -> Generator[Outcome[T, R], None, None]:
        """Outcomes as they come. `setup(*setup_args)` runs once in every process before its first task."""
        ...

    def stop(self, *, now: bool = False) -> None:
        """Take no further tasks; those in flight finish. With `now`, closing the outcomes does not wait for them either.

        Only sets a flag: safe to call from a signal handler.
        """
        ...


@runtime_checkable
class StreamBody(Protocol):
    """A body that also takes tasks as a stream, so that work goes on from one into the next without a pause."""

    def stream(self, tasks: Iterator[Any]) -> Generator[Outcome[Any, Any], None, None]:
        """Outcomes as they come. A task is taken when there is room for it, in the thread that reads the outcomes."""
        ...


class InProcessEngine:
    """Runs bodies in this process: in the caller's thread, or in a few threads when `slots` is more than one.

    A body that takes tasks as a stream gets them as a stream; whatever threads or processes it reads with are its own.
    """

    def __init__(self, slots: int = 1) -> None:
        self.slots = max(1, slots)
        self._stopped = False
        self._abandon = False

    def map_unordered(
        self,
        body: Callable[[T], R],
        tasks: Iterable[T],
        *,
        setup: Callable[..., None] | None = None,
        setup_args: tuple[Any, ...] = (),
    ) -> Generator[Outcome[T, R], None, None]:
        self._stopped = self._abandon = False
        if setup is not None:
            setup(*setup_args)
        waiting = self._until_stopped(iter(tasks))
        if isinstance(body, StreamBody):
            return body.stream(waiting)
        return self._in_threads(body, waiting) if self.slots > 1 else (attempt(body, task) for task in waiting)

    def stop(self, *, now: bool = False) -> None:
        self._stopped = True
        self._abandon = self._abandon or now

    def _until_stopped(self, tasks: Iterator[T]) -> Iterator[T]:
        while not self._stopped:
            try:
                task = next(tasks)
            except StopIteration:
                return
            yield task

    def _in_threads(self, body: Callable[[T], R], waiting: Iterator[T]) -> Generator[Outcome[T, R], None, None]:
        """Threads of our own and not an executor, which would wait for them when the interpreter ends."""
        todo: queue.SimpleQueue[tuple[T] | None] = queue.SimpleQueue()
        outcomes: queue.SimpleQueue[Outcome[T, R]] = queue.SimpleQueue()

        def work() -> None:
            while (given := todo.get()) is not None:
                outcomes.put(attempt(body, given[0]))

        threads = [threading.Thread(target=work, daemon=True) for _ in range(self.slots)]
        for thread in threads:
            thread.start()
        in_flight = 0
        try:
            for task in waiting:
                todo.put((task,))
                in_flight += 1
                while in_flight > self.slots:  # one task is ready beyond those running
                    yield outcomes.get()
                    in_flight -= 1
            for _ in range(in_flight):
                yield outcomes.get()
        except KeyboardInterrupt:
            self._abandon = True
            raise
        finally:
            with suppress(queue.Empty):  # tasks that no thread has begun are dropped
                while True:
                    todo.get_nowait()
            for _ in threads:
                todo.put(None)
            for thread in threads if not self._abandon else ():
                thread.join()


class ProcessEngine:
    """Runs bodies in processes of their own, one task at a time each; a killed worker costs its task, not the run.

    The body, `setup` and the tasks must be picklable. Workers do not import the caller's main script unless the body comes from
    it; `import_main` says that the tasks do. They are spawned, or started as `start_method` says (see `pool.py`).
    """

    def __init__(self, workers: int, *, import_main: bool = False, start_method: str = "spawn") -> None:
        self.workers = max(1, workers)
        self._import_main, self._start_method = import_main, start_method
        self._stopped = False

    def map_unordered(
        self,
        body: Callable[[T], R],
        tasks: Iterable[T],
        *,
        setup: Callable[..., None] | None = None,
        setup_args: tuple[Any, ...] = (),
    ) -> Generator[Outcome[T, R], None, None]:
        self._stopped = False
        pool: WorkerPool[T, R] = WorkerPool(
            body,
            size=self.workers,
            setup=setup,
            setup_args=setup_args,
            import_main=self._import_main,
            start_method=self._start_method,
        )
        return self._run(pool, iter(tasks))

    def stop(self, *, now: bool = False) -> None:
        self._stopped = True

    def _run(self, pool: WorkerPool[T, R], waiting: Iterator[T]) -> Generator[Outcome[T, R], None, None]:
        more = True
        try:
            while True:
                while more and not self._stopped and pool.has_room:
                    try:
                        pool.give(next(waiting))
                    except StopIteration:
                        more = False
                if not pool.has_answers:
                    return
                yield pool.next_outcome()
        finally:
            pool.close()
