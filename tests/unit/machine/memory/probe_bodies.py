"""What the probes of the tests run, each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from unchoke.core.errors import MachineError
from unchoke.machine.memory.memory_watch import MemoryWatch, own_bytes
from unchoke.machine.memory.probe import StepCost


def allocate(spec: dict[str, Any], batch: int) -> StepCost:
    """`spec["bytes_per_sample"]` for each sample, really touched, for a moment."""
    with MemoryWatch(exact=True) as watch:
        block = b"x" * (spec["bytes_per_sample"] * batch)
        del block
    return StepCost(watch.peak_bytes, 0.5, {"baseline": watch.start_bytes})


def train(spec: dict[str, Any], batch: int) -> StepCost:
    """A real step of a small convolutional network in torch."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    baseline_bytes = own_bytes()
    network = nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    optimizer = torch.optim.AdamW(network.parameters())
    with MemoryWatch(exact=True) as watch:
        for _ in range(2):
            started_s = time.perf_counter()
            network(torch.zeros(batch, 3, spec["px"], spec["px"])).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    return StepCost(watch.peak_bytes, time.perf_counter() - started_s, {"baseline": baseline_bytes})


def keep_growing(spec: dict[str, Any], batch: int) -> StepCost:
    """Never stops by itself, and never lets another thread run Python meanwhile."""
    kept = []
    while True:
        kept.append(b"x" * 20_000_000)


def die(spec: dict[str, Any], batch: int) -> StepCost:
    if batch > 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return StepCost(1, 1.0)


def ask_too_much_of_torch(spec: dict[str, Any], batch: int) -> StepCost:
    import torch

    return StepCost(torch.empty(10**15).numel(), 1.0)


def ask_too_much_of_numpy(spec: dict[str, Any], batch: int) -> StepCost:
    import numpy as np

    return StepCost(np.empty(10**15).size, 1.0)


def wrap_a_lack(spec: dict[str, Any], batch: int) -> StepCost:
    raise ValueError("a library's own words") from MemoryError("no room")


def abort_for_memory(spec: dict[str, Any], batch: int) -> StepCost:
    """As a C++ exception that nobody catches ends a process."""
    os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n")
    os.abort()


def abort(spec: dict[str, Any], batch: int) -> StepCost:
    os.write(2, b"something else is wrong\n")
    os.abort()


def hang(spec: dict[str, Any], batch: int) -> StepCost:
    time.sleep(600)
    raise AssertionError


def hang_with_a_child(spec: dict[str, Any], batch: int) -> StepCost:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(spec["file"]).write_text(str(child.pid))
    return hang(spec, batch)


def have_a_bug(spec: dict[str, Any], batch: int) -> StepCost:
    raise ValueError(f"cannot work with {batch}")


class UnpicklableError(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__("two needed, one kept")


def have_an_odd_bug(spec: dict[str, Any], batch: int) -> StepCost:
    raise UnpicklableError(1, 2)


def refuse(spec: dict[str, Any], batch: int) -> StepCost:
    raise MachineError("no such card", code="of-a-test", why="there is none", try_="--device cpu")


def be_chatty(spec: dict[str, Any], batch: int) -> StepCost:
    os.write(1, b"native noise\n")
    sys.stdout.write("python noise\n")
    return StepCost(batch, 1.0)


def tell_what_is_imported(spec: dict[str, Any], batch: int) -> StepCost:
    return StepCost(1, 1.0, dict.fromkeys(sys.modules, 1))


def report_to_file_and_wait(spec: dict[str, Any], batch: int) -> StepCost:
    Path(spec["file"]).write_text(str(os.getpid()))
    return hang(spec, batch)
