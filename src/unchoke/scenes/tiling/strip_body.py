"""The body of a tiling job: one strip of windows in, its tiles and the record that lists them out.

Which strips there are and where they run is the business of `strip_work.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from unchoke.core import atomic
from unchoke.jobs.job_plan import Job
from unchoke.jobs.records import JobResult
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.scene_facts import SceneError
from unchoke.scenes.tiling.shared_blocks import SharedRows
from unchoke.scenes.tiling.tiles import TileSpec, TileStrip, run_strip


@dataclass(frozen=True)
class StripBody:
    """What a job does. Picklable as long as `pool` and `shared` are None, as they are for processes: each has its own."""

    folder: Path
    work: Mapping[str, tuple[TileSpec, TileStrip]]
    pool: HandlePool | None = None
    shared: SharedRows | None = None
    told: Callable[[str], str] = str
    """How a text that names files is written down: elsewhere they may lie under other names."""

    def __call__(self, job: Job) -> JobResult:
        """Write the strip's tiles, then the record that lists them. A scene that cannot be read is recorded, not raised."""
        spec, strip = self.work[job.job_id]
        started_s = time.perf_counter()
        try:
            result = run_strip(strip, spec, pool=self.pool, shared=self.shared)
        except SceneError as error:
            reason = self.told(f"{error.what}: {error.why}")
            atomic.write_json(self.folder / job.output, {"failed": reason, "path": self.told(error.path), "tiles": []})
            return JobResult(0, failed_items=tuple((item, reason) for item in job.items))
        tiles = [tile.to_dict() for tile in result.records]
        atomic.write_json(self.folder / job.output, {"failed": "", "path": "", "tiles": tiles})
        num_written = sum(not tile.skipped for tile in result.records)
        clocks = {stage: [round(seconds, 6), result.calls.get(stage, 0)] for stage, seconds in result.seconds.items()}
        return JobResult(num_written, info={"clocks": clocks, "body_s": round(time.perf_counter() - started_s, 6)})
