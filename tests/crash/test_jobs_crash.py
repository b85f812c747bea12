"""A driver killed twenty times at random moments ends with the same bytes, and does no finished job again."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unchoke.jobs.queue import JobQueue

DRIVER = Path(__file__).parent / "jobs_driver.py"
FINGERPRINT = "1a2b3c4d"
NUM_JOBS = 150
NUM_KILLS = 20


def start(folder: Path, engine: str, *, num_jobs: int = NUM_JOBS) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(DRIVER), str(folder), engine, str(num_jobs)], stderr=subprocess.PIPE)


def complete(folder: Path, engine: str) -> None:
    driver = start(folder, engine)
    _, errors = driver.communicate(timeout=120)
    assert driver.returncode == 0, errors.decode()


def executions(folder: Path) -> list[str]:
    log = folder.parent / "executions.log"
    return log.read_text().split() if log.exists() else []


def done_jobs(folder: Path) -> set[str]:
    return set(JobQueue.load(folder).state(FINGERPRINT).done)


def artefacts(folder: Path) -> dict[str, bytes]:
    files = [*folder.glob("e/*"), folder / "jobs_queue.csv"]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def kill_in_the_middle(folder: Path, engine: str, *, wait_s: float, let_it_begin: bool) -> None:
    """Wait until the driver has begun a job (or do not), let it go on for a moment, and kill it."""
    before = len(executions(folder))
    driver = start(folder, engine)
    deadline = time.monotonic() + 60
    while let_it_begin and driver.poll() is None and len(executions(folder)) == before and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(wait_s)
    driver.kill()
    driver.communicate()
    assert driver.returncode == -signal.SIGKILL, "it was over before it was killed"


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_twenty_kills_change_nothing(tmp_path: Path, engine: str) -> None:
    calm, stormy = tmp_path / "calm" / "features", tmp_path / "stormy" / "features"
    complete(calm, "threads")
    chance = random.Random(20)
    for _ in range(NUM_KILLS):
        done, num_executions = done_jobs(stormy), len(executions(stormy))
        kill_in_the_middle(stormy, engine, wait_s=chance.uniform(0.0, 0.12), let_it_begin=chance.random() < 0.8)
        assert done <= done_jobs(stormy)
        assert not done & set(executions(stormy)[num_executions:]), "a finished job was done again"
    done, num_executions = done_jobs(stormy), len(executions(stormy))
    assert 0 < len(done) < NUM_JOBS
    complete(stormy, engine)

    last = executions(stormy)[num_executions:]
    assert sorted(last) == sorted({job.job_id for job in JobQueue.load(stormy).jobs()} - done)
    records = [name.name for name in stormy.glob("job_*.done")]
    assert len(records) == NUM_JOBS
    state = JobQueue.load(stormy).state(FINGERPRINT)
    assert sum(record.num_items for record in state.done.values()) == NUM_JOBS * 4
    JobQueue.load(stormy).sweep()
    assert artefacts(stormy) == artefacts(calm)
    assert not [*stormy.rglob("*.tmp")]


def test_one_ctrl_c_ends_cleanly_and_the_same_command_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "features"
    driver = start(folder, "processes")
    while len(executions(folder)) < 10:
        time.sleep(0.01)
    driver.send_signal(signal.SIGINT)
    _, errors = driver.communicate(timeout=60)
    assert b"Interrupted: stopped on request after" in errors
    assert done_jobs(folder) == set(executions(folder)), "every job begun was finished and recorded"
    complete(folder, "threads")
    assert len(executions(folder)) == NUM_JOBS
