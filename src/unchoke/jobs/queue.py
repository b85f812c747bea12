"""What is planned, what is done, what failed: the state of the jobs in one folder.

State is the plan (`jobs_queue.csv`) minus the `.done` records that agree with it and with their artefacts. Nothing is ever
taken out of the plan to be worked on, so a kill at any moment loses no job: it is pending until its record is in place. The
queue reads and writes these small files only; artefacts are written by the job's body. One driver uses a folder at a time.

Thousands of `.done` files are put into one log (`record_log.py`), and go only when that is on the disk. Whatever lies beside the
logs for a job is newer than what they say of it: a `.done`, or a `.begun`, which says that its artefact is being made again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unchoke.core import atomic, listing
from unchoke.core.errors import DataError, UsageError, list_some
from unchoke.core.fingerprint import digest_file
from unchoke.core.input_file import read_plain
from unchoke.jobs.job_plan import DEFAULT_JOB_SIZE, Items, Job, plan_jobs
from unchoke.jobs.plan_file import load_jobs, save_jobs
from unchoke.jobs.record_log import (
    LOG_PREFIX,
    LOG_SUFFIX,
    LoggedRecord,
    RecordLog,
    Stamp,
    load_log,
    log_name,
    number_of_log,
    save_log,
    stamp_of,
)
from unchoke.jobs.records import (
    BEGUN,
    DONE,
    FAILED,
    PREFIX,
    DoneRecord,
    JobResult,
    failed_record,
    job_of_record,
    record_name,
    utc_now,
)

QUEUE_NAME = "jobs_queue.csv"
LOG_FROM = 4096
"""So many `.done` files become a log: 262,144 photos at 64 for each job."""


@dataclass(frozen=True)
class QueueState:
    """Where the jobs of one fingerprint stand. `problems` are sentences about records or artefacts that no longer count."""

    done: dict[str, DoneRecord] = field(default_factory=dict)
    pending: list[Job] = field(default_factory=list)
    failed: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class JobQueue:
    """The jobs of one folder, for every fingerprint in it."""

    def __init__(self, folder: Path, *, log_from: int = LOG_FROM) -> None:
        self.folder = folder
        self.file = folder / QUEUE_NAME
        self._log_from = log_from
        self._jobs: dict[str, Job] = {}
        self._records: dict[str, list[str]] = {}
        self._logs: dict[str, tuple[Stamp, RecordLog]] = {}
        self._logged: dict[str, LoggedRecord] = {}
        self._loose: dict[str, tuple[str, Stamp]] = {}
        """`.done` files of artefacts that this process wrote or read in full, and the stamps these had."""
        self._restamped: dict[str, Stamp] = {}
        """The same of jobs whose records are in a log, where that has another stamp."""

    @classmethod
    def load(cls, folder: Path, *, log_from: int = LOG_FROM) -> JobQueue:
        """The queue in `folder`; an empty one if there is none yet."""
        queue = cls(folder, log_from=log_from)
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

    def plan(self, items: Items, *, fingerprint: str, output_pattern: str, job_size: int = DEFAULT_JOB_SIZE) -> QueueState:
        """Bring the plan up to date with `items`, save it, and say what is left to do."""
        before = self.state(fingerprint)
        jobs = plan_jobs(
            items,
            fingerprint=fingerprint,
            output_pattern=output_pattern,
            previous=self.jobs(fingerprint),
            job_size=job_size,
            unfinished={job.job_id for job in before.pending},
        )
        self.save_plan(jobs)
        state = self._state_of(self.jobs(fingerprint), verify=True, before=before)
        self.tidy()
        return state

    def save_plan(self, jobs: Iterable[Job]) -> None:
        """Add `jobs` to the plan or put them in the place of their former selves; no job ever leaves it."""
        merged = dict(self._jobs)
        for job in jobs:
            _refuse_other_fingerprint(merged.get(job.job_id), job)
            merged[job.job_id] = job
        if merged != self._jobs or not self.file.exists():
            self._jobs = {job.job_id: job for job in save_jobs(self.file, merged.values())}

    def state(self, fingerprint: str, *, verify: bool = True) -> QueueState:
        """What is done, pending and failed. With `verify` artefacts are read and compared; without, only their sizes are.

        An artefact whose record is in a log is not read again as long as its size and times are those it had when it last was.
        """
        self._list_records()
        return self._state_of(self.jobs(fingerprint), verify=verify, before=QueueState())

    def sweep(self) -> int:
        """Remove the temporary files that a kill left behind here and where artefacts are written; return how many."""
        folders = {self.folder, *(self.artefact(job).parent for job in self._jobs.values())}
        return sum(atomic.sweep_temporaries(folder) for folder in sorted(folders))

    def begin(self, job: Job) -> None:
        """The job is about to be done (again): records of an earlier artefact stop counting before that artefact is replaced."""
        if job.job_id in self._logged and not self._names(job, BEGUN):
            now = utc_now()
            self._write(job, record_name(job.job_id, BEGUN, when=now), {"job_id": job.job_id, "begun_at": now.isoformat()})
        self._loose.pop(job.job_id, None)
        self._restamped.pop(job.job_id, None)
        self._remove(job, self._names(job, DONE))

    def reopen(self, fingerprint: str, when: Callable[[DoneRecord], bool]) -> None:
        """Have finished jobs done again whose record says so."""
        for job_id, record in self.state(fingerprint, verify=False).done.items():
            if when(record):
                self.begin(self._jobs[job_id])

    def finish(self, job: Job, result: JobResult, info: Mapping[str, Any] | None = None, *, seconds: float = 0.0) -> DoneRecord:
        """Write the `.done` record of a job whose artefact is in place; from then on it is not done again."""
        artefact, now = self.artefact(job), utc_now()
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
        )
        before, name = self._names(job), record_name(job.job_id, DONE, when=now)
        self._write(job, name, record.to_dict())
        self._remove(job, before)
        self._loose[job.job_id] = name, stamp_of(found)
        if len(self._loose) >= self._log_from:
            self.tidy()
        return record

    def fail(self, job: Job, error: BaseException, *, traceback_text: str = "") -> int:
        """Write a `.failed` record; return how many attempts at this job have failed so far. The job stays pending."""
        attempt, now = 1 + len(self._names(job, FAILED)), utc_now()
        record = failed_record(
            job.job_id,
            inputs=job.inputs,
            attempt=attempt,
            error=error,
            traceback_text=traceback_text,
            failed_at=now.isoformat(),
        )
        self._write(job, record_name(job.job_id, FAILED, when=now), record.to_dict())
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
        problems += [log.problem for _, log in self._logs.values() if log.problem]
        state.problems.extend(dict.fromkeys(problems))
        return state

    def _done_record(self, job: Job, *, verify: bool, problems: list[str]) -> DoneRecord | None:
        """The record that says the job is done: one beside the logs, where there is any, else one in them."""
        for name in self._names(job, DONE):
            record = self._read(job, name, problems)
            if record is not None and (stamp := self._stamp(job, record, None, verify=verify, problems=problems)):
                if verify:
                    self._loose[job.job_id] = name, stamp
                return record
        logged = self._logged.get(job.job_id)
        if logged is None or self._names(job, DONE) or self._names(job, BEGUN):
            return None
        stamp = self._stamp(job, logged.record, logged.stamp, verify=verify, problems=problems)
        if verify and stamp not in (None, logged.stamp):
            self._restamped[job.job_id] = stamp
        return None if stamp is None else logged.record

    def _stamp(self, job: Job, record: DoneRecord, known: Stamp | None, *, verify: bool, problems: list[str]) -> Stamp | None:
        """The artefact's stamp, if the record is about the job as it is planned and the artefact is as the record says.

        One with the stamp that is `known` is.
        """
        if record.inputs != job.inputs or record.output != job.output:
            return None
        artefact = self.artefact(job)
        try:
            found = artefact.stat()
            fault = _fault(artefact, found, record, verify=verify and stamp_of(found) != known)
        except FileNotFoundError:
            fault = "is gone"
        if fault is None:
            return stamp_of(found)
        problems.append(f"{job.output} {fault}; job {job.job_id} will be done again")
        return None

    def tidy(self) -> None:
        """Put `.done` files into logs where there are many, and bring logs up to date that are damaged or have other stamps.

        A record leaves the logs before a newer one of its job comes into one, and a `.done` file goes after that.
        """
        ready = self._ready() if len(self._loose) >= self._log_from else {}
        for name, (_, log) in list(self._logs.items()):
            kept = {
                job_id: LoggedRecord(one.record, self._restamped.get(job_id, one.stamp))
                for job_id, one in log.records.items()
                if job_id not in ready
            }
            if (log.problem or kept != log.records) and (self.folder / name).is_file():
                self._save_log(name, kept)
        self._restamped = {}
        waiting = list(ready.values())
        for start in range(0, len(waiting), self._log_from):
            chunk = {one.record.job_id: one for one in waiting[start : start + self._log_from]}
            number = 1 + max((number_of_log(name) or 0 for name in self._logs), default=0)
            self._save_log(log_name(number), chunk)
            for job_id in chunk:
                names = sorted(self._records[job_id], key=lambda name: name.endswith(DONE))  # .begun before it
                self._remove(self._jobs[job_id], names)
                del self._loose[job_id]

    def _ready(self) -> dict[str, LoggedRecord]:
        """What of the `.done` files may go into a log."""
        read = ((self._read(self._jobs[job_id], name, []), stamp) for job_id, (name, stamp) in list(self._loose.items()))
        return {record.job_id: LoggedRecord(record, stamp) for record, stamp in read if record is not None}

    def _save_log(self, name: str, records: Mapping[str, LoggedRecord]) -> None:
        """Write a log in place of the one of that name; one without records goes."""
        if not records:
            (self.folder / name).unlink()
            del self._logs[name]
            return self._gather()
        log = save_log(self.folder, name, records.values())
        self._logs[name] = stamp_of((self.folder / name).stat()), log
        return self._gather()

    def _gather(self) -> None:
        self._logged = {job_id: one for _, log in self._logs.values() for job_id, one in log.records.items()}

    def _read(self, job: Job, name: str, problems: list[str]) -> DoneRecord | None:
        try:
            return DoneRecord.from_dict(json.loads(read_plain(self.folder / name)))
        except FileNotFoundError:  # the driver replaced it since the folder was listed, or put it into a log
            self._records[job.job_id].remove(name)
            return None
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, IsADirectoryError) as error:
            problems.append(f"{name} cannot be read ({error}); its job will be done again")
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
        self._list_logs()

    def _list_logs(self) -> None:
        """After the records: what was put into a log meanwhile is in one then. A log that was read before is not read again."""
        names = [name for name in listing.names(self.folder, prefix=LOG_PREFIX, suffix=LOG_SUFFIX) if number_of_log(name)]
        before, self._logs = self._logs, {}
        for name in names:
            stamp = stamp_of((self.folder / name).stat())
            known = before.get(name)
            self._logs[name] = known if known is not None and known[0] == stamp else (stamp, load_log(self.folder, name))
        if self._logs != before:
            self._gather()


def _fault(artefact: Path, found: os.stat_result, record: DoneRecord, *, verify: bool) -> str | None:
    """Why the artefact is not the one the record speaks of, or None."""
    if found.st_size != record.size_bytes:
        return f"has {found.st_size:,} bytes instead of {record.size_bytes:,}"
    if verify and digest_file(artefact) != record.sha256:
        return "no longer has the checksum it was written with"
    return None


def _refuse_other_fingerprint(known: Job | None, job: Job) -> None:
    if known is not None and known.fingerprint != job.fingerprint:
        raise DataError(
            f"job {job.job_id} already belongs to {known.fingerprint}, not to {job.fingerprint}",
            code="fingerprint-collision",
            why="two fingerprints begin with the same eight characters, and would write to the same files",
            try_="use another folder with --out DIR",
        )
