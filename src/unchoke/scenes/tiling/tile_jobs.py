"""Tiling as resumable jobs: one job for each strip of windows; its artefact is a small JSON that lists the tiles.

Tiles made another way lie in another folder, so nothing that is finished is overwritten by something else. A scene that cannot be
read fails by itself: its strips record why, and the others go on. Jobs run in threads that share decoded blocks, or in processes
where that is asked for. With --on they run on the nodes of a cluster: a node that sees a scene's files reads them, any other is
sent them once.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from unchoke.core import atomic
from unchoke.core.checksums import verify_archive
from unchoke.core.choices import Choice
from unchoke.core.errors import DamagedFile, MachineError
from unchoke.core.fingerprint import digest
from unchoke.core.input_file import parse_json, read_plain
from unchoke.core.units import format_bytes
from unchoke.data.file_findings import measure_room
from unchoke.jobs.cluster.file_transfer import marked
from unchoke.jobs.cluster.hosts import one_for_each_node
from unchoke.jobs.cluster.node_work import Courier, NodeErrand, NodeReady, NodeWork, nodes_choice
from unchoke.jobs.cluster.ray_engine import RayEngine
from unchoke.jobs.job_engines import InProcessEngine, ProcessEngine
from unchoke.jobs.job_plan import Job
from unchoke.jobs.queue import JobQueue
from unchoke.jobs.records import DoneRecord, JobResult
from unchoke.jobs.run_jobs import run_jobs
from unchoke.runs.session import Session
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.mask_sources import files_to_send
from unchoke.scenes.raster import raw_dtype
from unchoke.scenes.scene_facts import SceneError
from unchoke.scenes.tiling.shared_blocks import SharedBlocks
from unchoke.scenes.tiling.tiles import TileRecord, TileSpec, TileStrip, plan_strips, run_strip

_FORMAT = 1
"""Goes up when the same scenes and settings give other bytes."""


@dataclass(frozen=True)
class StripJob:
    """A job, and the strip whose tiles it makes. The folder in `spec` counts from the folder of all tiles."""

    job: Job
    spec: TileSpec
    strip: TileStrip

    @property
    def plain_bytes(self) -> int:
        """What the arrays of its tiles take without compression."""
        facts, spec = self.spec.facts, self.spec
        dtype = raw_dtype(facts) if spec.store == "raw" else np.dtype(np.float32)
        pixel_bytes = facts.num_bands * dtype.itemsize + 1 + (spec.mask is not None)
        return sum(window.box.height * window.box.width for window in self.strip.windows) * pixel_bytes


@dataclass(frozen=True)
class StripRecord:
    """What a strip's artefact holds: its tiles, or why there are none and which file is to blame."""

    tiles: tuple[TileRecord, ...] = ()
    failed: str = ""
    path: str = ""


@dataclass(frozen=True)
class StripState:
    """Which strips are done. `problems` are sentences about artefacts and tiles that no longer count."""

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


def plan_jobs(specs: Sequence[TileSpec], *, fingerprint: str) -> dict[str, StripJob]:
    """A job for each strip by its id, in the order they should run: scenes with large strips first.

    Strips of one scene stay in order, so that those which share blocks run close together. The tiles of a scene go to a folder
    that is named after the scene and the way they are made.
    """
    strips = {spec.facts.scene_id: plan_strips(spec.facts, spec) for spec in specs}

    def order(spec: TileSpec) -> tuple[int, str]:
        largest = max(strip.box.height * strip.box.width for strip in strips[spec.facts.scene_id])
        return -largest * spec.facts.num_bands, spec.facts.scene_id

    jobs: dict[str, StripJob] = {}
    ordinal = 0
    for spec in sorted(specs, key=order):
        key = tiles_key(spec)
        placed = replace(spec, folder=f"{spec.facts.scene_id}/{spec.size_px}px-{key[:8]}")
        for strip in strips[spec.facts.scene_id]:
            items = tuple(window.tile_id for window in strip.windows)
            contents = (key[:16],) * len(items)
            job_id, output = f"{key[:12]}-{strip.number:05d}", f"{placed.folder}/strip_{strip.number:04d}.json"
            job = Job.of(job_id, ordinal, items, contents, output=output, fingerprint=fingerprint)
            jobs[job.job_id] = StripJob(job, placed, strip)
            ordinal += len(items)
    return jobs


