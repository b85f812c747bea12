"""Train a small CNN on large windows of a scene, seen at 64 pixels, with two loader workers."""

import argparse
import random
import time
from pathlib import Path

import rasterio
import torch
import torch.nn.functional as F
from rasterio.windows import Window
from torch import nn
from torch.utils.data import DataLoader, Dataset

WINDOW = 512
SIZE = 64


class SceneWindows(Dataset):
    def __init__(self, path, count):
        self.path = path
        self.scene = None
        rng = random.Random(0)
        self.corners = [(rng.randrange(2048 - WINDOW), rng.randrange(2048 - WINDOW)) for _ in range(count)]

    def __len__(self):
        return len(self.corners)

    def __getitem__(self, index):
        if self.scene is None:  # one handle for each worker
            self.scene = rasterio.open(self.path)
        row, col = self.corners[index]
        pixels = self.scene.read(window=Window(col, row, WINDOW, WINDOW))
        side = int(col >= (2048 - WINDOW) // 2)
        window = F.adaptive_avg_pool2d(torch.from_numpy(pixels.astype("float64")), SIZE)
        return window.float() / 5000, side


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()

    torch.manual_seed(0)
    dataset = SceneWindows(args.data / "scene.tif", count=160)
    loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
    model = nn.Sequential(
        nn.Conv2d(4, 16, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(512, 2),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    samples = 0
    start = time.perf_counter()
    for epoch in range(4):
        total = 0.0
        for windows, sides in loader:
            loss = F.cross_entropy(model(windows), sides)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            samples += len(sides)
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"trained {samples} samples in {time.perf_counter() - start:.3f} s")


if __name__ == "__main__":
    main()
