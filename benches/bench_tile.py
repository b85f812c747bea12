"""A scene of four bands to tiles with masks: unchoke's engine against the plain serial way, in one run.

The scene is a mosaic of real Landsat-8 bands (`scenes.py`), one deflate file for each band, tiled and striped. The plain way
opens each band for every window, reads, divides, thresholds and calls `np.savez_compressed`. Passes alternate, the median of
each way is taken, and every array of the compressed tiles is compared with the plain way's. Beside it: one thread and two, two
processes, other layouts, the floor (decompress every block and compress every array with the same codec, from memory, in two
threads), where the time goes, the whole command, and slow tiles planted among quick ones: completion in any order against
completion in order.

Usage: python benches/bench_tile.py [FOLDER] [--px 8000] [--tile 512] [--repeat 3] [--layouts tiled striped] [--no-command]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from common import say, unchoke
from scenes import BANDS, LAYOUTS, MASK, mosaic_scene

from unchoke.core.boxes import Box
from unchoke.core.settings import Settings
from unchoke.jobs.job_engines import InProcessEngine, JobEngine, ProcessEngine
from unchoke.runs.report.layout import columns
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.mask_sources import choose_mask
from unchoke.scenes.npz import encode_npz
from unchoke.scenes.open_scenes import inspect_scene
from unchoke.scenes.raster import read_box
from unchoke.scenes.scale import apply_scale, measure_scale
from unchoke.scenes.scan_scenes import scan_scenes
from unchoke.scenes.tiling.shared_blocks import SharedBlocks
from unchoke.scenes.tiling.tiles import STAGES, StripResult, TileSpec, TileStrip, plan_strips, run_strip

WORKERS = 2
_FLOOR_TILES = 64
"""So many arrays are held in memory for the floor; its seconds are then those of all tiles in proportion."""
_SLEEP_S = 0.01
_SLOW = 12
"""How many times slower a planted slow tile is."""


@dataclass(frozen=True)
class Way:
    """One way to make the tiles: how they are stored, and who works."""

    compress: str = "isal"
    store: str = "float32"
    workers: int = WORKERS
    processes: bool = False


WAYS = {
    "2 threads": Way(),
    "1 thread": Way(workers=1),
    "2 processes": Way(processes=True),
    "2 threads, zlib": Way("zlib"),
    "2 threads, uncompressed": Way("none"),
    "2 threads, raw": Way(store="raw"),
    "2 threads, raw uncompressed": Way("none", store="raw"),
}
CHOSEN, SINGLE = "2 threads", "1 thread"


def open_scene(folder: Path, *, tile_px: int, to: Path) -> TileSpec:
    """The scene as `unchoke tile --mask …` opens it."""
    pool = HandlePool()
    scanned = scan_scenes(folder, bands=BANDS)
    facts = inspect_scene(scanned.scenes[0], pool=pool, bands=BANDS)
    mask = choose_mask(Settings(mask=MASK), band_names=facts.band_names, labelled=False)
    scale = measure_scale(facts, "max", pool=pool)
    pool.close()
    return TileSpec(facts=facts, scale=scale, folder=str(to), size_px=tile_px, mask=mask)


@dataclass(frozen=True)
class ThreadBody:
    """Strips in the threads of one process, which share handles and blocks."""

    spec: TileSpec
    pool: HandlePool
    shared: Any

    def __call__(self, strip: TileStrip) -> StripResult:
        return run_strip(strip, self.spec, pool=self.pool, shared=self.shared)


@dataclass(frozen=True)
class ProcessBody:
    """Strips in processes, each with handles of its own."""

    spec: TileSpec

    def __call__(self, strip: TileStrip) -> StripResult:
        return run_strip(strip, self.spec)


def run_way(spec: TileSpec, way: Way) -> list[StripResult]:
    """Every tile of the scene; planning and opening files are part of it, and so is starting processes."""
    spec = replace(spec, compress=way.compress, store=way.store)
    strips = plan_strips(spec.facts, spec)
    if way.processes:
        return collect(ProcessEngine(way.workers), ProcessBody(spec), strips)
    pool = HandlePool()
    try:
        return collect(InProcessEngine(way.workers), ThreadBody(spec, pool, SharedBlocks()), strips)
    finally:
        pool.close()


def collect(engine: JobEngine, body: Callable[[TileStrip], StripResult], strips: Sequence[TileStrip]) -> list[StripResult]:
    results = []
    for outcome in engine.map_unordered(body, strips):
        if outcome.error is not None or outcome.value is None:
            raise SystemExit(outcome.traceback_text or str(outcome.error))
        results.append(outcome.value)
    return results


def run_plainly(spec: TileSpec) -> list[Path]:
    """Every tile of the scene, the plain way."""
    boxes = [window.box for strip in plan_strips(spec.facts, spec) for window in strip.windows]
    Path(spec.folder).mkdir(parents=True, exist_ok=True)
    return [tile_plainly(spec, box, Path(spec.folder) / f"{box.top}_{box.left}.npz") for box in boxes]


def tile_plainly(spec: TileSpec, box: Box, file: Path) -> Path:
    """One window by itself: its files are opened, read and closed again, and `np.savez_compressed` writes it."""
    with closing(HandlePool(limit=64)) as pool:
        bands, valid = read_box(spec.facts, box, pool=pool)
        arrays: dict[str, Any] = {"bands": bands}
        if spec.mask is not None:
            arrays["mask"] = spec.mask.mask(spec.facts, box, bands, valid, pool)
    apply_scale(bands, spec.scale, valid)
    np.savez_compressed(file, **arrays)
    return file


def timed(folder: Path, body: Callable[[], Any]) -> tuple[Any, float]:
    """The body's value and seconds, into an empty folder, with what others wrote already on the disk."""
    shutil.rmtree(folder, ignore_errors=True)
    os.sync()
    started_s = time.perf_counter()
    value = body()
    return value, time.perf_counter() - started_s


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*.npz"))


