"""A training that is really killed, again and again, ends with the bytes of one that never was."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from unchoke.core.fingerprint import digest_file

NUM_KILLS = 6

CHILD = """
import sys, time
from pathlib import Path

import numpy as np
import torch

from unchoke.core.events import Progress
from unchoke.training.heads.trained_head import save_head
from unchoke.training.data import ArraySource, Problem
from unchoke.training.heads.heads import HeadConfig
from unchoke.training.heads.train_heads import train_heads


class SlowSource(ArraySource):
    def rows(self, positions, views=0):
        time.sleep(float(sys.argv[2]))
        return super().rows(positions, views)


torch.set_num_threads(1)
generator = np.random.default_rng(0)
targets = generator.integers(0, 4, size=240)
feats = generator.normal(size=(240, 2, 16)) * 3 + generator.normal(size=(4, 1, 16))[targets]
order = generator.permutation(240)
problem = Problem(
    "classification", tuple("abcd"), targets, {"train": order[:160], "val": order[160:]}, [f"id-{i}" for i in range(240)]
)
configs = [
    HeadConfig(epochs=12, batch_size=32, patience=4),
    HeadConfig(lr=1e-2, mixup=0.3, label_smoothing=0.1, epochs=60, batch_size=32),
    HeadConfig("mlp", hidden=8, dropout=0.4, epochs=60, batch_size=32),
    HeadConfig("attention", hidden=8, epochs=10, batch_size=16, seed=2),
]
folder = Path(sys.argv[1])


def show(event):
    if isinstance(event, Progress):
        sys.stdout.write(f"epoch {event.done}\\n")
        sys.stdout.flush()


result = train_heads(
    SlowSource(feats),
    problem,
    configs,
    device=torch.device("cpu"),
    checkpoint=folder / "last.pt",
    checkpoint_every_s=0.0,
    on_event=show,
)
save_head(result.best, folder / "best_head.pt", extra={"history": result.history})
"""


def start(folder: Path, pause_s: float) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", CHILD, str(folder), str(pause_s)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ.copy())


def kill_after(child: subprocess.Popen[str], *, num_epochs: int, then_s: float) -> list[int]:
    """Let it come `num_epochs` further, then kill it in the middle of whatever it does; the epochs it told of."""
    assert child.stdout is not None
    told = [int(child.stdout.readline().split()[1]) for _ in range(num_epochs)]
    time.sleep(then_s)
    child.send_signal(signal.SIGKILL)
    child.wait()
    return told


def test_killed_again_and_again_the_bytes_are_those_of_an_unbroken_run(tmp_path):
    unbroken = start(tmp_path / "unbroken", 0.0)
    chance = random.Random(0)
    told: list[int] = []
    for _ in range(NUM_KILLS):
        child = start(tmp_path / "broken", 0.02)
        told += kill_after(child, num_epochs=chance.choice([1, 2, 3]), then_s=chance.random() * 0.1)
        assert child.returncode == -signal.SIGKILL
    last = start(tmp_path / "broken", 0.0)
    for child in (unbroken, last):
        _, errors = child.communicate(timeout=120)
        assert child.returncode == 0, errors
    assert max(told) > 3, "later children never went on from where earlier ones were"
    for name in ("best_head.pt", "last.pt"):
        assert digest_file(tmp_path / "broken" / name) == digest_file(tmp_path / "unbroken" / name)
