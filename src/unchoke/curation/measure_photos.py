"""Every photo measured once, in resumable jobs; what was measured before is read.

In: photos by id, with their paths and contents. Out: a `MeasureTable`, row for row. The jobs, their plan and records lie in
`curation/` of the workspace, made as those of features are.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core import atomic
from unchoke.core.fingerprint import digest_bytes
from unchoke.core.units import format_count
from unchoke.curation.photo_measures import NO_TIME, NUMBERS, VERSION, measure_photo
from unchoke.features.near_copies import LOOK_PX
from unchoke.jobs.job_engines import InProcessEngine
from unchoke.jobs.job_plan import Job
from unchoke.jobs.name_places import PathsById, Places
from unchoke.jobs.queue import JobQueue
from unchoke.jobs.records import DoneRecord, JobResult
from unchoke.jobs.run_jobs import run_jobs
from unchoke.pixels.image import DecodeError, may_pass, read_planned

if TYPE_CHECKING:
    from unchoke.features.prepare_engine import PictureTable
    from unchoke.runs.session import Session

FINGERPRINT = f"measures-{VERSION}"
_FOLDER = f"measures_{VERSION}"
_JOB_SIZE = 256


@dataclass(frozen=True, eq=False)
class MeasureTable:
    """Measures in columns, a row for each photo; those that could not be read have `known` False and nothing else."""

    numbers: NDArray[np.float32]
    looks: NDArray[np.uint8]
    taken_s: NDArray[np.int64]
    places: NDArray[np.float64]
    cameras: NDArray[np.str_]
    known: NDArray[np.bool_]

    def column(self, name: str) -> NDArray[np.float32]:
        return self.numbers[:, NUMBERS.index(name)]

    @classmethod
    def empty(cls, count: int) -> MeasureTable:
        return cls(
            np.zeros((count, len(NUMBERS)), np.float32),
            np.zeros((count, LOOK_PX, LOOK_PX), np.uint8),
            np.full(count, NO_TIME, np.int64),
            np.full((count, 2), np.nan),
            np.zeros(count, "<U64"),
            np.zeros(count, bool),
        )


def measure_photos(session: Session, pictures: PictureTable) -> MeasureTable:
    """The measures of all `pictures`, in their order; jobs for those that have none yet are run."""
    queue = JobQueue.load(session.workspace.curation)
    queue.sweep()
    queue.reopen(FINGERPRINT, lambda record: any(may_pass(reason) for _, reason in record.failed_items))
    pattern = _FOLDER + "/photos_{first:06d}-{last:06d}.npz"
    state = queue.plan(pictures.ids, pictures.contents, fingerprint=FINGERPRINT, output_pattern=pattern, job_size=_JOB_SIZE)
    for problem in state.problems:
        session.warn(problem)
    if state.pending:
        with session.stage("measure", format_count(len(state.pending), "job")):
            run_jobs(
                queue,
                state.pending,
                partial(measure_job, paths=PathsById(pictures.ids, pictures.paths), folder=queue.folder),
                engine=InProcessEngine(slots=max(1, session.policy.workers)),
                on_event=session.on_event,
                stage="measure",
                unit="photos",
                jobs_before=len(state.done),
                items_before=sum(record.num_items for record in state.done.values()),
            )
        state = queue.state(FINGERPRINT, verify=False)
    return _gather(queue, state.done, pictures.ids)


def measure_job(job: Job, *, paths: Mapping[str, str], folder: Path) -> JobResult:
    """Measure the photos of one job and write them to its file."""
    kept: list[Any] = []
    names: list[str] = []
    failed: list[tuple[str, str]] = []
    for sample_id, content in zip(job.items, job.contents, strict=True):
        try:
            path = paths.get(sample_id)
            if path is None:
                raise DecodeError("missing", "it is no longer among the samples")
            kept.append(measure_photo(read_planned(path, content)))
            names.append(sample_id)
        except DecodeError as error:
            failed.append((sample_id, str(error)))
    table = MeasureTable.empty(len(kept))
    for place, one in enumerate(kept):
        table.numbers[place], table.looks[place], table.taken_s[place] = one.numbers, one.look, one.taken_s
        table.places[place], table.cameras[place] = one.place, one.camera[:64]
    data = _packed(table)
    atomic.write_bytes(folder / job.output, data)
    return JobResult(len(job.items), tuple(failed), digest_bytes(data), len(data))


def _packed(table: MeasureTable) -> bytes:
    buffer = io.BytesIO()
    columns = {name: column for name, column in vars(table).items() if name != "known"}
    np.savez(buffer, allow_pickle=False, **columns)
    return buffer.getvalue()


def _gather(queue: JobQueue, done: Mapping[str, DoneRecord], ids: Sequence[str]) -> MeasureTable:
    """Rows of all files, put where their photos stand."""
    places, table = Places(ids), MeasureTable.empty(len(ids))
    for job in queue.jobs(FINGERPRINT):
        if job.job_id not in done:
            continue
        failed = dict(done[job.job_id].failed_items)
        found = places.find_all([item for item in job.items if item not in failed])
        rows = [row for row, place in enumerate(found) if place is not None]
        if not rows:
            continue
        target = np.array([place for place in found if place is not None], np.int64)
        with np.load(queue.artefact(job), allow_pickle=False) as shard:
            for name, column in vars(table).items():
                if name != "known":
                    column[target] = shard[name][rows]
        table.known[target] = True
    return table
