"""A network's training that is really killed, again and again, ends with the bytes and the history of one that never was."""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import scene

from unchoke.core.fingerprint import digest_file

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")


def start(folder: Path, workers: int, epochs: int) -> Any:
    return scene.fork(train, folder, workers, epochs)


def train(folder: Path, workers: int, epochs: int) -> None:
    import finetune_driver

    finetune_driver.main(folder, workers, epochs)


def num_begun(folder: Path) -> int:
    """How many steps were begun in `folder` so far, by all processes."""
    log = folder / "steps.log"
    return log.stat().st_size // len("step\n") if log.exists() else 0


def kill_somewhere(process: Any, folder: Path, *, num_steps: int, wait_s: float, saved: bool) -> None:
    """Wait until it began so many steps (perhaps none) and, if `saved`, has a checkpoint; go on for a moment, and kill it."""
    wanted, deadline_s = num_begun(folder) + num_steps, time.monotonic() + 60
    while process.is_alive() and time.monotonic() < deadline_s:
        if num_begun(folder) >= wanted and (not saved or (folder / "checkpoints" / "last.pt").exists()):
            break
        time.sleep(0.001)
    time.sleep(wait_s)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL, "it was over before it was killed"


def complete(process: Any) -> None:
    process.join(120)
    assert process.exitcode == 0


@pytest.mark.parametrize(("num_kills", "epochs"), [(2, 20), pytest.param(10, 50, marks=pytest.mark.campaign)])
def test_killed_finetuning_same_weights(tmp_path: Path, num_kills: int, epochs: int) -> None:
    """Also where the processes that go on have other numbers of workers than those that were killed."""
    calm, stormy = tmp_path / "calm", tmp_path / "stormy"
    complete(start(calm, 0, epochs))
    chance = random.Random(3)
    for number in range(num_kills):
        process = start(stormy, 2 - number % 3, epochs)
        num_steps, wait_s = chance.randrange(min(epochs, 3 * epochs // num_kills)), chance.uniform(0.0, 0.03)
        kill_somewhere(process, stormy, num_steps=num_steps, wait_s=wait_s, saved=number + 1 == num_kills)
    killed = num_begun(stormy)
    complete(start(stormy, 1, epochs))
    result = json.loads((calm / "result.json").read_text())
    assert json.loads((stormy / "result.json").read_text()) == result
    assert digest_file(stormy / "checkpoints" / "last.pt") == digest_file(calm / "checkpoints" / "last.pt")
    assert num_begun(calm) == result["num_steps"]
    assert num_begun(stormy) - killed < result["num_steps"], "the last one began from the first step"
    assert num_begun(stormy) > result["num_steps"], "no step was lost, so nothing was killed in its midst"