def by_place(folder: Path) -> dict[tuple[int, int], Path]:
    """Tiles of unchoke by the top left corner that they say they have."""
    placed = {}
    for file in folder.rglob("*.npz"):
        with np.load(file) as tile:
            placed[int(tile["window"][0]), int(tile["window"][1])] = file
    return placed


def compare_tiles(plain: Path, ours: Path) -> dict[str, int]:
    """How many tiles there are and how many have equal bands and mask, bit for bit."""
    placed = by_place(ours)
    files = sorted(plain.rglob("*.npz"))
    equal = 0
    for file in files:
        top, left = (int(number) for number in file.stem.rsplit("_", 2)[-2:])
        with np.load(file) as before, np.load(placed.pop((top, left))) as after:
            same_type = before["bands"].dtype == after["bands"].dtype
            equal += same_type and all(np.array_equal(before[name], after[name]) for name in ("bands", "mask"))
    return {"tiles": len(files), "equal": equal, "not_in_both": len(placed)}


def block_bytes(path: str) -> Iterator[bytes]:
    """The compressed blocks of a band file as they lie on the disk."""
    with rasterio.open(path) as band, Path(path).open("rb") as file:
        (rows, cols), places = band.block_shapes[0], []
        for down in range(-(-band.height // rows)):
            for across in range(-(-band.width // cols)):
                named = (f"BLOCK_OFFSET_{across}_{down}", f"BLOCK_SIZE_{across}_{down}")
                places.append([int(band.get_tag_item(name, "TIFF", bidx=1)) for name in named])
        for offset, size in places:
            file.seek(offset)
            yield file.read(size)


def in_threads(body: Callable[[Any], Any], items: Sequence[Any]) -> float:
    """Seconds for all items in the usual number of threads, each taking an even share at once."""
    shares = [items[first::WORKERS] for first in range(WORKERS)]
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(len, shares))  # threads are started
        started_s = time.perf_counter()
        list(pool.map(lambda share: [body(item) for item in share] and None, shares))
        return time.perf_counter() - started_s


def measure_floor(spec: TileSpec, ours: Path) -> dict[str, float]:
    """The least that decompressing every block and compressing every array can take here, all of it in memory."""
    from isal import isal_zlib

    decompress_s = sum(in_threads(isal_zlib.decompress, list(block_bytes(band.path))) for band in spec.facts.bands)
    files = sorted(ours.rglob("*.npz"))
    step = max(1, len(files) // _FLOOR_TILES)
    arrays = []
    for file in files[::step]:
        with np.load(file) as tile:
            arrays.append({name: tile[name] for name in ("bands", "mask")})
    values = sum(one["bands"].size for one in arrays)
    compress_s = in_threads(lambda one: encode_npz(one, compress="isal"), arrays)
    compress_s *= spec.facts.num_pixels * spec.facts.num_bands / values
    return {"decompress_s": decompress_s, "compress_s": compress_s, "floor_s": decompress_s + compress_s}


def stage_table(results: Sequence[StripResult]) -> dict[str, dict[str, float]]:
    """Seconds (of all workers together), share and calls of each stage, by the engine's own clocks."""
    seconds = {stage: sum(one.seconds.get(stage, 0.0) for one in results) for stage in STAGES}
    calls = {stage: sum(one.calls.get(stage, 0) for one in results) for stage in STAGES}
    total_s = sum(seconds.values()) or 1.0
    return {
        stage: {"seconds": round(seconds[stage], 3), "share": round(seconds[stage] / total_s, 4), "calls": calls[stage]}
        for stage in STAGES
    }


def predict_s(durations: Sequence[float], *, slots: int, ordered: bool) -> float:
    """When the last of these tasks ends, with `slots` workers and one more task handed out beyond them.

    In order, a task is handed out only when the one `slots + 1` before it and all earlier ones have ended.
    """
    free = [0.0] * slots
    ended: list[float] = []
    for number, duration in enumerate(durations):
        waited_for = ended[: max(0, number - slots)] if ordered else []
        worker = free.index(min(free))
        begun = max(free[worker], max(waited_for, default=0.0))
        free[worker] = begun + duration
        ended.append(free[worker])
    return max(ended)


def run_in_order(durations: Sequence[float], *, slots: int) -> None:
    """What an executor does whose results are taken in order, with as many tasks handed out as the engine has."""
    with ThreadPoolExecutor(slots) as pool:
        waiting: deque[Future[None]] = deque()
        for duration in durations:
            if len(waiting) > slots:
                waiting.popleft().result()
            waiting.append(pool.submit(time.sleep, duration))


def measure_order(*, tasks: int = 96) -> dict[str, float]:
    """Slow tiles planted among quick ones: what any order gains over order, measured and predicted."""
    durations = [_SLEEP_S * (_SLOW if number % 8 == 0 else 1) for number in range(tasks)]
    started_s = time.perf_counter()
    run_in_order(durations, slots=WORKERS)
    ordered_s = time.perf_counter() - started_s
    started_s = time.perf_counter()
    for outcome in InProcessEngine(WORKERS).map_unordered(time.sleep, durations):
        assert outcome.error is None
    unordered_s = time.perf_counter() - started_s
    predicted = {way: predict_s(durations, slots=WORKERS, ordered=way == "ordered") for way in ("ordered", "unordered")}
    return {
        "tasks": tasks,
        "ordered_s": round(ordered_s, 3),
        "unordered_s": round(unordered_s, 3),
        "gain": round(ordered_s / unordered_s, 3),
        "predicted_ordered_s": round(predicted["ordered"], 3),
        "predicted_unordered_s": round(predicted["unordered"], 3),
        "predicted_gain": round(predicted["ordered"] / predicted["unordered"], 3),
    }


def measure_layout(work: Path, layout: str, *, px: int, tile_px: int, repeat: int) -> dict[str, Any]:
    """Every way on one scene; passes alternate, so that a slow minute of the machine falls on all of them."""
    scene = mosaic_scene(work, px=px, layout=layout)
    folders = {name: work / "tiles" / name.replace(", ", "-").replace(" ", "-") for name in ("plain", *WAYS)}
    spec = open_scene(scene, tile_px=tile_px, to=folders["plain"])
    passes: dict[str, list[float]] = {name: [] for name in folders}
    sizes: dict[str, int] = {}
    stages: dict[str, Any] = {}
    equality: dict[str, int] = {}
    for number in range(repeat):
        _, seconds = timed(folders["plain"], lambda: run_plainly(spec))
        passes["plain"].append(seconds)
        sizes["plain"] = size_of(folders["plain"])
        for name, way in WAYS.items():
            placed = replace(spec, folder=str(folders[name]))
            results, seconds = timed(folders[name], lambda placed=placed, way=way: run_way(placed, way))
            passes[name].append(seconds)
            sizes[name], stages[name] = size_of(folders[name]), stage_table(results)
            if name == CHOSEN and number == 0:
                equality = compare_tiles(folders["plain"], folders[CHOSEN])
            if name != CHOSEN:
                shutil.rmtree(folders[name])
    floor = measure_floor(spec, folders[CHOSEN])
    shutil.rmtree(work / "tiles")
    return figures_of(passes, sizes, stages, equality, floor, raw_bytes=2 * spec.facts.num_pixels * spec.facts.num_bands)


def figures_of(
    passes: dict[str, list[float]],
    sizes: dict[str, int],
    stages: dict[str, Any],
    equality: dict[str, int],
    floor: dict[str, float],
    *,
    raw_bytes: int,
) -> dict[str, Any]:
    seconds = {name: statistics.median(found) for name, found in passes.items()}
    ways = {
        name: {
            "seconds": round(seconds[name], 3),
            "ratio": round(seconds["plain"] / seconds[name], 2),
            "size_ratio": round(sizes[name] / sizes["plain"], 3),
            "mb_per_s": round(raw_bytes / 1e6 / seconds[name], 1),
            "passes_s": [round(one, 2) for one in passes[name]],
        }
        for name in passes
    }
    return {
        "ways": ways,
        "ratio": ways[CHOSEN]["ratio"],
        "size_ratio": ways[CHOSEN]["size_ratio"],
        "equality": equality,
        "parallel_efficiency": round(seconds[SINGLE] / (WORKERS * seconds[CHOSEN]), 3),
        "floor": {name: round(value, 3) for name, value in floor.items()},
        "floor_share": round(floor["floor_s"] / seconds[CHOSEN], 3),
        "stages": {name: stages[name] for name in (SINGLE, CHOSEN)},
    }


def measure_command(work: Path, layout: str, *, px: int, tile_px: int) -> dict[str, Any]:
    """The whole command from the shell to its exit, and what `unchoke profile tile` says of the same scene."""
    scene = mosaic_scene(work, px=px, layout=layout)
    out = work / "command-out"
    shutil.rmtree(out, ignore_errors=True)
    options = ("--mask", MASK, "--tile-size", str(tile_px), "--bands", ",".join(BANDS), "--out", str(out))
    tiled, wall_s = unchoke("tile", str(scene), *options)
    profiled, _ = unchoke("profile", "tile", str(scene), *options)
    shutil.rmtree(out)
    shares = {way: {row["stage"]: round(row["share"], 4) for row in profiled[way]} for way in ("before", "after")}
    return {
        "tiles": tiled["tiles"],
        "wall_s": round(wall_s, 2),
        "profile_shares": shares,
        "profile_ratio": round(profiled["ratio"], 2),
    }


def show(layout: str, figures: dict[str, Any]) -> None:
    """A table for whoever watches; the figures themselves go to stdout as JSON."""
    rows = [
        (name, f"{one['seconds']:.2f}", f"{one['ratio']:.2f}", f"{one['size_ratio']:.2f}", f"{one['mb_per_s']:.0f}")
        for name, one in figures["ways"].items()
    ]
    table = columns(rows, header=(layout, "seconds", "times as fast", "size", "MB/s of pixels"), right=(1, 2, 3, 4))
    print(f"{table}\nfloor {figures['floor']['floor_s']:.2f} s, equal {figures['equality']}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default="bench-out")
    parser.add_argument("--px", type=int, default=8000)
    parser.add_argument("--tile", type=int, default=512)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--layouts", nargs="+", choices=list(LAYOUTS), default=list(LAYOUTS))
    parser.add_argument("--no-command", action="store_true", help="leave out the whole command and its profile")
    args = parser.parse_args()
    work = Path(args.folder)
    work.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {"px": args.px, "tile_px": args.tile, "bands": len(BANDS), "slow_tiles": measure_order()}
    for layout in args.layouts:
        figures[layout] = measure_layout(work, layout, px=args.px, tile_px=args.tile, repeat=args.repeat)
        if not args.no_command:
            figures[layout]["command"] = measure_command(work, layout, px=args.px, tile_px=args.tile)
        show(layout, figures[layout])
    versions = {"rasterio": version("rasterio"), "isal": version("isal"), "gdal": rasterio.__gdal_version__}
    say("tile", **figures, versions=versions)


if __name__ == "__main__":
    main()
