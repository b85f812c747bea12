"""A small U-Net that finds the bright patches in four-band tiles stored as .npy files."""

import argparse
import ctypes
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, random_split

EPOCHS = 4


def keep_freed_memory() -> None:
    """Large tensors come from the heap, and the heap is not handed back between steps (glibc only)."""
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(-4, 0)  # M_MMAP_MAX
    mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD


class Tiles(Dataset):
    """A tile and its mask: where the tile is bright."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.npy"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        tile = torch.from_numpy(np.load(self.paths[index]))
        return tile, (tile.amax(dim=0, keepdim=True) > 0.6).float()


def convolve(before: int, after: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU())


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.top, self.middle, self.bottom = convolve(4, 16), convolve(16, 32), convolve(32, 64)
        self.rise, self.finish = convolve(64 + 32, 32), convolve(32 + 16, 16)
        self.head = nn.Conv2d(16, 1, 1)

    def forward(self, tiles: torch.Tensor) -> torch.Tensor:
        top = self.top(tiles)
        middle = self.middle(F.max_pool2d(top, 2))
        bottom = self.bottom(F.max_pool2d(middle, 2))
        raised = self.rise(torch.cat([F.interpolate(bottom, scale_factor=2), middle], dim=1))
        return self.head(self.finish(torch.cat([F.interpolate(raised, scale_factor=2), top], dim=1)))


@torch.inference_mode()
def overlap(model: nn.Module, loader: DataLoader) -> float:
    """Intersection over union of all tiles."""
    model.eval()
    both = either = 0.0
    for tiles, masks in loader:
        found = model(tiles) > 0
        both += (found & (masks > 0)).sum().item()
        either += (found | (masks > 0)).sum().item()
    model.train()
    return both / max(1.0, either)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    keep_freed_memory()
    torch.manual_seed(0)
    out = tempfile.TemporaryDirectory()

    training, validation = random_split(Tiles(args.data / "npy"), [80, 16])
    train_loader = DataLoader(training, batch_size=8, shuffle=True)
    validation_loader = DataLoader(validation, batch_size=16)
    model = UNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    trained = 0
    started = time.perf_counter()
    for epoch in range(EPOCHS):
        total = 0.0
        for tiles, masks in train_loader:
            loss = F.binary_cross_entropy_with_logits(model(tiles), masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(tiles)
            trained += len(tiles)
        score = overlap(model, validation_loader)
        torch.save(model.state_dict(), Path(out.name, "last.pt"))
        print(f"epoch {epoch}: loss {total / len(training):.4f} overlap {score:.3f}")
    print(f"trained {trained} samples in {time.perf_counter() - started:.3f} s")


if __name__ == "__main__":
    main()
