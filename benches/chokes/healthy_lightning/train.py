"""A classifier trained by Lightning: evaluated and saved once an epoch, no progress bar."""

import argparse
import ctypes
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset, random_split

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

import lightning as L  # noqa: E402
from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402

EPOCHS = 8


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


class Classifier(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in ((3, 32), (32, 64), (64, 128)):
            layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
            layers += [nn.Conv2d(after, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        self.net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 4))
        self.trained = 0
        self.started = 0.0

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        pictures, labels = batch
        self.trained += len(labels)
        return F.cross_entropy(self.net(pictures), labels)

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        pictures, labels = batch
        self.log("accuracy", (self.net(pictures).argmax(dim=1) == labels).float().mean(), batch_size=len(labels))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=2e-3)

    def on_train_start(self) -> None:
        self.started = time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    keep_freed_memory()
    L.seed_everything(0, verbose=False)
    out = tempfile.TemporaryDirectory()

    training, validation = random_split(TensorDataset(*load_pictures(args.data, 128)), [0.8, 0.2])
    train_loader = DataLoader(training, batch_size=16, shuffle=True)
    validation_loader = DataLoader(validation, batch_size=32)
    model = Classifier()
    trainer = L.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        logger=False,
        callbacks=[ModelCheckpoint(out.name)],
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(model, train_loader, validation_loader)
    print(f"accuracy {trainer.callback_metrics['accuracy'].item():.3f}")
    print(f"trained {model.trained} samples in {time.perf_counter() - model.started:.3f} s")


if __name__ == "__main__":
    main()
