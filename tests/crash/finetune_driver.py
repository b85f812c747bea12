"""A training to be killed. Usage: FOLDER WORKERS EPOCHS.

Every step is a line in `steps.log`, written before the step is taken; what came of it is in `result.json`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from small_training import small
from unchoke.core import atomic
from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.features.encoders import digest_tensors

prepare_torchvision()
import timm  # noqa: E402, F401 (imported once, for all processes forked from this one)

CHECKPOINT_EVERY_S = 0.02


def main(folder: Path, workers: int, epochs: int) -> None:
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    log = os.open(folder / "steps.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def begin_step() -> bool:
        os.write(log, b"step\n")
        return False

    done = small(views=3, num_train=20).train(
        folder=folder / "checkpoints",
        workers=workers,
        stop=begin_step,
        checkpoint_every_s=CHECKPOINT_EVERY_S,
        epochs=epochs,
        ema_decay=0.95,
        mixup=0.2,
    )
    outputs = {split: digest_tensors({"outputs": torch.from_numpy(values)}) for split, values in done.outputs.items()}
    found = {"weights": digest_tensors(done.state), "outputs": outputs, "history": done.curve, "num_steps": done.num_steps}
    atomic.write_json(folder / "result.json", found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
