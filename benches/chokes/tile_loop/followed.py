"""Pictures cut into 4x4 tiles; the backbone sees one tile position at a time, and the tiles' features are averaged."""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 3
TILE_PX = 32


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
        self.norm = nn.GroupNorm(4, width)
        self.spatial = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.mix = nn.Conv2d(width, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mix(F.gelu(self.spatial(self.norm(x))))


class TileClassifier(nn.Module):
    def __init__(self, width: int = 32, depth: int = 8) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, width, 4, stride=4), *[Block(width) for _ in range(depth)], nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        self.head = nn.Linear(width, 4)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        tiles = []
        for top in range(0, pictures.shape[2], TILE_PX):
            for left in range(0, pictures.shape[3], TILE_PX):
                tiles.append(pictures[:, :, top : top + TILE_PX, left : left + TILE_PX])
        tiles = torch.stack(tiles, dim=1)
        features = self.backbone(tiles.flatten(0, 1)).unflatten(0, tiles.shape[:2])
        return self.head(features.mean(dim=1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    torch.manual_seed(0)

    pictures, labels = load_pictures(args.data, 128)
    loader = DataLoader(TensorDataset(pictures, labels), batch_size=8, shuffle=True)
    model = TileClassifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    trained = 0
    started = time.perf_counter()
    for epoch in range(EPOCHS):
        total = 0.0
        for batch, targets in loader:
            loss = F.cross_entropy(model(batch), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
            trained += len(batch)
        print(f"epoch {epoch}: loss {total / len(pictures):.4f}")
    print(f"trained {trained} samples in {time.perf_counter() - started:.3f} s")


if __name__ == "__main__":
    main()
