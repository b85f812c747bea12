"""One of several processes that train together; the environment says which, as a launcher would.

Runs every scene below and leaves what came of it in FOLDER, one file for each scene and process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from small_training import NO_MEMORY, Shortage, after, small
from unchoke.core.errors import DataError, Interrupted
from unchoke.features.encoders import digest_tensors
from unchoke.training.network.loop_config import LoopResult
from unchoke.training.network.parallel import Ranks, joined

Scene = Callable[[Ranks, Path], LoopResult]
FIFTY: dict[str, Any] = {"epochs": 50, "batch_size": 23, "sub_batch": 23, "warmup_epochs": 5.0}
"""One batch an epoch, so that the curve has the loss of every step; 12 samples for one process and 11 for the other."""


def fifty_steps(ranks: Ranks, folder: Path) -> LoopResult:
    return small(num_train=23, cut="-2").train(ranks=ranks, **FIFTY)


def odd_batches(ranks: Ranks, folder: Path) -> LoopResult:
    """The last batch of an epoch has one sample: one of the processes has nothing to do."""
    return small("test_efficientnet", num_train=22).train(ranks=ranks, batch_size=7, sub_batch=2, ema_decay=0.9)


def mixed(ranks: Ranks, folder: Path) -> LoopResult:
    return small(kind="values", num_inputs=2).train(ranks=ranks, batch_size=9, mixup=0.4)


def one_is_hungry(ranks: Ranks, folder: Path) -> LoopResult:
    """Only the last process runs out of memory; the others wait for it."""
    shortage = Shortage(lambda samples, call: samples > 2, NO_MEMORY) if ranks.rank == 1 else None
    return small(shortage=shortage).train(ranks=ranks)


def one_stops(ranks: Ranks, folder: Path) -> LoopResult:
    """Only the last process is asked to stop; then they go on together."""
    stop = after(7) if ranks.rank == ranks.world - 1 and ranks.world > 1 else lambda: False
    try:
        small().train(ranks=ranks, folder=folder, stop=stop)
    except Interrupted:
        (folder / f"stopped-{ranks.rank}").touch()
    return small().train(ranks=ranks, folder=folder)


def batch_statistics(ranks: Ranks, folder: Path) -> LoopResult:
    """Without a stop, and then with one, after which everyone goes on from the leader's checkpoint."""
    unbroken = small("test_efficientnet", cut="-2").train(ranks=ranks, batch_norm="train")
    (folder / f"unbroken-{ranks.rank}").write_text(f"{digest_tensors(unbroken.state)} {unbroken.curve}")
    with suppress(Interrupted):
        small("test_efficientnet", cut="-2").train(ranks=ranks, batch_norm="train", folder=folder / "bn", stop=after(7))
    return small("test_efficientnet", cut="-2").train(ranks=ranks, batch_norm="train", folder=folder / "bn")


def diverges(ranks: Ranks, folder: Path) -> LoopResult:
    try:
        small(kind="values").train(ranks=ranks, lr=1e30, body_lr=1e30, clip=0.0, warmup_epochs=0.0)
    except DataError as error:
        (folder / f"diverged-{ranks.rank}").write_text(f"{error.code}: {error.what}")
    return small(num_train=16).train(ranks=ranks, epochs=1)


SCENES: dict[str, Scene] = {
    scene.__name__: scene for scene in (fifty_steps, odd_batches, mixed, one_is_hungry, one_stops, batch_statistics, diverges)
}


def run_as(variables: dict[str, str], folder: Path) -> None:
    """The whole of one process; `variables` say which of them it is."""
    os.environ.update(variables)
    torch.set_num_threads(1)
    with joined() as ranks:
        for name, scene in SCENES.items():
            done = scene(ranks, folder)
            found = {"state": done.state, "curve": done.curve, "outputs": done.outputs, "halvings": done.halvings}
            torch.save({**found, "resumed_step": done.resumed_step}, folder / f"{name}-{ranks.rank}.pt")
