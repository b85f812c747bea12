"""What is planned, what is done, what failed: the state of the jobs in one folder.

State is the plan (`jobs_queue.csv`) minus the `.done` records that agree with it and with their artefacts. Nothing is ever
taken out of the plan to be worked on, so a kill at any moment loses no job: it is pending until its record is in place. The
queue reads and writes these small files only; artefacts are written by the job's body. One driver uses a folder at a time.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from unchoke.core import atomic, listing
from unchoke.core.errors import DataError, UsageError, list_some
from unchoke.core.fingerprint import digest_file
from unchoke.core.input_file import parse_json, read_plain
from unchoke.jobs.job_plan import DEFAULT_JOB_SIZE, Job, load_jobs, plan_jobs, save_jobs
from unchoke.jobs.records import DONE, FAILED, PREFIX, DoneRecord, JobResult, job_of_record, record_name

QUEUE_NAME = "jobs_queue.csv"
TRUST_FROM = 4096
"""From so many jobs on (262,144 photos) an artefact with the size and times it was recorded with is not read again."""

_NONSENSE = (KeyError, TypeError, ValueError, AttributeError, RecursionError)


@dataclass(frozen=True)
class QueueState:
    """Where the jobs of one fingerprint stand. `problems` are sentences about records or artefacts that no longer count."""

    done: dict[str, DoneRecord] = field(default_factory=dict)
    pending: list[Job] = field(default_factory=list)
    failed: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class JobQueue:
    """The jobs of one folder, for every fingerprint in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / QUEUE_NAME
        self._jobs: dict[str, Job] = {}
        self._records: dict[str, list[str]] = {}

    @classmethod
    def load(cls, folder: Path) -> JobQueue:
        """The queue in `folder`; an empty one if there is none yet."""
        queue = cls(folder)
        if queue.file.exists():
            queue._jobs = {job.job_id: job for job in load_jobs(queue.file)}
        queue._list_records()
        return queue

    def jobs(self, fingerprint: str | None = None) -> list[Job]:
        """The planned jobs, of one fingerprint or all, in the order of the plan."""
        chosen = (job for job in self._jobs.values() if fingerprint in (None, job.fingerprint))
        return sorted(chosen, key=lambda job: (job.fingerprint, job.first))

    def job(self, job_id: str) -> Job:
        """One job by its id."""
        if job_id not in self._jobs:
            known = sorted(self._jobs)
            raise UsageError(
                f"there is no job {job_id!r}",
                code="no-such-job",
                why=f"{QUEUE_NAME} has {list_some(known)}" if known else "nothing has been planned yet",
                try_=f"name one of the ids in the first column of {self.file}",
            )
        return self._jobs[job_id]

    def artefact(self, job: Job) -> Path:
        """Where the job's body writes."""
        return self.folder / job.output

    def plan(
        self,
        ids: Sequence[str],
        contents: Sequence[str],
        *,
        fingerprint: str,
        output_pattern: str,
        job_size: int = DEFAULT_JOB_SIZE,
    ) -> QueueState:
        """Bring the plan up to date with these items, save it, and say what is left to do."""
        before = self.state(fingerprint)
        jobs = plan_jobs(
            ids,
            contents,
            fingerprint=fingerprint,
            output_pattern=output_pattern,
            previous=self.jobs(fingerprint),
            job_size=job_size,
            unfinished={job.job_id for job in before.pending},
        )
        self.save_plan(jobs)
        return self._state_of(self.jobs(fingerprint), verify=True, before=before)

    def save_plan(self, jobs: Iterable[Job]) -> None:
        """Add `jobs` to the plan or put them in the place of their former selves; no job ever leaves it."""
        merged = dict(self._jobs)
        for job in jobs:
            known = merged.get(job.job_id)
            if known is not None and known.fingerprint != job.fingerprint:
                raise DataError(
                    f"job {job.job_id} already belongs to {known.fingerprint}, not to {job.fingerprint}",
                    code="fingerprint-collision",
                    why="two fingerprints begin with the same eight characters, and would write to the same files",
                    try_="use another folder with --out DIR",
                )
            merged[job.job_id] = job
        if merged != self._jobs or not self.file.exists():
            save_jobs(self.file, merged.values())
            self._jobs = merged

    def state(self, fingerprint: str, *, verify: bool = True) -> QueueState:
        """What is done, pending and failed. With `verify` artefacts are read and compared; without, only their sizes are.

        Among very many jobs, artefacts that have the times they were recorded with are not read again.
        """
        self._list_records()
        return self._state_of(self.jobs(fingerprint), verify=verify, before=QueueState())

    def sweep(self) -> int:
        """Remove the temporary files that a kill left behind here and where artefacts are written; return how many."""
        folders = {self.folder, *(self.artefact(job).parent for job in self._jobs.values())}
        return sum(atomic.sweep_temporaries(folder) for folder in sorted(folders))

    def begin(self, job: Job) -> None:
        """The job is about to be done (again): records of an earlier artefact stop counting before that artefact is replaced."""
        self._remove(job, self._names(job, DONE))

    def reopen(self, fingerprint: str, when: Callable[[DoneRecord], bool]) -> None:
        """Have finished jobs done again whose record says so."""
        for job_id, record in self.state(fingerprint, verify=False).done.items():
            if when(record):
                self.begin(self._jobs[job_id])

    def finish(self, job: Job, result: JobResult, info: Mapping[str, Any] | None = None, *, seconds: float = 0.0) -> DoneRecord:
        """Write the `.done` record of a job whose artefact is in place; from then on it is not done again."""
        artefact, now = self.artefact(job), datetime.now(UTC)
        found = artefact.stat()
        record = DoneRecord(
            job_id=job.job_id,
            inputs=job.inputs,
            output=job.output,
            sha256=result.sha256 or digest_file(artefact),
            size_bytes=result.size_bytes or found.st_size,
            num_items=result.num_items,
            num_failed=len(result.failed_items),
            seconds=round(seconds, 6),
            finished_at=now.isoformat(),
            attempts=1 + len(self._names(job, FAILED)),
            failed_items=result.failed_items,
            info={**(info or {}), **result.info},
            stamp=_stamp(found),
        )
        before = self._names(job)
        self._write(job, record_name(job.job_id, DONE, when=now), record.to_dict())
        self._remove(job, before)
        return record

    def fail(self, job: Job, error: BaseException, *, traceback_text: str = "") -> int:
        """Write a `.failed` record; return how many attempts at this job have failed so far. The job stays pending."""
        attempt, now = 1 + len(self._names(job, FAILED)), datetime.now(UTC)
        record = {
            "job_id": job.job_id,
            "inputs": job.inputs,
            "attempt": attempt,
            "error_type": type(error).__name__,
            "message": str(error),
            "traceback": traceback_text or "".join(traceback.format_exception(error)),
            "failed_at": now.isoformat(),
        }
        self._write(job, record_name(job.job_id, FAILED, when=now), record)
        return attempt

    def _state_of(self, jobs: Iterable[Job], *, verify: bool, before: QueueState) -> QueueState:
        """Where `jobs` stand; what was found `before` under the same inputs is not read again."""
        state, problems = QueueState(), list(before.problems)
        for job in jobs:
            record = before.done.get(job.job_id)
            if record is None or record.inputs != job.inputs:
                record = self._done_record(job, verify=verify, problems=problems)
            if record is not None:
                state.done[job.job_id] = record
            elif job.items:
                state.pending.append(job)
                if attempts := len(self._names(job, FAILED)):
                    state.failed[job.job_id] = attempts
        state.problems.extend(dict.fromkeys(problems))
        return state

    def _done_record(self, job: Job, *, verify: bool, problems: list[str]) -> DoneRecord | None:
        """The record that says the job is done, if it is about the job as it is planned and its artefact is as it says."""
        for name in self._names(job, DONE):
            try:
                record = DoneRecord.from_dict(parse_json(read_plain(self.folder / name)))
            except FileNotFoundError:  # the driver replaced it since the folder was listed
                self._records[job.job_id].remove(name)
                continue
            except (*_NONSENSE, IsADirectoryError) as error:
                problems.append(f"{name} cannot be read ({error}); its job will be done again")
                continue
            if record.inputs != job.inputs or record.output != job.output:
                continue
            fault = self._fault(self.artefact(job), record, verify=verify)
            if fault is None:
                return record
            problems.append(f"{job.output} {fault}; job {job.job_id} will be done again")
        return None

    def _fault(self, artefact: Path, record: DoneRecord, *, verify: bool) -> str | None:
        """Why the artefact is not the one the record speaks of, or None."""
        try:
            found = artefact.stat()
            if found.st_size != record.size_bytes:
                return f"has {found.st_size:,} bytes instead of {record.size_bytes:,}"
            trusted = len(self._jobs) >= TRUST_FROM and record.stamp == _stamp(found)
            if verify and not trusted and digest_file(artefact) != record.sha256:
                return "no longer has the checksum it was written with"
        except FileNotFoundError:
            return "is gone"
        return None

    def _names(self, job: Job, suffix: str = "") -> list[str]:
        return [name for name in self._records.get(job.job_id, ()) if name.endswith(suffix)]

    def _write(self, job: Job, name: str, value: dict[str, Any]) -> None:
        atomic.write_text(self.folder / name, json.dumps(value, indent=1, sort_keys=True) + "\n")
        self._records.setdefault(job.job_id, []).append(name)

    def _remove(self, job: Job, names: Sequence[str]) -> None:
        for name in names:
            (self.folder / name).unlink(missing_ok=True)
        self._records[job.job_id] = [name for name in self._records.get(job.job_id, ()) if name not in names]

    def _list_records(self) -> None:
        self._records = {}
        for name in listing.names(self.folder, prefix=PREFIX):
            job_id = job_of_record(name)
            if job_id is not None:
                self._records.setdefault(job_id, []).append(name)


def _stamp(found: os.stat_result) -> tuple[int, int]:
    """When a file was last written, and when anything about it changed, in nanoseconds."""
    return found.st_mtime_ns, found.st_ctime_ns
