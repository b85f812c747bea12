"""Loader processes: files are read and decoded on every core, into memory that both sides see; no pixel is ever pickled.

In: a `program` (a picklable callable: a task and a piece of memory in, a small answer out) and tasks. Out: chunks as they are
done, in any order; a chunk's memory is the taker's until it is released. A process that dies costs its task, which comes back
with the error. One thread drives the pool, so that workers never wait for the training. What is read is the program's business.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import queue
import shutil
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from unchoke.core.temporary_folders import keep_scratch
from unchoke.jobs.attempts import Outcome
from unchoke.jobs.pool import WorkerPool, main_script_hidden, stop_signals_held_back

T = TypeVar("T")
R = TypeVar("R")
Program = Callable[[T, memoryview], R]
_AHEAD = 3
"""Tasks in flight for each worker: one being read, one waiting, one read already."""
_FEWEST_CORES = 4
_LOOK_EVERY_S = 0.05
_preloaded: list[str] = []


def preload_workers(modules: Sequence[str]) -> None:
    """Begin to import what workers will need, in a process they are forked from later; returns at once.

    Only the first call of a process counts. Where processes cannot be forked, nothing happens: each worker imports for itself.
    """
    if not _preloaded:
        _preloaded.extend(modules)
    multiprocessing.set_forkserver_preload(list(modules))
    start_method()


def start_at_once() -> bool:
    """Whether workers need not wait for torch, which takes seconds to import."""
    return "torch" not in _preloaded


def start_method() -> str:
    """How workers are started: forked from a clean process that only imports, on Linux; spawned elsewhere.

    Spawned also where that process finds no place for its socket: a folder for temporary files that is full, or whose name is
    longer than a socket's may be.
    """
    if sys.platform != "linux":
        return "spawn"
    from multiprocessing import forkserver

    try:
        with main_script_hidden(), stop_signals_held_back():
            forkserver.ensure_running()
    except OSError:
        return "spawn"
    return "forkserver"


def worth_processes(num_items: int, *, workers: int, least: int = 1000) -> bool:
    """Whether processes read faster than threads: with few cores, or few items, starting them costs more than they gain."""
    may_start = not multiprocessing.current_process().daemon  # the workers of a user's own pool may not start processes
    return may_start and workers >= _FEWEST_CORES and num_items >= least


class SharedBlock:
    """Memory that this process and its workers both see. Pages nobody writes to take nothing."""

    def __init__(self, num_bytes: int) -> None:
        self._file: Path | None = None
        if hasattr(os, "memfd_create"):  # not bounded by the size of /dev/shm, which containers keep small
            self._fd = os.memfd_create("unchoke-loaders")
            self.path = f"/proc/{os.getpid()}/fd/{self._fd}"
        else:
            self._file = keep_scratch("loaders") / "shared"
            self._fd, self.path = os.open(self._file, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)), str(self._file)
        os.ftruncate(self._fd, num_bytes)
        self._map = mmap.mmap(self._fd, num_bytes)
        self.view = memoryview(self._map)

    def close(self) -> None:
        """Give the memory back, as far as nobody looks at it any more."""
        os.close(self._fd)
        if self._file is not None:
            with suppress(BufferError):  # the taker of a chunk may still hold it
                self.view.release()
                self._map.close()
            shutil.rmtree(self._file.parent, ignore_errors=True)  # Windows keeps a mapped file: it goes with the process


@dataclass
class ReadChunk(Generic[T, R]):
    """A task that was read: what the program answered, or why there is no answer; and the memory it wrote to."""

    task: T
    value: R | None
    error: BaseException | None
    memory: memoryview
    release: Callable[[], None] = field(repr=False)


class LoaderProcesses(Generic[T, R]):
    """`submit` tasks while there is room, `take` chunks as they are done; `close` ends the processes."""

    def __init__(self, program: Program[T, R], *, processes: int, region_bytes: int) -> None:
        self.processes = max(1, processes)
        num_regions = _AHEAD * self.processes
        self._region_bytes = region_bytes
        self._block = SharedBlock(num_regions * region_bytes)
        self._free = list(range(num_regions))
        self._todo: queue.SimpleQueue[tuple[T, int] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[T, int, Outcome[Any, R]] | BaseException] = queue.SimpleQueue()
        self._parcel = (program, self._block.path, region_bytes)
        self._closing = False
        self._thread: threading.Thread | None = None
        self.in_flight = 0

    @property
    def has_room(self) -> bool:
        """Whether another task may be submitted now."""
        return bool(self._free)

    def submit(self, task: T) -> None:
        """Have `task` read."""
        self._todo.put((task, self._free.pop()))
        self.in_flight += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._drive, name="unchoke-loaders", daemon=True)
            self._thread.start()

    def take(self) -> ReadChunk[T, R]:
        """The next chunk that is done; waits for it."""
        found = self._done.get()
        if isinstance(found, BaseException):
            raise found
        task, region, outcome = found
        self.in_flight -= 1
        start = region * self._region_bytes
        memory = self._block.view[start : start + self._region_bytes]
        return ReadChunk(task, outcome.value, outcome.error, memory, lambda: self._free.append(region))

    def each(self, tasks: Iterable[T]) -> Iterator[ReadChunk[T, R]]:
        """Have all of them read: chunks as they are done, in any order. The receiver releases each."""
        waiting = deque(tasks)
        while waiting or self.in_flight:
            while waiting and self.has_room:
                self.submit(waiting.popleft())
            yield self.take()

    def close(self) -> None:
        """End the workers, whatever they are doing."""
        self._closing = True
        self._todo.put(None)
        if self._thread is not None:
            self._thread.join()
        self._block.close()

    def _drive(self) -> None:
        """Hand out tasks and collect their outcomes, until closed. Runs in a thread of its own, which owns the pool."""
        pool: WorkerPool[tuple[Any, int], R] = WorkerPool(
            read_task, size=self.processes, setup=set_up_worker, setup_args=self._parcel, start_method=start_method()
        )
        try:
            while not self._closing:
                while pool.has_room and (not pool.has_answers or not self._todo.empty()):
                    task = self._todo.get()
                    if task is None:
                        return
                    pool.give(task)
                outcome = pool.poll(_LOOK_EVERY_S)
                if outcome is not None:
                    self._done.put((*outcome.task, outcome))
        except BaseException as error:  # the taker must not wait for ever: it gets whatever this was, and raises it
            self._done.put(error)
        finally:
            pool.close()


_loader: tuple[Program[Any, Any], memoryview, int] | None = None


def set_up_worker(program: Program[Any, Any], path: str, region_bytes: int) -> None:
    """What a worker does first: look at the shared memory."""
    global _loader
    with open(path, "r+b") as file:  # noqa: PTH123 (a path below /proc)
        _loader = program, memoryview(mmap.mmap(file.fileno(), 0)), region_bytes


def read_task(task: tuple[Any, int]) -> Any:
    """Run the program on one task, in a worker."""
    if _loader is None:
        raise RuntimeError("set_up_worker did not run in this process")
    program, memory, region_bytes = _loader
    start = task[1] * region_bytes
    return program(task[0], memory[start : start + region_bytes])
