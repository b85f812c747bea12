"""Fine-tuning: early layers frozen, later ones trained, pictures augmented, so nothing of the frozen part could be kept."""

import argparse
import ctypes
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset, random_split

EPOCHS = 10


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


def stage(before: int, after: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, stride=2, padding=1),
        nn.GroupNorm(8, after),
        nn.ReLU(),
        nn.Conv2d(after, after, 3, padding=1),
        nn.GroupNorm(8, after),
        nn.ReLU(),
    )


class FineTuned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.frozen = stage(3, 32).requires_grad_(False)
        self.trained = nn.Sequential(stage(32, 64), stage(64, 128), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(128, 4)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            early = self.frozen(pictures)
        return self.head(self.trained(early))


def augment(batch: torch.Tensor) -> torch.Tensor:
    """Each picture flipped or not, shifted, and a little brighter or darker: other pixels in every epoch."""
    flip = torch.rand(len(batch)) < 0.5
    batch = torch.where(flip[:, None, None, None], batch.flip(3), batch)
    down, right = torch.randint(-6, 7, (2,)).tolist()
    return batch.roll((down, right), dims=(2, 3)) * (0.8 + 0.4 * torch.rand(len(batch), 1, 1, 1))


@torch.inference_mode()
def evaluate(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    right = seen = 0
    for batch, targets in loader:
        right += (model(batch).argmax(dim=1) == targets).sum().item()
        seen += len(batch)
    model.train()
    return right / seen


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    keep_freed_memory()
    torch.manual_seed(0)

    dataset = TensorDataset(*load_pictures(args.data, 128))
    training, validation = random_split(dataset, [0.8, 0.2])
    train_loader = DataLoader(training, batch_size=16, shuffle=True)
    validation_loader = DataLoader(validation, batch_size=32)
    model = FineTuned()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-3)

    trained = 0
    started = time.perf_counter()
    for epoch in range(EPOCHS):
        total = 0.0
        for batch, targets in train_loader:
            loss = F.cross_entropy(model(augment(batch)), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
            trained += len(batch)
        accuracy = evaluate(model, validation_loader)
        print(f"epoch {epoch}: loss {total / len(training):.4f} accuracy {accuracy:.3f}")
    print(f"trained {trained} samples in {time.perf_counter() - started:.3f} s")


if __name__ == "__main__":
    main()
