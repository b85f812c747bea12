"""A driver to be killed: plans jobs that write small files, and runs those pending. Usage: FOLDER ENGINE NUM_JOBS."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import IO

from unchoke.core import atomic
from unchoke.jobs.job_engines import InProcessEngine, JobEngine, ProcessEngine
from unchoke.jobs.job_plan import Job
from unchoke.jobs.queue import JobQueue
from unchoke.jobs.records import JobResult
from unchoke.jobs.run_jobs import run_jobs

FINGERPRINT = "1a2b3c4d"
ITEMS_PER_JOB = 4


class WriteItems:
    """The job's body: says that it began, then writes its items slowly."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, job: Job) -> JobResult:
        log = os.open(self.folder.parent / "executions.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(log, f"{job.job_id}\n".encode())
        os.close(log)
        while (self.folder.parent / "hold").exists():  # until the test has done what it wants to do in the middle
            time.sleep(0.005)
        atomic.write_with(self.folder / job.output, lambda file: self._write(file, job))
        return JobResult(num_items=len(job.items))

    @staticmethod
    def _write(file: IO[bytes], job: Job) -> None:
        for item, content in zip(job.items, job.contents, strict=True):
            file.write(f"{item} {content}\n".encode() * 50)
            file.flush()
            time.sleep(0.008)


def main(folder: Path, engine_name: str, num_jobs: int) -> None:
    engine: JobEngine = ProcessEngine(2) if engine_name == "processes" else InProcessEngine(2)
    queue = JobQueue.load(folder)
    queue.sweep()
    numbers = range(num_jobs * ITEMS_PER_JOB)
    ids, contents = [f"item, {number}" for number in numbers], [f"c{number}" for number in numbers]
    pattern = "e/img_{first:06d}-{last:06d}.txt"
    state = queue.plan(ids, contents, fingerprint=FINGERPRINT, output_pattern=pattern, job_size=ITEMS_PER_JOB)
    run_jobs(queue, state.pending, WriteItems(folder), engine=engine)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
