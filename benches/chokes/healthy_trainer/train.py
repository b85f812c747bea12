"""A small vision transformer, built from its configuration, trained by the Hugging Face Trainer."""

import argparse
import ctypes
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1")

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

DECLARED: list[torch.library.Library] = []  # a library undoes its declarations when it is collected


def ready_torchvision() -> None:
    """The import below loads torchvision, whose ordinary wheel fails beside a CPU build of torch: declare what it misses."""
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        DECLARED.append(torch.library.Library("torchvision", "FRAGMENT"))
        for operator in ("nms", "qnms"):
            DECLARED[0].define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


ready_torchvision()

from transformers import Trainer, TrainerCallback, TrainingArguments, ViTConfig, ViTForImageClassification  # noqa: E402

EPOCHS = 5


def keep_freed_memory() -> None:
    """Large tensors come from the heap, and the heap is not handed back between steps (glibc only)."""
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(-4, 0)  # M_MMAP_MAX
    mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD


def load_pictures(folder: Path, size_px: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Every picture of every class folder, decoded once into memory."""
    pictures, labels = [], []
    for label, class_folder in enumerate(sorted((folder / "jpeg_small").iterdir())):
        for path in sorted(class_folder.glob("*.jpg")):
            with Image.open(path) as picture:
                pixels = np.array(picture.convert("RGB").resize((size_px, size_px)))
            pictures.append(torch.from_numpy(pixels).permute(2, 0, 1).float() / 255)
            labels.append(label)
    return torch.stack(pictures), torch.tensor(labels)


class Pictures(Dataset):
    def __init__(self, pictures: torch.Tensor, labels: torch.Tensor) -> None:
        self.pictures, self.labels = pictures, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"pixel_values": self.pictures[index], "labels": self.labels[index]}


class Stopwatch(TrainerCallback):
    started = 0.0

    def on_train_begin(self, *args, **kwargs) -> None:
        self.started = time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    keep_freed_memory()
    torch.manual_seed(0)
    out = tempfile.TemporaryDirectory()

    pictures, labels = load_pictures(args.data, 128)
    held_out = torch.arange(len(labels)) % 5 == 0
    size = {"image_size": 128, "patch_size": 16, "hidden_size": 192, "intermediate_size": 768}
    model = ViTForImageClassification(ViTConfig(**size, num_hidden_layers=6, num_attention_heads=3, num_labels=4))
    settings = TrainingArguments(
        output_dir=out.name,
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=32,
        learning_rate=5e-4,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        logging_strategy="epoch",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    stopwatch = Stopwatch()
    trainer = Trainer(
        model=model,
        args=settings,
        train_dataset=Pictures(pictures[~held_out], labels[~held_out]),
        eval_dataset=Pictures(pictures[held_out], labels[held_out]),
        callbacks=[stopwatch],
    )
    trainer.train()
    trained = EPOCHS * int((~held_out).sum())
    print(f"trained {trained} samples in {time.perf_counter() - stopwatch.started:.3f} s")


if __name__ == "__main__":
    main()
