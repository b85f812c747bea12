"""Claims about cutting scenes into tiles: files kept open, and the work done in parallel.

The plain way is that of `scenes/tiling/plain_tile.py`: for every window every band is opened, read, divided and closed again, and
`np.savez_compressed` writes it. Everything here needs rasterio, which is imported when a claim is measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unchoke.core.timers import StageTimers
from unchoke.tuning.claims.claim import Measured, percent, possible_gain
from unchoke.tuning.claims.claim_bench import Bench
from unchoke.tuning.claims.claim_material import write_scene

if TYPE_CHECKING:
    from unchoke.core.boxes import Box
    from unchoke.scenes.scale import SceneScale
    from unchoke.scenes.scene_facts import SceneFacts
    from unchoke.scenes.tiling.tiles import TileSpec

_REPORTED_WORKERS = 6
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


def measure_handle_reuse(bench: Bench) -> Measured:
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
    return Measured.of(
        compared,
        equal=equal,
        equal_figure="every tile" if equal else "tiles DIFFER",
        why=why,
        shares=shares,
        read_ratio=read_gain,
        windows=len(scene.boxes),
    )


def measure_parallel_tiling(bench: Bench) -> Measured:
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
    return Measured.of(
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
