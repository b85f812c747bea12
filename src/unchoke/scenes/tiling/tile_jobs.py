"""Tiling as resumable jobs: one job for each strip of windows; its artefact is a small JSON that lists the tiles.

Tiles made another way lie in another folder, so nothing that is finished is overwritten by something else. A scene that cannot be
read fails by itself: its strips record why, and the others go on. Jobs run in threads or in processes, whichever is faster here;
that is measured only where the work takes long enough to pay for it, on the first strips themselves, whose tiles count. With
--on they run on the nodes of a cluster: a node that sees a scene's files reads them, any other is sent them once.
"""

from __future__ import annotations

import json
import time
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
from unchoke.core.events import Event, Progress
from unchoke.core.fingerprint import digest
from unchoke.core.input_file import read_plain
from unchoke.core.units import format_bytes, format_seconds
from unchoke.data.file_findings import measure_room
from unchoke.jobs.cluster.connection import Cluster
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
_VALUES_PER_S = 25_000_000
"""What one core reads, normalises and packs in a second, roughly: only to tell minutes from seconds."""
_TRIAL_PAYS_S = 60.0
_TRIAL_STRIPS = 2
"""For each worker, each way."""
_WORTH_CHANGING = 1.1
"""Processes must be so much faster than threads: less may be noise."""


@dataclass(frozen=True)
class StripJob:
    """A job, and the strip whose tiles it makes. The folder in `spec` counts from the folder of all tiles."""

    job: Job
    spec: TileSpec
    strip: TileStrip

    @property
    def num_values(self) -> int:
        """Pixels of all bands: what the time it takes follows most."""
        return self.strip.box.height * self.strip.box.width * self.spec.facts.num_bands

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
        found = json.loads(read_plain(file))
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
        work, started_s = self.work[job.job_id], time.perf_counter()
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
        return JobResult(num_written, info={"clocks": clocks, "body_s": round(time.perf_counter() - started_s, 6)})


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
    _refuse_no_room(session, [work[job.job_id] for job in state.pending])
    runner = _Runner(session, queue, work, pool, workers, len(state.done), sum(len(work[one].job.items) for one in state.done))
    pending, asked = list(state.pending), session.settings.parallel
    if session.cluster is not None:
        runner.run_on_nodes(session.cluster, pending)
        return runner.given_up
    estimated_s = sum(work[job.job_id].num_values for job in pending) / (_VALUES_PER_S * workers)
    num_trial = _TRIAL_STRIPS * workers
    if asked is not None:
        choice = Choice("parallel", asked, "as asked")
    elif workers == 1:
        choice = Choice("parallel", "threads", "one worker needs no other process")
    elif estimated_s > _TRIAL_PAYS_S and len(pending) > 4 * num_trial:
        threads, processes = (
            runner.run(pending[n * num_trial :][:num_trial], way) for n, way in enumerate(("threads", "processes"))
        )
        choice, pending = choose_parallel({"threads": threads, "processes": processes}), pending[2 * num_trial :]
    else:
        reason = f"GDAL and deflate release the lock; about {format_seconds(estimated_s)} of work is too little to measure more"
        choice = Choice("parallel", "threads", reason, {"estimated_s": round(estimated_s, 1)})
    session.chose(choice)
    runner.run(pending, str(choice.value))
    return runner.given_up


def choose_parallel(rates: Mapping[str, float]) -> Choice:
    """Threads unless processes are clearly faster; `rates` are values per second while all workers are busy."""
    table = ", ".join(f"{name} {rate / 1e6:.1f} M values/s" for name, rate in rates.items())
    evidence = {"values_per_s": {name: round(rate) for name, rate in rates.items()}}
    if rates["threads"] > 0 and rates["processes"] >= _WORTH_CHANGING * rates["threads"]:  # 0: nothing could be read there
        return Choice("parallel", "processes", f"measured faster on the first strips: {table}", evidence)
    return Choice("parallel", "threads", f"processes were not clearly faster on the first strips: {table}", evidence)


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


@dataclass
class _Runner:
    """Runs strips and keeps count over several calls."""

    session: Session
    queue: JobQueue
    work: Mapping[str, StripJob]
    pool: HandlePool
    workers: int
    jobs_done: int = 0
    tiles_done: int = 0
    given_up: dict[str, str] = field(default_factory=dict)

    def run(self, jobs: Sequence[Job], parallel: str) -> float:
        """Run `jobs`; values per second with every worker busy. What it takes to start processes is not counted."""
        busy_s: dict[str, float] = {}

        def count(job: Job, result: JobResult) -> None:
            if not result.failed_items:
                busy_s[job.job_id] = float(result.info["body_s"])

        mine = {job.job_id: self.work[job.job_id] for job in jobs}
        if parallel == "processes":
            self._run(jobs, StripBody(self.queue.folder, mine), ProcessEngine(self.workers), on_result=count)
        else:
            body = StripBody(self.queue.folder, mine, self.pool, SharedBlocks())
            self._run(jobs, body, InProcessEngine(self.workers), on_result=count)
        return self.workers * sum(mine[job_id].num_values for job_id in busy_s) / max(1e-9, sum(busy_s.values()))

    def run_on_nodes(self, cluster: Cluster, jobs: Sequence[Job]) -> None:
        if (asked := self.session.settings.parallel) is not None:
            self.session.warn(f"--parallel {asked} is for one machine: on a cluster a strip is a job of a node")
        courier = _StripCourier(self.queue.folder, {job.job_id: self.work[job.job_id] for job in jobs})
        with marked(self.queue.folder) as shared:
            body, tell = NodeTiling(home=shared, files=courier.files), self.session.on_event
            engine = RayEngine(
                cluster, plan=partial(one_for_each_node, gpus=False), pack=courier.pack, unpack=courier.unpack, on_event=tell
            )
            self._run(jobs, body, engine, setup=body.set_up)
        ready, gives = engine.facts.values(), "have this unchoke"
        self.session.chose(nodes_choice(cluster.address, ready, cluster.refused, gives=gives, files="scenes"))

    def _run(self, jobs: Sequence[Job], body: Callable[[Any], Any], engine: Any, **options: Any) -> None:
        counts: dict[str, Any] = {"jobs_before": self.jobs_done, "items_before": self.tiles_done}
        summary = run_jobs(
            self.queue, jobs, body, engine=engine, on_event=self._tell, stage="tile", unit="tiles", **counts, **options
        )
        self.jobs_done += len(jobs)
        self.tiles_done += sum(len(job.items) for job in jobs)
        self.given_up.update(summary.failed)

    def _tell(self, event: Event) -> None:
        """Progress counts towards all tiles, also while only some of the strips are being run."""
        if isinstance(event, Progress):
            total = sum(len(one.job.items) for one in self.work.values())
            left_s = (total - event.done) / event.rate_per_s if event.rate_per_s else None
            event = replace(event, total=total, left_s=left_s, extra={**event.extra, "jobs_total": len(self.work)})
        self.session.on_event(event)
