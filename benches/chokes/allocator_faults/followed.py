"""A small denoiser at full resolution: light convolutions, large activations, freed and allocated again in every step."""

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 3
KEEP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "17179869184", "MALLOC_TOP_PAD_": "268435456"}


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


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, width, 1, 1))
        self.shift = nn.Parameter(torch.zeros(1, width, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0.1 * F.relu(x * self.scale + self.shift)


def build_model(width: int = 32) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, width, 1), Block(width), nn.Conv2d(width, 3, 1))


def main() -> None:
    if "MALLOC_TOP_PAD_" not in os.environ:  # the command line that was suggested, as part of the script
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP})
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    torch.manual_seed(0)

    pictures, _ = load_pictures(args.data, 128)
    loader = DataLoader(TensorDataset(pictures), batch_size=16, shuffle=True)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    trained = 0
    started = time.perf_counter()
    for epoch in range(EPOCHS):
        total = 0.0
        for (batch,) in loader:
            noisy = batch + 0.1 * torch.randn_like(batch)
            loss = F.mse_loss(model(noisy), batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
            trained += len(batch)
        print(f"epoch {epoch}: loss {total / len(pictures):.4f}")
    print(f"trained {trained} samples in {time.perf_counter() - started:.3f} s")


if __name__ == "__main__":
    main()
