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
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unchoke.core import atomic
from unchoke.core.choices import Choice
from unchoke.core.events import OnEvent
from unchoke.core.findings import Finding, rank
from unchoke.core.settings import typed_options
from unchoke.core.stages import Marker, StageRow, profile_rows, self_seconds
from unchoke.core.workspace import out_option
from unchoke.jobs.job_engines import InProcessEngine
from unchoke.runs.session import Session, open_session
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.tiling.plain_tile import PLAIN_MARKERS, PlainTiler
from unchoke.scenes.tiling.shared_blocks import SharedRows
from unchoke.scenes.tiling.tile_choices import choose_workers
from unchoke.scenes.tiling.tile_profile import Measured, diagnose_tiling, render_tile_profile
from unchoke.scenes.tiling.tile_sample import Sampled, sample_windows
from unchoke.scenes.tiling.tiles import Strip, TileSpec, run_strip, shared_rows

WINDOWS = 24
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


@dataclass(frozen=True)
class TileProfile:
    """What was measured. `before` is the plain serial way, `after` the one of `unchoke tile`; `ratio` is of their wall-clock."""

    workspace: Path
    windows: int
    tile_px: int
    scenes: list[str]
    threads: int
    before: list[StageRow]
    after: list[StageRow]
    seconds: dict[str, float]
    size_ratio: float
    equal: bool | None
    """Whether bands and masks of both ways are the same; None where tiles hold the files' own numbers."""
    files: dict[str, Path]
    findings: list[Finding]
    choices: list[Choice]
    next_command: str

    ok = True

    @property
    def ratio(self) -> float:
        return self.seconds["before"] / max(1e-9, self.seconds["after"])

    @property
    def ratio_one_thread(self) -> float:
        return self.seconds["before"] / max(1e-9, self.seconds["after_one_thread"])

    def to_dict(self) -> dict[str, Any]:
        return {
            "workspace": str(self.workspace),
            "windows": self.windows,
            "tile_px": self.tile_px,
            "scenes": self.scenes,
            "threads": self.threads,
            "before": [row.to_dict() for row in self.before],
            "after": [row.to_dict() for row in self.after],
            "seconds": self.seconds,
            "ratio": self.ratio,
            "ratio_one_thread": self.ratio_one_thread,
            "size_ratio": self.size_ratio,
            "equal": self.equal,
            "files": {way: str(file) for way, file in self.files.items()},
            "findings": [finding.to_dict() for finding in self.findings],
            "choices": [choice.to_dict() for choice in self.choices],
            "next_command": self.next_command,
        }

    def to_text(self) -> str:
        return render_tile_profile(self.to_dict())


def profile_tile(
    data: str | Path | None = None,
    *,
    out: Path | str | None = None,
    windows: int = WINDOWS,
    on_event: OnEvent | None = None,
    **typed: Any,
) -> TileProfile:
    """Profile `windows` windows of the scenes in `data` both ways; the settings are those of `tile`."""
    given = {"data": data, **typed}
    with (
        open_session(given, out=out, on_event=on_event, remembering=False) as session,
        _scratch(session.workspace.root) as scratch,
    ):
        workers = choose_workers(session)
        sampled, findings = sample_windows(session, windows=windows, workers=workers, folder=scratch / "after")
        command = f"unchoke tile {shlex.join(typed_options(given))}{out_option(session.workspace.root)}"
        return _measure(session, _Ways(sampled, scratch), findings, threads=workers, command=command)


@contextmanager
def _scratch(root: Path) -> Iterator[Path]:
    """A folder on the workspace's disk that is removed afterwards; after a kill, by the next command."""
    with tempfile.TemporaryDirectory(dir=root, prefix=atomic.TEMPORARY_PREFIX, suffix=atomic.TEMPORARY_SUFFIX) as name:
        yield Path(name)


class _Ways:
    """The same windows, cut the plain way and the way of `unchoke tile`."""

    def __init__(self, sampled: Sequence[Sampled], scratch: Path) -> None:
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

    def _in_order(self) -> Iterator[tuple[Sampled, Strip]]:
        return ((one, strip) for one in self.sampled for strip in one.strips)


@dataclass(frozen=True)
class _StripBody:
    """Runs one strip; the files it wrote, in order."""

    pool: HandlePool
    shared: SharedRows

    def __call__(self, task: tuple[int, TileSpec, Strip]) -> list[Path]:
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
    measured = Measured(
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
        before=list(measured.before),
        after=list(measured.after),
        seconds={"before": before_s, "after": after_s, "after_one_thread": one_thread_s},
        size_ratio=sum(map(os.path.getsize, ours)) / max(1, sum(map(os.path.getsize, plain))),
        equal=None if session.settings.store == "raw" else all(map(_equal, plain, ours)),
        files=files,
        findings=rank([*findings, *diagnose_tiling(measured, command=command)]),
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
