"""Features are read in pieces: memory does not grow with their number."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHILD = """
import sys, threading

import numpy as np
import torch

from unchoke.core.events import ignore
from unchoke.training.data import ArraySource, Problem
from unchoke.training.heads.heads import HeadConfig
from unchoke.training.heads.train_heads import train_heads

count, path = int(sys.argv[1]), sys.argv[2]
feats = np.memmap(path, dtype=np.float16, mode="r", shape=(count, 1280))
peak, running = 0, True


def anonymous_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))


def watch():
    global peak
    while running:
        peak = max(peak, anonymous_bytes())


watcher = threading.Thread(target=watch)
watcher.start()
torch.set_num_threads(1)
positions = np.arange(count)
splits = {"train": positions[: count * 8 // 10], "val": positions[count * 8 // 10 :]}
problem = Problem("classification", tuple("abcd"), positions % 4, splits, [f"id-{i}" for i in range(count)])
configs = [HeadConfig(epochs=1), HeadConfig("mlp", hidden=32, epochs=1)]
result = train_heads(ArraySource(feats), problem, configs, device=torch.device("cpu"), on_event=ignore)
result.best.predict(ArraySource(feats), positions, device=torch.device("cpu"))
running = False
watcher.join()
sys.stdout.write(str(peak))
"""


def peak_bytes(count: int, path: Path) -> int:
    with path.open("wb") as file:
        file.truncate(count * 1280 * 2)  # a sparse file: zeros that take no room on the disk
    run = subprocess.run([sys.executable, "-c", CHILD, str(count), str(path)], capture_output=True, text=True, check=True)
    return int(run.stdout)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's account of a process's memory")
def test_fifty_times_the_samples_take_less_than_100_mb_more(tmp_path):
    few, many = (peak_bytes(count, tmp_path / f"{count}.bin") for count in (1_000, 50_000))
    assert many - few < 100e6