def find_state(queue: JobQueue, jobs: Sequence[Job], *, fingerprint: str) -> StripState:
    """Which of `jobs` are done, with every tile in place and of the recorded size; the rest is pending, in the given order."""
    known = queue.state(fingerprint)
    gone = {job.output for job in queue.jobs(fingerprint)} - {job.output for job in jobs}
    # tiles made of what the scenes were before may be deleted without a note
    state = StripState(problems=[problem for problem in known.problems if problem.partition(" ")[0] not in gone])
    for job in jobs:
        done, file = known.done.get(job.job_id), queue.artefact(job)
        record = load_strip(file) if done is not None and not done.failed_items else None
        fault = None if done is None or record is None else _missing_tile(file.parent, record, done)
        if done is None or record is None or fault is not None:
            state.pending.append(job)
            state.problems.extend([f"{fault}; its strip will be done again"] if fault else [])
        else:
            state.done[job.job_id], state.records[job.job_id] = done, record
    return state


def _missing_tile(folder: Path, record: StripRecord, done: DoneRecord) -> str | None:
    """A sentence about the first tile that is not as it was written; those touched since then are read for that."""
    finished_s = datetime.fromisoformat(done.finished_at).timestamp()
    for tile in (one for one in record.tiles if not one.skipped):
        file, name = folder / tile.file, f"{tile.file} of {folder.parent.name}"
        try:
            found = file.stat()
            if found.st_size != tile.size_bytes:
                return f"{name} has {found.st_size:,} bytes instead of {tile.size_bytes:,}"
            if found.st_mtime > finished_s:
                verify_archive(file)
                if not zipfile.is_zipfile(file):
                    return f"{name} is damaged"
        except FileNotFoundError:
            return f"{name} is gone"
        except DamagedFile:
            return f"{name} is damaged"
    return None


