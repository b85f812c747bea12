"""Killed again and again at any moment, `fit` ends with the bytes of a run that never was, and does nothing twice."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import psutil
import scene

NUM_KILLS = 12
NUM_JOBS = 40
LONGER = ("--job-size", "3", "--epochs", "400", "--patience", "0")
"""Many jobs and many epochs, so that there is something to hit."""
EARLY = ("index", "check", "engine")
LATE = ("train", "evaluate", "report")


def test_a_dozen_kills_leave_no_trace(place: scene.Place, tmp_path: Path) -> None:
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    whole = scene.start("fit", *place.fit_args(unbroken, *LONGER, engine="openvino"))
    again = place.fit_args(broken, *LONGER, engine="openvino")
    chance = random.Random(0)
    killed_in: list[str] = []
    kept: dict[str, int] = {}

    first = scene.script("fit", *again)
    time.sleep(chance.uniform(0.3, 2.0))
    killed_in += kill(first, "import")
    for stage in EARLY:
        killed_in += kill_in_stage(again, stage, chance)
    while len(scene.done_files(broken)) < NUM_JOBS // 2:
        killed_in += kill_while_extracting(again, broken, chance)
        kept = refuse_redone(kept, scene.done_files(broken))
    while len(killed_in) < NUM_KILLS - 1:
        killed_in += kill_in_stage(again, "engine", chance)
    for stage in LATE:
        killed_in += kill_in_stage(again, stage, chance)
        kept = refuse_redone(kept, scene.done_files(broken))
    last = scene.script("fit", *again).end()

    assert last.code == 0, last.stderr
    assert len(killed_in) >= NUM_KILLS, killed_in
    assert {"extract", "train"} <= set(killed_in), killed_in
    refuse_redone(kept, scene.done_files(broken))
    jobs = [scene.job_of(name) for name in scene.done_files(broken)]
    assert len(jobs) == len(set(jobs)) == NUM_JOBS
    assert whole.end().code == 0
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


def test_a_killed_worker_costs_an_attempt_and_not_the_run(place: scene.Place, finished: Path, checked: Path) -> None:
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
    assert "will be tried again: WorkerDied" in ended.stderr
    assert len(scene.done_files(checked)) == 15
    assert not list((checked / "features").glob("*.failed"))
    assert scene.outcome(checked) == scene.outcome(finished)
