"""A head trained on a pretrained backbone: only the head's parameters are given to the optimizer."""

import argparse
import ctypes
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 18


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


def keep_freed_memory() -> None:
    """Large tensors come from the heap, and the heap is not handed back between steps (glibc only)."""
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(-4, 0)  # M_MMAP_MAX
    mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD


def build_encoder() -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in ((3, 24), (24, 48), (48, 96), (96, 192)):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.GroupNorm(8, after), nn.ReLU()]
        layers += [nn.Conv2d(after, after, 3, padding=1), nn.GroupNorm(8, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def augment(batch: torch.Tensor) -> torch.Tensor:
    """Each picture flipped or not, and a little brighter or darker: other pixels in every epoch."""
    flip = torch.rand(len(batch)) < 0.5
    batch = torch.where(flip[:, None, None, None], batch.flip(3), batch)
    return batch * (0.8 + 0.4 * torch.rand(len(batch), 1, 1, 1))


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = build_encoder()
        self.head = nn.Sequential(nn.Linear(192, 256), nn.ReLU(), nn.Linear(256, 4))

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            features = self.backbone(pictures)
        return self.head(features)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    keep_freed_memory()
    torch.manual_seed(0)

    pictures, labels = load_pictures(args.data, 64)
    loader = DataLoader(TensorDataset(pictures, labels), batch_size=16, shuffle=True)
    model = Classifier()
    model.train()
    model.backbone.requires_grad_(False)
    optimizer = torch.optim.AdamW(model.head.parameters(), lr=2e-3)

    trained = 0
    started = time.perf_counter()
    for epoch in range(EPOCHS):
        total = 0.0
        for batch, targets in loader:
            loss = F.cross_entropy(model(augment(batch)), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
            trained += len(batch)
        print(f"epoch {epoch}: loss {total / len(pictures):.4f}")
    print(f"trained {trained} samples in {time.perf_counter() - started:.3f} s")


if __name__ == "__main__":
    main()
