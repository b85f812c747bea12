"""Train a small CNN to tell from a window of a satellite scene which quarter of the scene it comes from."""

import argparse
import random
import time
from pathlib import Path

import rasterio
import torch
from rasterio.windows import Window
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 64


class SceneWindows(Dataset):
    def __init__(self, path, count):
        self.path = path
        self.source = None
        rng = random.Random(0)
        self.corners = [(rng.randrange(2048 - SIDE), rng.randrange(2048 - SIDE)) for _ in range(count)]

    def __len__(self):
        return len(self.corners)

    def __getitem__(self, index):
        row, col = self.corners[index]
        if self.source is None:
            self.source = rasterio.open(self.path)
        pixels = self.source.read(window=Window(col, row, SIDE, SIDE))
        quarter = 2 * (row >= 1024) + (col >= 1024)
        return torch.from_numpy(pixels.astype("float32") / 5000), quarter


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()

    torch.manual_seed(3)
    loader = DataLoader(SceneWindows(args.data / "scene.tif", count=320), batch_size=16, shuffle=True)
    model = nn.Sequential(
        nn.Conv2d(4, 16, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 4),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss_fn = nn.CrossEntropyLoss()

    samples = 0
    start = time.perf_counter()
    for epoch in range(3):
        total = 0.0
        for windows, quarters in loader:
            optimizer.zero_grad()
            loss = loss_fn(model(windows), quarters)
            loss.backward()
            optimizer.step()
            total += loss.item()
            samples += len(quarters)
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"trained {samples} samples in {time.perf_counter() - start:.3f} s")


if __name__ == "__main__":
    main()
