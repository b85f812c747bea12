"""Run the strips that are pending, in threads or in processes, whichever is faster here.

That is measured only where the work takes long enough to pay for it, and then on the first strips themselves: what the trial
makes counts, and nothing is made twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from unchoke.core.choices import Choice
from unchoke.core.errors import MachineError
from unchoke.core.events import Event, Progress
from unchoke.core.units import format_bytes, format_seconds
from unchoke.jobs.job_engines import Engine, InProcessEngine, ProcessEngine
from unchoke.jobs.job_plan import Job
from unchoke.jobs.queue import JobQueue
from unchoke.jobs.records import JobResult
from unchoke.jobs.run_jobs import run_jobs
from unchoke.photos.resources import measure_room
from unchoke.runs.session import Session
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.tiling import tile_trial as trial
from unchoke.scenes.tiling.strip_work import StripBody, StripWork, WorkState, num_values
from unchoke.scenes.tiling.strips import TileSpec, shared_rows

THREADS, PROCESSES = "threads", "processes"
_VALUES_PER_S = 25_000_000
"""What one core reads, normalises and packs in a second, roughly: only to tell minutes from seconds."""
_TRIAL_PAYS_S = 60.0
_TRIAL_STRIPS = 2
"""For each worker, each way."""


def run_work(
    session: Session, queue: JobQueue, work: dict[str, StripWork], state: WorkState, *, pool: HandlePool, workers: int
) -> dict[str, str]:
    """Run what is pending; the reasons by job of those that were given up. Scenes that cannot be read are in their records."""
    refuse_no_room(session, [work[job.job_id] for job in state.pending])
    runner = _Runner(session, queue, work, pool, workers, jobs_done=len(state.done), tiles_done=_num_tiles(work, state))
    pending, asked = list(state.pending), session.settings.parallel
    estimated_s = num_values(work[job.job_id] for job in pending) / (_VALUES_PER_S * workers)
    num_trial = _TRIAL_STRIPS * workers
    if asked is None and workers > 1 and estimated_s > _TRIAL_PAYS_S and len(pending) > 4 * num_trial:
        rates = {
            THREADS: runner.run(pending[:num_trial], THREADS),
            PROCESSES: runner.run(pending[num_trial : 2 * num_trial], PROCESSES),
        }
        choice, pending = trial.choose_parallel(rates), pending[2 * num_trial :]
    else:
        choice = _unmeasured(asked, workers=workers, estimated_s=estimated_s)
    session.chose(choice)
    runner.run(pending, str(choice.value))
    return runner.given_up


def refuse_no_room(session: Session, pending: Sequence[StripWork]) -> None:
    """Stop before anything is written if plain files cannot fit. What compressed or skipped tiles will take nobody knows."""
    plain = [one for one in pending if one.plan.spec.compress == "none" and one.plan.spec.min_valid == 0]
    need_bytes = sum(one.plain_bytes for one in plain)
    root = session.workspace.root
    free_bytes = measure_room(root).disk_bytes
    if need_bytes > free_bytes:
        raise MachineError(
            f"the tiles would take {format_bytes(need_bytes)}, and {format_bytes(free_bytes)} are free at {root}",
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


def _num_tiles(work: dict[str, StripWork], state: WorkState) -> int:
    return sum(len(work[job_id].job.items) for job_id in state.done)


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

        engine: Engine = ProcessEngine(self.workers) if parallel == PROCESSES else InProcessEngine(self.workers)
        summary = run_jobs(
            self.queue,
            jobs,
            self._body(jobs, parallel),
            engine=engine,
            on_event=self._tell,
            stage="tile",
            unit="tiles",
            on_result=count,
            jobs_before=self.jobs_done,
            items_before=self.tiles_done,
        )
        self.jobs_done += len(jobs)
        self.tiles_done += sum(len(job.items) for job in jobs)
        self.given_up.update(summary.failed)
        done = num_values(self.work[job_id] for job_id in busy_s)
        return self.workers * done / max(1e-9, sum(busy_s.values()))

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
        strips = {one.job.job_id: (one.plan.spec, one.strip) for one in mine}
        if parallel == PROCESSES:
            return StripBody(self.queue.folder, strips)
        specs: dict[str, TileSpec] = {one.plan.scene_id: one.plan.spec for one in mine}
        shared = shared_rows(list(specs.values()), [one.strip for one in mine])
        return StripBody(self.queue.folder, strips, self.pool, shared)
