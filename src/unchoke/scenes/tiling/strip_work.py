"""Tiling as resumable jobs: one job for each strip of windows, its artefact a small JSON that lists the tiles.

Plans of scenes come in; jobs, the records of what was made and the reasons of what was not go out. Tiles made another way lie in
another folder, so nothing that is finished is ever overwritten by something else. A scene that cannot be read fails by itself:
its strips say why, and the others go on. Jobs run in threads or in processes, whichever is faster here; that is measured only
where the work takes long enough to pay for it, on the first strips themselves, and what the trial makes counts. With --on they
run on the nodes of a cluster (`node_strips.py`).
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from unchoke.core.checksums import verify_archive
from unchoke.core.choices import Choice
from unchoke.core.errors import DamagedFile, MachineError
from unchoke.core.events import Event, Progress
from unchoke.core.fingerprint import digest
from unchoke.core.input_file import read_plain
from unchoke.core.units import format_bytes, format_seconds
from unchoke.data.resources import measure_room
from unchoke.jobs.cluster.connection import Cluster
from unchoke.jobs.job_engines import InProcessEngine, JobEngine, ProcessEngine
from unchoke.jobs.job_plan import Job, inputs_digest
from unchoke.jobs.queue import JobQueue
from unchoke.jobs.records import DoneRecord, JobResult
from unchoke.jobs.run_jobs import OnResult, run_jobs
from unchoke.runs.session import Session
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.raster import raw_dtype
from unchoke.scenes.tiling.node_strips import strips_on_nodes
from unchoke.scenes.tiling.strip_body import StripBody
from unchoke.scenes.tiling.tile_choices import choose_parallel
from unchoke.scenes.tiling.tiles import TileRecord, TileSpec, TileStrip, plan_strips, shared_rows

_FORMAT = 1
"""Goes up when the same scenes and settings give other bytes."""
THREADS, PROCESSES = "threads", "processes"
_VALUES_PER_S = 25_000_000
"""What one core reads, normalises and packs in a second, roughly: only to tell minutes from seconds."""
_TRIAL_PAYS_S = 60.0
_TRIAL_STRIPS = 2
"""For each worker, each way."""


@dataclass(frozen=True)
class ScenePlan:
    """One scene's tiles: how they are made, in which strips, and where. `folder` is relative to the folder of all tiles."""

    spec: TileSpec
    strips: tuple[TileStrip, ...]
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
    strip: TileStrip

    @property
    def num_values(self) -> int:
        """Pixels of all bands: what the time it takes follows most."""
        return self.strip.box.height * self.strip.box.width * self.plan.spec.facts.num_bands

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

    def largest(plan: ScenePlan) -> int:
        return max(strip.box.height * strip.box.width for strip in plan.strips) * plan.spec.facts.num_bands

    jobs: dict[str, StripWork] = {}
    ordinal = 0
    for plan in sorted(plans, key=lambda plan: (-largest(plan), plan.scene_id)):
        for strip in plan.strips:
            job = _job(plan, strip, first=ordinal, fingerprint=fingerprint)
            jobs[job.job_id] = StripWork(job, plan, strip)
            ordinal += len(strip.windows)
    return jobs


def num_values(work: Iterable[StripWork]) -> int:
    """Pixels of all bands in these strips."""
    return sum(one.num_values for one in work)


def _job(plan: ScenePlan, strip: TileStrip, *, first: int, fingerprint: str) -> Job:
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
        fault = None if done is None or record is None else _missing_tile(queue.artefact(job).parent, record, done)
        if done is None or record is None or fault is not None:
            state.pending.append(job)
            state.problems.extend([f"{fault}; its strip will be done again"] if fault else [])
        else:
            state.done[job.job_id], state.records[job.job_id] = done, record
    return state


def _about(problems: Iterable[str], jobs: Iterable[Job], planned: Iterable[Job]) -> list[str]:
    """The problems that matter now: tiles made of what the scenes were before may be deleted without a note."""
    gone = {job.output for job in planned} - {job.output for job in jobs}
    return [problem for problem in problems if problem.partition(" ")[0] not in gone]


def _missing_tile(folder: Path, record: StripRecord, done: DoneRecord) -> str | None:
    """A sentence about the first tile that is not as it was written; those touched since then are read for that."""
    finished_s = datetime.fromisoformat(done.finished_at).timestamp()
    for tile in record.tiles:
        if tile.skipped:
            continue
        try:
            found = (folder / tile.file).stat()
        except FileNotFoundError:
            return f"{tile.file} of {folder.parent.name} is gone"
        if found.st_size != tile.size_bytes:
            return f"{tile.file} of {folder.parent.name} has {found.st_size:,} bytes instead of {tile.size_bytes:,}"
        if found.st_mtime > finished_s and not _is_sound(folder / tile.file):
            return f"{tile.file} of {folder.parent.name} is damaged"
    return None


def _is_sound(tile: Path) -> bool:
    """Whether the arrays in a tile have the sums that were written with them."""
    try:
        verify_archive(tile)
    except DamagedFile:
        return False
    return zipfile.is_zipfile(tile)