def load_strip(file: Path) -> StripRecord | None:
    """What a strip's artefact holds; None for one that is gone or cannot be read, which the queue's checksum shows as well."""
    try:
        found = parse_json(read_plain(file))
        tiles = tuple(TileRecord.from_dict(tile) for tile in found["tiles"])
        return StripRecord(tiles, str(found["failed"]), str(found["path"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True)
class StripBody:
    """What a job does. Picklable as long as `pool` and `shared` are None, as they are for processes: each has its own.

    `restore_names` rewrites texts that name files: on another machine they may lie under other names.
    """

    root: Path
    work: Mapping[str, StripJob]
    pool: HandlePool | None = None
    shared: SharedBlocks | None = None
    restore_names: Callable[[str], str] = str

    def __call__(self, job: Job) -> JobResult:
        """Write the strip's tiles, then the record that lists them. A scene that cannot be read is recorded, not raised."""
        work = self.work[job.job_id]
        try:
            result = run_strip(work.strip, work.spec, root=self.root, pool=self.pool, shared=self.shared)
        except SceneError as error:
            reason = self.restore_names(f"{error.what}: {error.why}")
            atomic.write_json(self.root / job.output, {"failed": reason, "path": self.restore_names(error.path), "tiles": []})
            return JobResult(0, failed_items=tuple((item, reason) for item in job.items))
        tiles = [tile.to_dict() for tile in result.records]
        atomic.write_json(self.root / job.output, {"failed": "", "path": "", "tiles": tiles})
        num_written = sum(not tile.skipped for tile in result.records)
        clocks = {stage: [round(seconds, 6), result.calls.get(stage, 0)] for stage, seconds in result.seconds.items()}
        return JobResult(num_written, info={"clocks": clocks})


class NodeTiling(NodeWork):
    """Makes the tiles of strips on a node; the threads of a host share what is open."""

    def prepare(self, ready: NodeReady) -> NodeReady:
        self._pool = HandlePool()
        return ready

    def run(self, task: StripJob, folder: Path) -> JobResult:
        result = StripBody(folder, {task.job.job_id: task}, self._pool, restore_names=self.restore_names)(task.job)
        return replace(result, info={**result.info, "node": self.ready.node})


class _StripCourier(Courier):
    """Packs a job's strip, with the files of its scene where the node does not see them."""

    def __init__(self, root: Path, work: Mapping[str, StripJob]) -> None:
        specs = {one.spec.facts.scene_id: one.spec for one in work.values()}
        self.files = [files_to_send(spec.facts, spec.mask) for spec in specs.values()]
        self._work = work
        super().__init__(self.files, needs=self._scene, into=lambda job: (root, job.output))

    def pack(self, task: Job, ready: NodeReady) -> NodeErrand[StripJob]:
        return replace(super().pack(task, ready), task=self._work[task.job_id])

    def _scene(self, job: Job) -> tuple[str]:
        return (self._work[job.job_id].spec.facts.scene_id,)


def run_work(
    session: Session, queue: JobQueue, work: Mapping[str, StripJob], state: StripState, *, pool: HandlePool, workers: int
) -> dict[str, str]:
    """Run what is pending; returns the reasons by job of those that were given up. Scenes that break are in their records."""
    pending, asked, cluster = state.pending, session.settings.parallel, session.cluster
    mine = {job.job_id: work[job.job_id] for job in pending}
    _refuse_no_room(session, list(mine.values()))
    counts: dict[str, Any] = {"jobs_before": len(state.done), "items_before": sum(len(work[one].job.items) for one in state.done)}

    def run(body: Callable[[Any], Any], engine: Any, **options: Any) -> dict[str, str]:
        kind: dict[str, Any] = {"stage": "tile", "unit": "tiles"}
        return run_jobs(queue, pending, body, engine=engine, on_event=session.on_event, **kind, **counts, **options).failed

    if cluster is not None:
        if asked is not None:
            session.warn(f"--parallel {asked} is for one machine: on a cluster a strip is a job of a node")
        courier = _StripCourier(queue.folder, mine)
        with marked(queue.folder) as shared:
            body = NodeTiling(home=shared, files=courier.files)
            plan = partial(one_for_each_node, gpus=False)
            engine = RayEngine(cluster, plan=plan, pack=courier.pack, unpack=courier.unpack, on_event=session.on_event)
            failed = run(body, engine, setup=body.set_up)
        ready = engine.facts.values()
        session.chose(nodes_choice(cluster.address, ready, cluster.refused, gives="have this unchoke", files="scenes"))
        return failed
    reason = "as asked" if asked else "GDAL and deflate release Python's lock, and threads share decoded blocks"
    session.chose(Choice("parallel", asked or "threads", reason))
    if asked == "processes":
        return run(StripBody(queue.folder, mine), ProcessEngine(workers))
    return run(StripBody(queue.folder, mine, pool, SharedBlocks()), InProcessEngine(workers))


def _refuse_no_room(session: Session, pending: Sequence[StripJob]) -> None:
    """Stop before anything is written if plain files cannot fit. What compressed or skipped tiles will take is not known."""
    need_bytes = sum(one.plain_bytes for one in pending if one.spec.compress == "none" and one.spec.min_valid == 0)
    root = session.workspace.root
    free_bytes = measure_room(root).disk_bytes
    if need_bytes > free_bytes:
        raise MachineError(
            f"the tiles would take {format_bytes(need_bytes)}, and {format_bytes(free_bytes)} are free at {root}",
            code="disk-too-small",
            why="they are written uncompressed, so their size is known beforehand",
            try_="--compress isal, --store raw, or another disk with --out DIR",
        )
