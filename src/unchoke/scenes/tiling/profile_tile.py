"""`unchoke profile tile`: where tiling the user's own scenes spends its time, the plain way and this one, from a real profile.

In: scenes and the settings of `unchoke tile`. Out: two tables of stages on the same sample of windows, both ways timed without
the profiler, findings, and two `.prof` files for snakeviz below `logs/profiler/`. The tiles go to a folder that is removed;
settings are not remembered.
"""

from __future__ import annotations

import cProfile
import marshal
import os
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from unchoke.core import atomic
from unchoke.core.boxes import Box
from unchoke.core.events import OnEvent
from unchoke.core.findings import Finding, rank
from unchoke.core.setting_values import refuse_number
from unchoke.core.settings import typed_options
from unchoke.core.stages import Marker, profile_rows, self_seconds
from unchoke.core.workspace import out_option
from unchoke.jobs.job_engines import InProcessEngine
from unchoke.runs.session import Session, open_session
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.scene_facts import SceneFacts
from unchoke.scenes.tiling.plain_tile import PLAIN_MARKERS, PlainTiler
from unchoke.scenes.tiling.shared_blocks import SharedRows
from unchoke.scenes.tiling.tile_choices import (
    choose_masks,
    choose_recipe,
    choose_scales,
    choose_workers,
    open_for_tiles,
    scratch_folder,
    tile_specs,
    tiles_folder,
)
from unchoke.scenes.tiling.tile_profile import StageTables, TileProfile, diagnose_tiling
from unchoke.scenes.tiling.tiles import TileSpec, TileStrip, plan_strips, reading_box, run_strip, shared_rows

WINDOWS = 24
_MOST_SCENES = 4
_TILES = "scenes/tiling/tiles.py"
ENGINE_MARKERS = (
    Marker("open", "rasterio/__init__.py", "open"),
    Marker("open", "scenes/handles.py", "open", counted=False),
    Marker("open", _TILES, "open", counted=False),
    Marker("read", "scenes/raster.py", "read_box"),
    Marker("read", _TILES, "_read_strip", counted=False),
    Marker("normalise", _TILES, "_values"),
    Marker("mask", "scenes/mask_sources.py", "mask"),
    Marker("mask", _TILES, "_count_classes", counted=False),
    Marker("write", "scenes/npz.py", "write_npz"),
)


def profile_tile(
    data: str | Path | None = None,
    *,
    out: str | Path | None = None,
    windows: int = WINDOWS,
    on_event: OnEvent | None = None,
    **typed: Any,
) -> TileProfile:
    """Where tiling your scenes spends its time, the plain way and this one: a real profile, with .prof files for snakeviz.

    Args:
        data: Band files or multi-band files in folders, a large image, or a table. Left out, what this workspace was made for.
        windows: How many windows to measure.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Returns:
        The stages of both ways with their seconds, and whether their tiles are equal.

    Example:
        >>> unchoke.profile_tile("scenes/", out="tiled", windows=4, tile_size=64).equal
        True
    """
    refuse_number("--windows", windows, example=str(WINDOWS))
    given = {"data": data, **typed}
    with (
        open_session(given, out=out, on_event=on_event, remembering=False) as session,
        scratch_folder(session) as scratch,
    ):
        workers = choose_workers(session)
        sampled, findings = _sample_windows(session, windows=windows, workers=workers, folder=scratch / "after")
        command = f"unchoke tile {shlex.join(typed_options(given))}{out_option(session.workspace.root)}"
        return _measure(session, _Ways(sampled, scratch), findings, threads=workers, command=command)


@dataclass(frozen=True)
class SceneSample:
    """Windows of one scene that lie beside each other, as the strips that `unchoke tile` would read."""

    spec: TileSpec
    strips: tuple[TileStrip, ...]

    @property
    def boxes(self) -> list[Box]:
        return [window.box for strip in self.strips for window in strip.windows]


