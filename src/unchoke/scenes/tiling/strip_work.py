"""Tiling as resumable jobs: one job for each strip of windows, its artefact a small JSON that lists the tiles.

Plans of scenes come in; jobs, a body that runs them in threads or processes, and the records of what was made go out. Tiles made
another way lie in another folder, so nothing that is finished is ever overwritten by something else. A scene that cannot be read
fails by itself: its strips say why, and the others go on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from unchoke.core import atomic
from unchoke.core.boxes import Box
from unchoke.core.fingerprint import digest
from unchoke.jobs.job_plan import Job, inputs_digest
from unchoke.jobs.queue import JobQueue
from unchoke.jobs.records import DoneRecord, JobResult
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.raster import raw_dtype
from unchoke.scenes.scene_facts import SceneError
from unchoke.scenes.tiling.block_rows import SharedRows
from unchoke.scenes.tiling.strips import Strip, TileSpec, plan_strips
from unchoke.scenes.tiling.tiles import StripResult, TileRecord, run_strip

_FORMAT = 1
"""Goes up when the same scenes and settings give other bytes."""


@dataclass(frozen=True)
class ScenePlan:
    """One scene's tiles: how they are made, in which strips, and where. `folder` is relative to the folder of all tiles."""

    spec: TileSpec
    strips: tuple[Strip, ...]
    key: str
    folder: str

    @property
    def scene_id(self) -> str:
        return self.spec.facts.scene_id


@dataclass(frozen=True)
class StripWork:
    """A strip, the plan of its scene, and the job that makes its tiles."""

    job: Job
    plan: ScenePlan
    strip: Strip

    @property
    def num_values(self) -> int:
        """Pixels of all bands: what the time it takes follows most."""
        return _num_values(self.plan, self.strip)

    @property
    def plain_bytes(self) -> int:
        """What the arrays of its tiles take without compression."""
        spec = self.plan.spec
        dtype = raw_dtype(spec.facts) if spec.store == "raw" else np.dtype(np.float32)
        pixel_bytes = spec.facts.num_bands * dtype.itemsize + 1 + (spec.mask is not None)
        return sum(window.box.height * window.box.width for window in self.strip.windows) * pixel_bytes


@dataclass(frozen=True)
class StripRecord:
    """What a strip's artefact says: its tiles, or why there are none and which file is to blame."""

    tiles: tuple[TileRecord, ...] = ()
    failed: str = ""
    path: str = ""


@dataclass(frozen=True)
class WorkState:
    """Where the strips stand. `problems` are sentences about artefacts and tiles that no longer count."""

    done: dict[str, DoneRecord] = field(default_factory=dict)
    records: dict[str, StripRecord] = field(default_factory=dict)
    pending: list[Job] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def tiles_key(spec: TileSpec) -> str:
    """A digest of everything the bytes of a scene's tiles depend on; where they are written is not among it."""
    facts = spec.facts
    return digest(
        {
            "format": _FORMAT,
            "scene": facts.scene_id,
            "content": facts.content,
            "grid": asdict(facts.grid),
            "bands": [[band.name, band.number, str(band.nodata), band.scale, band.offset] for band in facts.bands],
            "resampling": facts.resampling,
            "scale": spec.scale.to_dict(),
            "mask": None if spec.mask is None else spec.mask.describe(),
            "windows": [spec.size_px, spec.overlap_px, spec.edges, spec.min_valid],
            "file": [spec.compress, spec.store],
        }
    )


def plan_scene(spec: TileSpec, *, root: Path) -> ScenePlan:
    """The strips of one scene; its tiles go to a folder below `root` that is named after the scene and the way they are made."""
    key = tiles_key(spec)
    folder = f"{spec.facts.scene_id}/{spec.size_px}px-{key[:8]}"
    placed = replace(spec, folder=str(root / folder))
    return ScenePlan(placed, tuple(plan_strips(spec.facts, placed)), key, folder)


def plan_work(plans: Sequence[ScenePlan], *, fingerprint: str) -> dict[str, StripWork]:
    """A job for each strip by its id, in the order they should run: scenes with large strips first.

    Strips of one scene stay in order, so that those which share rows of blocks run close together.
    """
    cost = {plan.key: max(_num_values(plan, strip) for strip in plan.strips) for plan in plans}
    jobs: dict[str, StripWork] = {}
    ordinal = 0
    for plan in sorted(plans, key=lambda plan: (-cost[plan.key], plan.scene_id)):
        for strip in plan.strips:
            job = _job(plan, strip, first=ordinal, fingerprint=fingerprint)
            jobs[job.job_id] = StripWork(job, plan, strip)
            ordinal += len(strip.windows)
    return jobs


