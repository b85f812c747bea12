"""A training of heads to be killed. Usage: FOLDER PAUSE_S; every epoch is a line in `epochs.log`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unchoke.core.events import Event, Progress
from unchoke.training.data import ArraySource, Problem
from unchoke.training.heads.heads import HeadConfig, save_head
from unchoke.training.heads.train_heads import train_heads


class SlowSource(ArraySource):
    pause_s = 0.0

    def rows(self, positions: Any, views: Any = 0) -> Any:
        time.sleep(self.pause_s)
        return super().rows(positions, views)


def main(folder: Path, pause_s: float) -> None:
    torch.set_num_threads(1)
    folder.mkdir(exist_ok=True)
    generator = np.random.default_rng(0)
    targets = generator.integers(0, 4, size=240)
    feats = generator.normal(size=(240, 2, 16)) * 3 + generator.normal(size=(4, 1, 16))[targets]
    order = generator.permutation(240)
    splits = {"train": order[:160], "val": order[160:]}
    problem = Problem("classification", tuple("abcd"), targets, splits, [f"id-{i}" for i in range(240)])
    configs = [
        HeadConfig(epochs=12, batch_size=32, patience=4),
        HeadConfig(lr=1e-2, mixup=0.3, label_smoothing=0.1, epochs=60, batch_size=32),
        HeadConfig("mlp", hidden=8, dropout=0.4, epochs=60, batch_size=32),
        HeadConfig("attention", hidden=8, epochs=10, batch_size=16, seed=2),
    ]
    source = SlowSource(feats)
    source.pause_s = pause_s
    with (folder / "epochs.log").open("a") as log:

        def show(event: Event) -> None:
            if isinstance(event, Progress):
                log.write(f"{event.done}\n")
                log.flush()

        cpu, checkpoint = torch.device("cpu"), folder / "last.pt"
        result = train_heads(source, problem, configs, device=cpu, checkpoint=checkpoint, checkpoint_every_s=0.0, on_event=show)
    save_head(result.best, folder / "best_head.pt", extra={"history": result.history})
