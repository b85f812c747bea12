"""A network's training that is really killed, again and again, ends with the bytes and the history of one that never was."""

from __future__ import annotations

import json
import multiprocessing
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import finetune_driver
import pytest

from children import same_imports
from unchoke.core.fingerprint import digest_file

NUM_KILLS, EPOCHS = 10, 50
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
Start = Callable[[Path, int], Any]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Start:
    """Start a training in a process of its own, forked from one that has imported everything and run nothing."""
    monkeypatch.setenv("PYTHONPATH", same_imports()["PYTHONPATH"])  # for the process that the others are forked from
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["finetune_driver"])

    def begin(folder: Path, workers: int) -> Any:
        process = context.Process(target=finetune_driver.main, args=(folder, workers, EPOCHS))
        process.start()
        return process

    return begin


def num_begun(folder: Path) -> int:
    """How many steps were begun in `folder` so far, by all processes."""
    log = folder / "steps.log"
    return log.stat().st_size // len("step\n") if log.exists() else 0


def kill_somewhere(process: Any, folder: Path, *, num_steps: int, wait_s: float) -> None:
    """Wait until it began so many steps (perhaps none), let it go on for a moment, and kill it."""
    wanted, deadline_s = num_begun(folder) + num_steps, time.monotonic() + 60
    while process.is_alive() and num_begun(folder) < wanted and time.monotonic() < deadline_s:
        time.sleep(0.001)
    time.sleep(wait_s)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL, "it was over before it was killed"


def complete(process: Any) -> None:
    process.join(120)
    assert process.exitcode == 0


def test_killed_again_and_again_with_any_number_of_workers_the_weights_and_the_history_are_those_of_an_unbroken_run(
    start: Start, tmp_path: Path
) -> None:
    calm, stormy = tmp_path / "calm", tmp_path / "stormy"
    complete(start(calm, 0))
    chance = random.Random(3)
    for number in range(NUM_KILLS):
        process = start(stormy, number % 3)
        kill_somewhere(process, stormy, num_steps=chance.randrange(3 * EPOCHS // NUM_KILLS), wait_s=chance.uniform(0.0, 0.03))
    killed = num_begun(stormy)
    complete(start(stormy, 1))
    result = json.loads((calm / "result.json").read_text())
    assert json.loads((stormy / "result.json").read_text()) == result
    assert digest_file(stormy / "checkpoints" / "last.pt") == digest_file(calm / "checkpoints" / "last.pt")
    assert num_begun(calm) == result["num_steps"]
    assert num_begun(stormy) - killed < result["num_steps"], "the last one began from the first step"
    assert num_begun(stormy) > result["num_steps"], "no step was lost, so nothing was killed in its midst"
