"""A classifier heavy enough that two lasting workers decode small JPEGs well ahead of it."""

import argparse
import ctypes
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset

EPOCHS = 4


def keep_freed_memory() -> None:
    """Large tensors come from the heap, and the heap is not handed back between steps (glibc only)."""
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(-4, 0)  # M_MMAP_MAX
    mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD


class Pictures(Dataset):
    """Pictures that already have the size the network wants."""

    def __init__(self, folder: Path) -> None:
        classes = sorted(folder.iterdir())
        self.samples = [(path, label) for label, name in enumerate(classes) for path in sorted(name.glob("*.jpg"))]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self.samples[index]
        with Image.open(path) as picture:
            pixels = np.array(picture.convert("RGB"))
        return torch.from_numpy(pixels).permute(2, 0, 1), label


def build_model() -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        layers += [nn.Conv2d(after, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        layers += [nn.Conv2d(after, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 4))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    keep_freed_memory()
    torch.manual_seed(0)

    dataset = Pictures(args.data / "jpeg_small")
    loader = DataLoader(dataset, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True, prefetch_factor=4)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    trained = 0
    started = time.perf_counter()
    for epoch in range(EPOCHS):
        total = 0.0
        for batch, targets in loader:
            loss = F.cross_entropy(model(batch.float() / 255), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
            trained += len(batch)
        print(f"epoch {epoch}: loss {total / len(dataset):.4f}")
    print(f"trained {trained} samples in {time.perf_counter() - started:.3f} s")


if __name__ == "__main__":
    main()
