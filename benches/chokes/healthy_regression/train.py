"""Brightness of a picture's quarters from its pixels and two columns of a table; a plain loop over tensors in memory."""

import argparse
import csv
import ctypes
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image

EPOCHS = 7
BATCH_SIZE = 16


def keep_freed_memory() -> None:
    """Large tensors come from the heap, and the heap is not handed back between steps (glibc only)."""
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(-4, 0)  # M_MMAP_MAX
    mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD


def load_table(folder: Path) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pictures, the table's columns, and the five values to predict."""
    pictures, columns = [], []
    with (folder / "labels.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            with Image.open(folder / "jpeg_small" / row["path"]) as picture:
                pixels = np.array(picture.convert("RGB"))
            pictures.append(torch.from_numpy(pixels).permute(2, 0, 1).float() / 255)
            columns.append([float(row["label"]), pixels.std() / 255])
    stacked = torch.stack(pictures)
    quarters = F.adaptive_avg_pool2d(stacked.mean(dim=1, keepdim=True), 2).flatten(1)
    return stacked, torch.tensor(columns, dtype=torch.float32), torch.cat([quarters, quarters.sum(dim=1, keepdim=True)], dim=1)


class Regressor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in ((3, 32), (32, 64), (64, 128)):
            layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.GroupNorm(8, after), nn.ReLU()]
            layers += [nn.Conv2d(after, after, 3, padding=1), nn.GroupNorm(8, after), nn.ReLU()]
        self.pixels = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.table = nn.Linear(2, 16)
        self.head = nn.Sequential(nn.Linear(4 * 128 + 16, 64), nn.ReLU(), nn.Linear(64, 5))

    def forward(self, pictures: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        return self.head(torch.cat([self.pixels(pictures), self.table(columns)], dim=1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    keep_freed_memory()
    torch.manual_seed(0)

    pictures, columns, values = load_table(args.data)
    held_out = torch.arange(len(pictures)) % 5 == 0
    rows = torch.nonzero(~held_out).flatten()
    model = Regressor()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    trained = 0
    started = time.perf_counter()
    for epoch in range(EPOCHS):
        total = 0.0
        for chosen in rows[torch.randperm(len(rows))].split(BATCH_SIZE):
            loss = F.smooth_l1_loss(model(pictures[chosen], columns[chosen]), values[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(chosen)
            trained += len(chosen)
        model.eval()
        with torch.inference_mode():
            error = F.l1_loss(model(pictures[held_out], columns[held_out]), values[held_out]).item()
        model.train()
        print(f"epoch {epoch}: loss {total / len(rows):.4f} held-out error {error:.4f}")
    print(f"trained {trained} samples in {time.perf_counter() - started:.3f} s")


if __name__ == "__main__":
    main()