def _sample_windows(session: Session, *, windows: int, workers: int, folder: Path) -> tuple[list[SceneSample], list[Finding]]:
    """Windows from the middle of a few scenes, spread over the list of them; and what was found on the way.

    Tiles made of them would go to `folder`. None is skipped as empty, so that both ways make the same ones. What has to be
    measured first (constants of scenes, how to write) is kept where `unchoke tile` finds it again.
    """
    kept = tiles_folder(session)
    with closing(HandlePool()) as pool:
        facts, findings = open_for_tiles(session, pool=pool, threads=workers)
        facts = _spread(facts, min(windows, _MOST_SCENES))
        scales, facts, findings = choose_scales(session, facts, findings, pool=pool, threads=workers, file=kept / "scales.json")
        recipe = choose_recipe(session, facts, scales, pool=pool, workers=workers, root=kept)
    specs = [
        replace(spec, folder=str(folder / spec.facts.scene_id), min_valid=0.0)
        for spec in tile_specs(session, facts, scales, choose_masks(session, facts), recipe)
    ]
    share = -(-windows // len(specs))
    return [SceneSample(spec, take_strips(spec, share, workers=workers)) for spec in specs], findings


def _spread(items: Sequence[SceneFacts], count: int) -> list[SceneFacts]:
    """`count` items at even distances, the first among them; all, where there are no more."""
    return [items[number * len(items) // count] for number in range(count)] if len(items) > count else list(items)


def take_strips(spec: TileSpec, windows: int, *, workers: int = 1) -> tuple[TileStrip, ...]:
    """TileStrips from the middle of a scene, with so many windows in all (fewer where it has no more), evenly for all workers.

    From the middle, because the rims of a scene are often empty, which any way of tiling is quick at.
    """
    strips = plan_strips(spec.facts, spec)
    needed = -(-windows // max(len(strip.windows) for strip in strips))
    count = min(len(strips), -(-needed // workers) * workers)
    first = (len(strips) - count) // 2
    taken: list[TileStrip] = []
    for place, strip in enumerate(strips[first : first + count]):
        left = windows - sum(len(one.windows) for one in taken)
        chosen = strip.windows[: -(-left // (count - place))]
        if chosen:
            taken.append(replace(strip, windows=chosen, box=reading_box(chosen, spec.facts.grid)))
    return tuple(taken)


class _Ways:
    """The same windows, cut the plain way and the way of `unchoke tile`."""

    def __init__(self, sampled: Sequence[SceneSample], scratch: Path) -> None:
        self.sampled = sampled
        self._scratch = scratch

    def plainly(self) -> list[Path]:
        """One window after the other; the files in order."""
        tilers = [
            (PlainTiler(one.spec.facts, one.spec.scale, one.spec.mask, self._scratch / "before" / one.spec.facts.scene_id), one)
            for one in self.sampled
        ]
        return [file for tiler, one in tilers for file in tiler.run(one.boxes)]

    def strips(self, *, threads: int = 1) -> list[Path]:
        """Strip by strip, from files that are not open yet; the files in the order of the windows."""
        pool = HandlePool()
        strips = [strip for _, strip in self._in_order()]
        body = _StripBody(pool, shared_rows([one.spec for one in self.sampled], strips))
        tasks = [(number, one.spec, strip) for number, (one, strip) in enumerate(self._in_order())]
        try:
            outcomes = list(InProcessEngine(threads).map_unordered(body, tasks))
        finally:
            pool.close()
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
        by_number = {outcome.task[0]: outcome.value or [] for outcome in outcomes}
        return [file for number in sorted(by_number) for file in by_number[number]]

    def _in_order(self) -> Iterator[tuple[SceneSample, TileStrip]]:
        return ((one, strip) for one in self.sampled for strip in one.strips)


@dataclass(frozen=True)
class _StripBody:
    """Runs one strip; the files it wrote, in order."""

    pool: HandlePool
    shared: SharedRows

    def __call__(self, task: tuple[int, TileSpec, TileStrip]) -> list[Path]:
        _, spec, strip = task
        result = run_strip(strip, spec, pool=self.pool, shared=self.shared)
        return [Path(spec.folder, record.file) for record in result.records]


def _measure(session: Session, ways: _Ways, findings: list[Finding], *, threads: int, command: str) -> TileProfile:
    workspace = session.workspace
    files = {way: workspace.logs / "profiler" / f"tile_{way}.prof" for way in ("before", "after")}
    with session.stage("after", "as `unchoke tile` does it"):
        ways.strips()  # once for nothing: neither way is to pay for a disk that the other one warmed up
        after = _profiled(ways.strips, files["after"])
        ours, one_thread_s = _timed(ways.strips)
        _, after_s = _timed(lambda: ways.strips(threads=threads))
    with session.stage("before", "the plain serial way"):
        before = _profiled(ways.plainly, files["before"])
        plain, before_s = _timed(ways.plainly)
    tables = StageTables(
        profile_rows(before, PLAIN_MARKERS),
        profile_rows(after, ENGINE_MARKERS),
        windows=len(plain),
        zlib_s=self_seconds(before, ("zlib.Compress",)),
        compress=ways.sampled[0].spec.compress,
        store=session.settings.store,
    )
    return TileProfile(
        workspace=workspace.root,
        windows=len(plain),
        tile_px=ways.sampled[0].spec.size_px,
        scenes=[one.spec.facts.scene_id for one in ways.sampled],
        threads=threads,
        before=list(tables.before),
        after=list(tables.after),
        seconds={"before": before_s, "after": after_s, "after_one_thread": one_thread_s},
        size_ratio=sum(map(os.path.getsize, ours)) / max(1, sum(map(os.path.getsize, plain))),
        equal=None if session.settings.store == "raw" else all(map(_equal, plain, ours)),
        files=files,
        findings=rank([*findings, *diagnose_tiling(tables, command=command)]),
        choices=session.choices,
        next_command=command,
    )


def _profiled(body: Callable[[], object], file: Path) -> cProfile.Profile:
    """Run it under cProfile, in this thread, and keep what snakeviz reads."""
    profile = cProfile.Profile()
    profile.runcall(body)
    profile.create_stats()
    stats = profile.stats
    atomic.write_with(file, lambda target: marshal.dump(stats, target))
    return profile


def _timed(body: Callable[[], list[Path]]) -> tuple[list[Path], float]:
    started_s = time.perf_counter()
    files = body()
    return files, time.perf_counter() - started_s


def _equal(plain: Path, ours: Path) -> bool:
    """Whether both files hold the same bands and mask, bit for bit."""
    with np.load(plain) as before, np.load(ours) as after:
        return all(name in after and np.array_equal(before[name], after[name]) for name in before.files)
