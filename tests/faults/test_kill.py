"""Killed again and again at any moment, `fit` ends with the bytes of a run that never was, and does nothing twice."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import psutil
import pytest
import scene
from tests.conftest import Once

NUM_JOBS = 40
LONGER = ("--job-size", "3", "--epochs", "400", "--patience", "0")
"""Many jobs and many epochs, so that there is something to hit."""


@pytest.fixture(scope="session")
def unbroken(place: scene.Place, once: Once) -> Path:
    """What the longer `fit` gives where nobody kills it."""

    def fit(folder: Path) -> None:
        assert scene.unchoke("fit", *place.fit_args(folder, *LONGER, engine="openvino")).code == 0

    return once("faults-unbroken", fit)


def test_fit_killed_twice_same_bytes(place: scene.Place, unbroken: Path, tmp_path: Path) -> None:
    again = place.fit_args(tmp_path, *LONGER, engine="openvino")
    chance = random.Random(0)
    killed_in = kill_while_extracting(again, tmp_path, chance)
    kept = scene.done_files(tmp_path)
    killed_in += kill_in_stage(again, "train", chance)
    refuse_redone(kept, scene.done_files(tmp_path))
    assert killed_in == ["extract", "train"]
    assert_same(scene.unchoke("fit", *again), tmp_path, unbroken)


@pytest.mark.campaign
def test_fit_killed_a_dozen_times_same_bytes(place: scene.Place, unbroken: Path, tmp_path: Path) -> None:
    again = place.fit_args(tmp_path, *LONGER, engine="openvino")
    chance = random.Random(0)
    killed_in: list[str] = []
    kept: dict[str, int] = {}

    first = scene.script("fit", *again)
    time.sleep(chance.uniform(0.3, 2.0))
    killed_in += kill(first, "import")
    for stage in ("index", "check", "engine"):
        killed_in += kill_in_stage(again, stage, chance)
    while len(scene.done_files(tmp_path)) < NUM_JOBS // 2:
        killed_in += kill_while_extracting(again, tmp_path, chance)
        kept = refuse_redone(kept, scene.done_files(tmp_path))
    while len(killed_in) < 11:
        killed_in += kill_in_stage(again, "engine", chance)
    for stage in ("train", "evaluate", "report"):
        killed_in += kill_in_stage(again, stage, chance)
        kept = refuse_redone(kept, scene.done_files(tmp_path))
    assert len(killed_in) >= 12, killed_in
    assert {"extract", "train"} <= set(killed_in), killed_in
    assert_same(scene.script("fit", *again).end(), tmp_path, unbroken)
    refuse_redone(kept, scene.done_files(tmp_path))


def assert_same(last: scene.Ended, broken: Path, unbroken: Path) -> None:
    assert last.code == 0, last.stderr
    jobs = [scene.job_of(name) for name in scene.done_files(broken)]
    assert len(jobs) == len(set(jobs)) == NUM_JOBS
    assert scene.outcome(broken) == scene.outcome(unbroken)
    assert scene.strays(broken) == []


def kill(running: scene.Running, stage: str) -> list[str]:
    """SIGKILL; the stage it hit, or nothing when the command had ended by itself."""
    running.kill()
    return [stage] if running.end().code == -signal.SIGKILL else []


def kill_in_stage(args: list[str], stage: str, chance: random.Random) -> list[str]:
    running = scene.start("fit", *args)
    running.wait_until(lambda: any(line.split("  ")[0] == stage for line in running.stderr().splitlines()))
    time.sleep(chance.uniform(0.0, 0.05))
    return kill(running, stage)


def kill_while_extracting(args: list[str], workspace: Path, chance: random.Random) -> list[str]:
    """When one or two more jobs are done, or a shard is half-written; in any case before training is over."""
    running = scene.start("fit", *args)
    wanted = len(scene.done_files(workspace)) + chance.choice([0, 1, 1, 2])
    half_written = chance.random() < 0.4

    def is_time() -> bool:
        if "extract" not in running.stderr():
            return False
        if half_written and any((workspace / "features").glob("*/.unchoke-*")):
            return True
        return len(scene.done_files(workspace)) >= wanted + half_written

    running.wait_until(is_time)
    if not half_written:
        time.sleep(chance.uniform(0.0, 0.02))
    return kill(running, "extract")


def refuse_redone(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    assert {name: after.get(name) for name in before} == before, "a finished job was done again"
    return after


def test_killed_worker_costs_one_attempt(place: scene.Place, finished: Path, checked: Path) -> None:
    running = scene.start("fit", *place.fit_args(checked, "--workers", "2"))
    running.wait_until(lambda: len(scene.done_files(checked)) >= 2)
    running.send(signal.SIGSTOP)
    (server,) = (child for child in psutil.Process(running.pid).children() if "forkserver" in " ".join(child.cmdline()))
    workers = server.children()
    workers[0].send_signal(signal.SIGKILL)
    running.send(signal.SIGCONT)
    ended = running.end()
    assert ended.code == 0, ended.stderr
    assert len(workers) == 2
    assert "WorkerDied" in ended.stderr
    assert len(scene.done_files(checked)) == 15
    assert not list((checked / "features").glob("*.failed"))
    assert scene.outcome(checked) == scene.outcome(finished)
