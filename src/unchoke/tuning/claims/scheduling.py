"""The claim about handing out work of uneven size: `imap_unordered` against `map` of a standard process pool.

The work is compressing windows of a raster, those at its edge smaller. Processes are spawned once and used for both ways; what
starting them takes is not counted. Each window says which process took it and when, so that idle time can be told.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import statistics
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.pool import Pool
from typing import NamedTuple

import numpy as np

from unchoke.core.boxes import Box, plan_boxes
from unchoke.jobs.pool import main_script_hidden
from unchoke.tuning.claims.claim import DoesNotApply, Measured, percent
from unchoke.tuning.claims.claim_bench import Bench
from unchoke.tuning.claims.claim_material import field

_WINDOWS_PER_WORKER = 10
_MOST_WORKERS = 16
_REPEATS = 3
_START_WITHIN_S = 60
_PORTIONS_PER_WORKER = 4
"""`Pool.map` cuts its work into so many portions for each worker, unless told otherwise."""


class Task(NamedTuple):
    """A window of an array in a file."""

    path: str
    box: Box


class Done(NamedTuple):
    """What came of a window, which process took it, and from when to when."""

    window: Box
    crc: int
    pid: int
    began_s: float
    ended_s: float


def compress_window(task: Task) -> Done:
    """The work of one window, in a worker process."""
    began_s = time.monotonic()
    box = task.box
    part = np.load(task.path, mmap_mode="r")[box.top : box.bottom, box.left : box.right]
    crc = zlib.crc32(zlib.compress(part.tobytes()))
    return Done(box, crc, os.getpid(), began_s, time.monotonic())


def measure_unordered_scheduling(bench: Bench) -> Measured:
    """Uneven windows through `Pool.map` against `Pool.imap_unordered`."""
    workers = max(2, min(_MOST_WORKERS, bench.facts.cores))
    tasks = _tasks(bench, workers)
    with _pool(workers) as pool:
        in_order, as_they_come = _first_map(pool, tasks), list(pool.imap_unordered(compress_window, tasks))
        equal = sorted(done[:2] for done in in_order) == sorted(done[:2] for done in as_they_come)
        compared = bench.compare(
            lambda: pool.map(compress_window, tasks), lambda: list(pool.imap_unordered(compress_window, tasks)), warm=True
        )
        idle = {
            "map": _idle_share(lambda: pool.map(compress_window, tasks), workers),
            "imap_unordered": _idle_share(lambda: pool.imap_unordered(compress_window, tasks), workers),
            "map, one at a time": _idle_share(lambda: pool.map(compress_window, tasks, chunksize=1), workers),
        }
    portion = math.ceil(len(tasks) / (_PORTIONS_PER_WORKER * workers))
    why = (
        f"the {workers} processes stand idle {percent(idle['map'])} of the time with map, which hands out {portion} of "
        f"{len(tasks)} windows at a time, {percent(idle['imap_unordered'])} with imap_unordered, and "
        f"{percent(idle['map, one at a time'])} with map(chunksize=1), which keeps the order"
    )
    return Measured.of(
        compared,
        equal=equal,
        equal_figure="every window, in another order" if equal else "windows DIFFER",
        why=why,
        workers=workers,
        windows=len(tasks),
        portion=portion,
        idle_share=idle,
    )


def _tasks(bench: Bench, workers: int) -> list[Task]:
    """Windows row by row, about ten for each worker, the last of each row and the last row half as wide or high."""
    window_px = bench.sizes.window_px
    across = math.ceil(math.sqrt(_WINDOWS_PER_WORKER * workers))
    side_px = (across - 1) * window_px + window_px // 2
    path = bench.folder / "raster.npy"
    np.save(path, field(side_px, side_px, seed=0)[..., 0])
    return [Task(str(path), box) for box in plan_boxes(side_px, side_px, size_px=window_px, overlap_px=0, edges="smaller")]


@contextmanager
def _pool(workers: int) -> Iterator[Pool]:
    """Spawned processes that leave a Ctrl-C to their parent and do not run the caller's script again."""
    with main_script_hidden():
        pool = multiprocessing.get_context("spawn").Pool(
            workers, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)
        )
    with pool:
        yield pool


def _first_map(pool: Pool, tasks: list[Task]) -> list[Done]:
    """All windows once. A standard pool whose processes cannot start would wait for ever."""
    try:
        return pool.map_async(compress_window, tasks).get(_START_WITHIN_S)
    except multiprocessing.TimeoutError as error:
        raise DoesNotApply(f"worker processes did not answer within {_START_WITHIN_S} s") from error


def _idle_share(run: Callable[[], Iterable[Done]], workers: int) -> float:
    """How much of the workers' time goes unused between the first window's start and the last one's end."""
    shares = []
    for _ in range(_REPEATS):
        done = list(run())
        wall_s = max(one.ended_s for one in done) - min(one.began_s for one in done)
        shares.append(1 - sum(one.ended_s - one.began_s for one in done) / (workers * wall_s))
    return statistics.median(shares)
