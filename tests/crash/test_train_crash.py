"""A training that is really killed, again and again, ends with the bytes of one that never was."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import scene

from unchoke.core.fingerprint import digest_file


def start(folder: Path, pause_s: float) -> Any:
    return scene.fork(train, folder, pause_s)


def train(folder: Path, pause_s: float) -> None:
    import train_driver

    train_driver.main(folder, pause_s)


def epochs(folder: Path) -> list[int]:
    """The epochs that were told of so far, by all processes."""
    log = folder / "epochs.log"
    return [int(line) for line in log.read_text().splitlines()] if log.exists() else []


def kill_after(folder: Path, *, num_epochs: int, then_s: float) -> None:
    """Let it come `num_epochs` further, then kill it in the middle of whatever it does."""
    child, wanted, deadline_s = start(folder, 0.02), len(epochs(folder)) + num_epochs, time.monotonic() + 60
    while len(epochs(folder)) < wanted and child.is_alive() and time.monotonic() < deadline_s:
        time.sleep(0.002)
    time.sleep(then_s)
    child.kill()
    child.join()
    assert child.exitcode == -signal.SIGKILL, "it was over before it was killed"


@pytest.mark.parametrize("num_kills", [2, pytest.param(6, marks=pytest.mark.campaign)])
def test_killed_heads_same_bytes(tmp_path: Path, num_kills: int) -> None:
    broken, unbroken = tmp_path / "broken", tmp_path / "unbroken"
    whole, chance = start(unbroken, 0.0), random.Random(0)
    for _ in range(num_kills):
        kill_after(broken, num_epochs=chance.choice([2, 3, 4]), then_s=chance.random() * 0.1)
    assert max(epochs(broken)) > 3, "later children never went on from where earlier ones were"
    for child in (whole, start(broken, 0.0)):
        child.join(120)
        assert child.exitcode == 0
    for name in ("best_head.pt", "last.pt"):
        assert digest_file(broken / name) == digest_file(unbroken / name)