def _num_values(plan: ScenePlan, strip: Strip) -> int:
    return strip.box.height * strip.box.width * plan.spec.facts.num_bands


def num_values(work: Iterable[StripWork]) -> int:
    """Pixels of all bands in these strips."""
    return sum(one.num_values for one in work)


def _job(plan: ScenePlan, strip: Strip, *, first: int, fingerprint: str) -> Job:
    items = tuple(window.tile_id for window in strip.windows)
    contents = (plan.key[:16],) * len(items)
    return Job(
        job_id=f"{plan.key[:12]}-{strip.number:05d}",
        first=first,
        last=first + len(items) - 1,
        items=items,
        inputs=inputs_digest(fingerprint, items, contents),
        output=f"{plan.folder}/strip_{strip.number:04d}.json",
        contents=contents,
        fingerprint=fingerprint,
    )


def find_state(queue: JobQueue, jobs: Sequence[Job], *, fingerprint: str) -> WorkState:
    """Which of `jobs` are done, with every tile in place and of the recorded size; the rest is pending, in the given order."""
    known = queue.state(fingerprint)
    state = WorkState(problems=_about(known.problems, jobs, queue.jobs(fingerprint)))
    for job in jobs:
        done = known.done.get(job.job_id)
        record = load_strip(queue.artefact(job)) if done is not None and not done.failed_items else None
        fault = None if record is None else _missing_tile(queue.artefact(job).parent, record)
        if done is None or record is None or fault is not None:
            state.pending.append(job)
            state.problems.extend([f"{fault}; its strip will be done again"] if fault else [])
        else:
            state.done[job.job_id], state.records[job.job_id] = done, record
    return state


def _about(problems: Iterable[str], jobs: Iterable[Job], planned: Iterable[Job]) -> list[str]:
    """The problems that matter now: tiles made of what the scenes were before may be deleted without a word."""
    gone = {job.output for job in planned} - {job.output for job in jobs}
    return [problem for problem in problems if problem.partition(" ")[0] not in gone]


def _missing_tile(folder: Path, record: StripRecord) -> str | None:
    """A sentence about the first tile that is not as it was written."""
    for tile in record.tiles:
        if tile.skipped:
            continue
        try:
            size_bytes = (folder / tile.file).stat().st_size
        except FileNotFoundError:
            return f"{tile.file} of {folder.parent.name} is gone"
        if size_bytes != tile.size_bytes:
            return f"{tile.file} of {folder.parent.name} has {size_bytes:,} bytes instead of {tile.size_bytes:,}"
    return None


@dataclass(frozen=True)
class StripBody:
    """What a job does. Picklable as long as `pool` and `shared` are None, as they are for processes: each has its own."""

    folder: Path
    work: Mapping[str, tuple[TileSpec, Strip]]
    pool: HandlePool | None = None
    shared: SharedRows | None = None

    def __call__(self, job: Job) -> JobResult:
        """Write the strip's tiles, then the record that lists them. A scene that cannot be read is recorded, not raised."""
        spec, strip = self.work[job.job_id]
        started_s = time.perf_counter()
        try:
            result = run_strip(strip, spec, pool=self.pool, shared=self.shared)
        except SceneError as error:
            reason = f"{error.what}: {error.why}"
            atomic.write_json(self.folder / job.output, {"failed": reason, "path": error.path, "tiles": []})
            return JobResult(0, failed_items=tuple((item, reason) for item in job.items))
        tiles = [tile.to_dict() for tile in result.records]
        atomic.write_json(self.folder / job.output, {"failed": "", "path": "", "tiles": tiles})
        num_written = sum(not tile.skipped for tile in result.records)
        return JobResult(num_written, info={"clocks": clocks(result), "body_s": round(time.perf_counter() - started_s, 6)})


def clocks(result: StripResult) -> dict[str, list[float | int]]:
    """Seconds and calls of each stage, for the record of the job."""
    return {stage: [round(seconds, 6), result.calls.get(stage, 0)] for stage, seconds in result.seconds.items()}


def load_strip(file: Path) -> StripRecord | None:
    """What a strip's artefact says; None for one that is gone or cannot be read, which the queue's checksum tells as well."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        tiles = tuple(_tile_record(tile) for tile in found["tiles"])
        return StripRecord(tiles, str(found["failed"]), str(found["path"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _tile_record(value: dict[str, Any]) -> TileRecord:
    counts = {int(label): int(number) for label, number in value["class_counts"].items()}
    return TileRecord(**{**value, "box": Box(*value["box"]), "class_counts": counts})