def load_strip(file: Path) -> StripRecord | None:
    """What a strip's artefact says; None for one that is gone or cannot be read, which the queue's checksum tells as well."""
    try:
        found = json.loads(read_plain(file))
        tiles = tuple(TileRecord.from_dict(tile) for tile in found["tiles"])
        return StripRecord(tiles, str(found["failed"]), str(found["path"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def run_work(
    session: Session, queue: JobQueue, work: dict[str, StripWork], state: WorkState, *, pool: HandlePool, workers: int
) -> dict[str, str]:
    """Run what is pending; the reasons by job of those that were given up. Scenes that cannot be read are in their records."""
    refuse_no_room(session, [work[job.job_id] for job in state.pending])
    tiles_done = sum(len(work[job_id].job.items) for job_id in state.done)
    runner = _Runner(session, queue, work, pool, workers, jobs_done=len(state.done), tiles_done=tiles_done)
    pending, asked = list(state.pending), session.settings.parallel
    if session.cluster is not None:
        session.chose(runner.run_on_nodes(session.cluster, pending))
        return runner.given_up
    estimated_s = num_values(work[job.job_id] for job in pending) / (_VALUES_PER_S * workers)
    num_trial = _TRIAL_STRIPS * workers
    if asked is None and workers > 1 and estimated_s > _TRIAL_PAYS_S and len(pending) > 4 * num_trial:
        rates = {
            THREADS: runner.run(pending[:num_trial], THREADS),
            PROCESSES: runner.run(pending[num_trial : 2 * num_trial], PROCESSES),
        }
        choice, pending = choose_parallel(rates), pending[2 * num_trial :]
    else:
        choice = _unmeasured(asked, workers=workers, estimated_s=estimated_s)
    session.chose(choice)
    runner.run(pending, str(choice.value))
    return runner.given_up


def refuse_no_room(session: Session, pending: Sequence[StripWork]) -> None:
    """Stop before anything is written if plain files cannot fit. What compressed or skipped tiles will take is not known."""
    plain = [one for one in pending if one.plan.spec.compress == "none" and one.plan.spec.min_valid == 0]
    need_bytes = sum(one.plain_bytes for one in plain)
    root = session.workspace.root
    free_bytes = measure_room(root).disk_bytes
    if need_bytes > free_bytes:
        raise MachineError(
            f"the tiles would take {format_bytes(need_bytes)}, and {format_bytes(free_bytes)} are free at {root}",
            code="disk-too-small",
            why="they are written uncompressed, so their size is known beforehand",
            try_="--compress isal, --store raw, or another disk with --out DIR",
        )


def _unmeasured(asked: str | None, *, workers: int, estimated_s: float) -> Choice:
    if asked is not None:
        return Choice("parallel", asked, "as asked")
    if workers == 1:
        return Choice("parallel", THREADS, "one worker needs no other process")
    reason = f"GDAL and deflate let other threads run; about {format_seconds(estimated_s)} of work is too little to measure more"
    return Choice("parallel", THREADS, reason, {"estimated_s": round(estimated_s, 1)})


@dataclass
class _Runner:
    """Runs strips and keeps count over several calls."""

    session: Session
    queue: JobQueue
    work: dict[str, StripWork]
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

        engine: JobEngine = ProcessEngine(self.workers) if parallel == PROCESSES else InProcessEngine(self.workers)
        self._run(jobs, self._body(jobs, parallel), engine, count)
        done = num_values(self.work[job_id] for job_id in busy_s)
        return self.workers * done / max(1e-9, sum(busy_s.values()))

    def run_on_nodes(self, cluster: Cluster, jobs: Sequence[Job]) -> Choice:
        """Run `jobs` on the nodes of a cluster; which of them, and why. How they share the work is not tried out."""
        if (asked := self.session.settings.parallel) is not None:
            self.session.warn(f"--parallel {asked} is for one machine: on a cluster a strip is a job of a node")
        with strips_on_nodes(cluster, self.queue.folder, self._strips(jobs), on_event=self.session.on_event) as nodes:
            self._run(jobs, nodes.body, nodes.engine, lambda _job, _result: None, setup=nodes.body.set_up)
        return nodes.choice()

    def _run(
        self,
        jobs: Sequence[Job],
        body: Callable[[Any], Any],
        engine: JobEngine,
        on_result: OnResult,
        *,
        setup: Callable[[], Any] | None = None,
    ) -> None:
        summary = run_jobs(
            self.queue,
            jobs,
            body,
            engine=engine,
            on_event=self._tell,
            stage="tile",
            unit="tiles",
            on_result=on_result,
            setup=setup,
            jobs_before=self.jobs_done,
            items_before=self.tiles_done,
        )
        self.jobs_done += len(jobs)
        self.tiles_done += sum(len(job.items) for job in jobs)
        self.given_up.update(summary.failed)

    def _strips(self, jobs: Sequence[Job]) -> dict[str, tuple[TileSpec, TileStrip]]:
        mine = [self.work[job.job_id] for job in jobs]
        return {one.job.job_id: (one.plan.spec, one.strip) for one in mine}

    def _tell(self, event: Event) -> None:
        """Progress counts towards all tiles, also while only some of the strips are being run."""
        if isinstance(event, Progress):
            total = sum(len(one.job.items) for one in self.work.values())
            left_s = (total - event.done) / event.rate_per_s if event.rate_per_s else None
            event = replace(event, total=total, left_s=left_s, extra={**event.extra, "jobs_total": len(self.work)})
        self.session.on_event(event)

    def _body(self, jobs: Sequence[Job], parallel: str) -> StripBody:
        """Threads share open files and the rows of blocks that neighbours both need; processes have their own."""
        mine = [self.work[job.job_id] for job in jobs]
        strips = self._strips(jobs)
        if parallel == PROCESSES:
            return StripBody(self.queue.folder, strips)
        specs: dict[str, TileSpec] = {one.plan.scene_id: one.plan.spec for one in mine}
        shared = shared_rows(list(specs.values()), [one.strip for one in mine])
        return StripBody(self.queue.folder, strips, self.pool, shared)
