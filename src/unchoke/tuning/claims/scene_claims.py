"""Claims about cutting rasters into windows: files kept open, work done in parallel, work of uneven size handed out.

The plain way of tiling is that of `scenes/tiling/plain_tile.py`: for every window every band is opened, read, divided and closed
again, and `np.savez_compressed` writes it. It needs rasterio, which is imported when a claim is measured. Uneven work is
compressing windows of a raster, those at its edge smaller, through `map` and `imap_unordered` of a standard process pool:
processes are spawned once and used for both ways, and each window says which process took it and when, so that idle time can be
told.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import statistics
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.pool import Pool
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unchoke.core.boxes import Box, plan_boxes
from unchoke.core.clock import StageTimers
from unchoke.jobs.child_start import main_script_hidden
from unchoke.tuning.claims.claim import ClaimMeasurement, DoesNotApply, percent, possible_gain
from unchoke.tuning.claims.claim_bench import Bench, field, write_scene

if TYPE_CHECKING:
    from unchoke.core.boxes import Box
    from unchoke.scenes.scale import SceneScale
    from unchoke.scenes.scene_facts import SceneFacts
    from unchoke.scenes.tiling.tiles import TileSpec

_REPORTED_WORKERS = 6
_WINDOWS_PER_WORKER = 10
_MOST_WORKERS = 16
_REPEATS = 3
_START_WITHIN_S = 60
_PORTIONS_PER_WORKER = 4
"""`Pool.map` cuts its work into so many portions for each worker, unless told otherwise."""
_LEAST_ROWS, _COLUMNS = 4, 2
"""Of windows in a scene; rows are worked on in parallel, so that there is one for each core."""


@dataclass(frozen=True)
class _Scene:
    """A scene made for the purpose, as the engine of `unchoke tile` knows it."""

    facts: SceneFacts
    scale: SceneScale
    spec: TileSpec
    boxes: Sequence[Box]

    @classmethod
    def of(cls, bench: Bench) -> _Scene:
        from unchoke.scenes.handles import HandlePool
        from unchoke.scenes.inspect_scene import inspect_scene
        from unchoke.scenes.scale import measure_scale
        from unchoke.scenes.scan_scenes import scan_scenes
        from unchoke.scenes.tiling.tile_choices import candidates
        from unchoke.scenes.tiling.tiles import TileSpec, plan_windows

        folder = bench.folder / "scene"
        if not folder.exists():
            tile_px, rows = bench.sizes.tile_px, max(_LEAST_ROWS, bench.facts.cores)
            write_scene(folder, rows * tile_px, _COLUMNS * tile_px, block_px=tile_px)
        pool = HandlePool()
        try:
            facts = inspect_scene(scan_scenes(folder).scenes[0], pool=pool)
            scale = measure_scale(facts, "max", pool=pool)
        finally:
            pool.close()
        tiles = bench.folder / "tiles"
        spec = TileSpec(facts, scale, str(tiles), size_px=bench.sizes.tile_px, compress=candidates()[0])
        return cls(facts, scale, spec, [window.box for window in plan_windows(spec)])


class _PlainTiling:
    """The windows of a scene one after the other, with files opened for each of them or once for all; `timers` has the stages."""

    def __init__(self, scene: _Scene, folder: Path) -> None:
        self.timers = StageTimers()
        self._scene, self._folder = scene, folder
        folder.mkdir(parents=True, exist_ok=True)

    def reopening(self) -> list[Path]:
        files = []
        for box in self._scene.boxes:
            with self._opened() as opened:
                files.append(self._tile(box, opened))
        return files

    def keeping(self) -> list[Path]:
        with self._opened() as opened:
            return [self._tile(box, opened) for box in self._scene.boxes]

    def share(self, stage: str) -> float:
        return self.timers.seconds[stage] / sum(self.timers.seconds.values())

    @contextmanager
    def _opened(self) -> Iterator[list[Any]]:
        from unchoke.scenes.tiling.plain_tile import close_band, open_band

        with self.timers.stage("open"):
            opened = [open_band(band) for band in self._scene.facts.bands]
        yield opened
        with self.timers.stage("open"):
            for one in opened:
                close_band(one)

    def _tile(self, box: Box, opened: Sequence[Any]) -> Path:
        from unchoke.scenes.tiling.plain_tile import normalise, read_band, save_tile

        facts = self._scene.facts
        with self.timers.stage("read"):
            read = [read_band(one, band, facts, box) for one, band in zip(opened, facts.bands, strict=True)]
        with self.timers.stage("normalise"):
            bands, valid = np.stack([values for values, _ in read]), np.logical_and.reduce([seen for _, seen in read])
            bands = normalise(bands, self._scene.scale, valid)
        path = self._folder / f"{box.top}_{box.left}.npz"
        with self.timers.stage("write"):
            save_tile(path, {"bands": bands})
        return path


def measure_handle_reuse(bench: Bench) -> ClaimMeasurement:
    """Tiling with every band opened for every window against opened once."""
    scene = _Scene.of(bench)
    reopening, keeping = (_PlainTiling(scene, bench.folder / "plain" / name) for name in ("reopening", "keeping"))
    equal = all(map(_same_bands, reopening.reopening(), keeping.keeping()))
    compared = bench.compare(reopening.reopening, keeping.keeping, warm=True)
    shares = {stage: reopening.share(stage) for stage in reopening.timers.seconds}
    read_gain = reopening.timers.seconds["read"] / keeping.timers.seconds["read"]
    why = (
        f"opening is {percent(shares['open'], digits=1)} of tiling here, reading {percent(shares['read'])}, writing compressed "
        f"files {percent(shares['write'])}: opening for nothing would gain {possible_gain(shares['open'], math.inf):.2f}×; reads "
        f"from files that stay open take {1 / read_gain:.2f}× the time"
    )
    return ClaimMeasurement.of(
        compared,
        equal=equal,
        equal_figure="every tile" if equal else "tiles DIFFER",
        why=why,
        shares=shares,
        read_ratio=read_gain,
        windows=len(scene.boxes),
    )


def measure_parallel_tiling(bench: Bench) -> ClaimMeasurement:
    """The plain serial way against the engine of `unchoke tile` on all cores."""
    scene, threads = _Scene.of(bench), bench.facts.cores
    plain = _PlainTiling(scene, bench.folder / "plain" / "serial")
    equal = all(map(_same_bands, plain.reopening(), _run_strips(scene, threads)))
    compared = bench.compare(plain.reopening, lambda: _run_strips(scene, threads), warm=True)
    alone_s, together_s = (min(bench.seconds(lambda n=n: _run_strips(scene, n)) for _ in range(2)) for n in (1, threads))  # type: ignore[misc]
    scaling, write = alone_s / together_s, plain.share("write")
    why = (
        f"the report had {_REPORTED_WORKERS} workers, here are {threads} cores: threads gain {scaling:.2f}×, and "
        f"{compared.ratio / scaling:.1f}× comes without any, since {percent(write)} of the plain way is writing through zlib and "
        f"the engine writes by {scene.spec.compress}"
    )
    return ClaimMeasurement.of(
        compared,
        equal=equal,
        equal_figure="every tile" if equal else "tiles DIFFER",
        why=why,
        threads=threads,
        thread_ratio=scaling,
        write_share=write,
        windows=len(scene.boxes),
        compress=scene.spec.compress,
    )


def _run_strips(scene: _Scene, threads: int) -> list[Path]:
    """The tiles in the order of the windows, made as `unchoke tile` makes them, from files that are not open yet."""
    from unchoke.jobs.job_engines import InProcessEngine
    from unchoke.scenes.handles import HandlePool
    from unchoke.scenes.tiling.tiles import plan_strips, run_strip, shared_rows

    pool, spec = HandlePool(), scene.spec
    strips = plan_strips(scene.facts, spec)
    shared = shared_rows([spec], strips)
    files: dict[str, Path] = {}
    try:
        for outcome in InProcessEngine(threads).map_unordered(
            lambda strip: run_strip(strip, spec, pool=pool, shared=shared), strips
        ):
            if outcome.error is not None:
                raise outcome.error
            if outcome.value is not None:
                files |= {record.tile_id: Path(spec.folder, record.file) for record in outcome.value.records}
    finally:
        pool.close()
    return [files[window.tile_id] for strip in strips for window in strip.windows]


def _same_bands(plain: Path, ours: Path) -> bool:
    with np.load(plain) as left, np.load(ours) as right:
        return bool(np.array_equal(left["bands"], right["bands"]))


class WindowTask(NamedTuple):
    """A window of an array in a file."""

    path: str
    box: Box


class WindowResult(NamedTuple):
    """What came of a window, which process took it, and from when to when."""

    window: Box
    crc: int
    pid: int
    began_s: float
    ended_s: float


def compress_window(task: WindowTask) -> WindowResult:
    """The work of one window, in a worker process."""
    began_s = time.monotonic()
    box = task.box
    part = np.load(task.path, mmap_mode="r")[box.top : box.bottom, box.left : box.right]
    crc = zlib.crc32(zlib.compress(part.tobytes()))
    return WindowResult(box, crc, os.getpid(), began_s, time.monotonic())


def measure_unordered_scheduling(bench: Bench) -> ClaimMeasurement:
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
    return ClaimMeasurement.of(
        compared,
        equal=equal,
        equal_figure="every window, in another order" if equal else "windows DIFFER",
        why=why,
        workers=workers,
        windows=len(tasks),
        portion=portion,
        idle_share=idle,
    )


def _tasks(bench: Bench, workers: int) -> list[WindowTask]:
    """Windows row by row, about ten for each worker, the last of each row and the last row half as wide or high."""
    window_px = bench.sizes.window_px
    across = math.ceil(math.sqrt(_WINDOWS_PER_WORKER * workers))
    side_px = (across - 1) * window_px + window_px // 2
    path = bench.folder / "raster.npy"
    np.save(path, field(side_px, side_px, seed=0)[..., 0])
    return [WindowTask(str(path), box) for box in plan_boxes(side_px, side_px, size_px=window_px, overlap_px=0, edges="smaller")]


@contextmanager
def _pool(workers: int) -> Iterator[Pool]:
    """Spawned processes that leave a Ctrl-C to their parent and do not run the caller's script again."""
    with main_script_hidden():
        pool = multiprocessing.get_context("spawn").Pool(
            workers, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)
        )
    with pool:
        yield pool


def _first_map(pool: Pool, tasks: list[WindowTask]) -> list[WindowResult]:
    """All windows once. A standard pool whose processes cannot start would wait for ever."""
    try:
        return pool.map_async(compress_window, tasks).get(_START_WITHIN_S)
    except multiprocessing.TimeoutError as error:
        raise DoesNotApply(f"worker processes did not answer within {_START_WITHIN_S} s") from error


def _idle_share(run: Callable[[], Iterable[WindowResult]], workers: int) -> float:
    """How much of the workers' time goes unused between the first window's start and the last one's end."""
    shares = []
    for _ in range(_REPEATS):
        done = list(run())
        wall_s = max(one.ended_s for one in done) - min(one.began_s for one in done)
        shares.append(1 - sum(one.ended_s - one.began_s for one in done) / (workers * wall_s))
    return statistics.median(shares)
