"""A driver killed at random moments ends with the same bytes, and does no finished job again."""

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
NUM_JOBS, FEW_JOBS = 150, 40


def start(folder: Path, engine: str, *, num_jobs: int = FEW_JOBS) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(DRIVER), str(folder), engine, str(num_jobs)]
    return subprocess.Popen(command, stderr=subprocess.PIPE)


def complete(folder: Path, engine: str, *, num_jobs: int = FEW_JOBS) -> None:
    driver = start(folder, engine, num_jobs=num_jobs)
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


def recorded(folder: Path) -> list[str]:
    """The jobs that have a record, each as often as it has one."""
    return sorted(file.name.split("_")[1] for file in folder.glob("job_*.done"))


def kill_in_the_middle(folder: Path, engine: str, *, num_jobs: int, wait_s: float, let_it_begin: bool) -> None:
    """Wait until the driver has begun a job (or do not), let it go on for a moment, and kill it."""
    before = len(executions(folder))
    driver = start(folder, engine, num_jobs=num_jobs)
    deadline = time.monotonic() + 60
    while let_it_begin and driver.poll() is None and len(executions(folder)) == before and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(wait_s)
    driver.kill()
    driver.communicate()
    assert driver.returncode == -signal.SIGKILL, "it was over before it was killed"


FULL = [pytest.param(engine, NUM_JOBS, 20, marks=pytest.mark.campaign) for engine in ("threads", "processes")]


@pytest.mark.parametrize(("engine", "num_jobs", "num_kills"), [("threads", FEW_JOBS, 3), ("processes", FEW_JOBS, 3), *FULL])
def test_kills_change_nothing(tmp_path: Path, engine: str, num_jobs: int, num_kills: int) -> None:
    calm, stormy = tmp_path / "calm" / "features", tmp_path / "stormy" / "features"
    complete(calm, "threads", num_jobs=num_jobs)
    chance = random.Random(20)
    for _ in range(num_kills):
        done, num_executions = done_jobs(stormy), len(executions(stormy))
        wait_s, let_it_begin = chance.uniform(0.0, 0.12), chance.random() < 0.8
        kill_in_the_middle(stormy, engine, num_jobs=num_jobs, wait_s=wait_s, let_it_begin=let_it_begin)
        assert done <= done_jobs(stormy)
        assert not done & set(executions(stormy)[num_executions:]), "a finished job was done again"
    done, num_executions = done_jobs(stormy), len(executions(stormy))
    assert 0 < len(done) < num_jobs
    complete(stormy, engine, num_jobs=num_jobs)

    last = executions(stormy)[num_executions:]
    assert sorted(last) == sorted({job.job_id for job in JobQueue.load(stormy).jobs()} - done)
    state = JobQueue.load(stormy).state(FINGERPRINT)
    assert recorded(stormy) == sorted(state.done)
    assert len(state.done) == num_jobs
    assert sum(record.num_items for record in state.done.values()) == num_jobs * 4
    JobQueue.load(stormy).sweep()
    assert artefacts(stormy) == artefacts(calm)
    assert not [*stormy.rglob("*.tmp")]


def test_ctrl_c_finishes_jobs_in_flight(tmp_path: Path) -> None:
    folder = tmp_path / "features"
    hold = tmp_path / "hold"
    hold.touch()
    driver = start(folder, "processes")
    deadline_s = time.monotonic() + 60
    while len(executions(folder)) < 2 and driver.poll() is None and time.monotonic() < deadline_s:
        time.sleep(0.01)
    driver.send_signal(signal.SIGINT)
    hold.unlink()
    _, errors = driver.communicate(timeout=60)
    assert b"errors.Interrupted" in errors
    assert done_jobs(folder) == set(executions(folder)), "every job begun was finished and recorded"
    complete(folder, "threads")
    assert len(executions(folder)) == FEW_JOBS
