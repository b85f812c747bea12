"""A multi-label classifier; precision and recall are counted label by label in every step."""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 70
NUM_LABELS = 48


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


def attributes_of(pictures: torch.Tensor) -> torch.Tensor:
    """48 yes/no attributes of each picture: is this cell of a 4x4 grid brighter than usual in this channel?"""
    cells = F.adaptive_avg_pool2d(pictures, 4).flatten(1)
    return (cells > cells.median(dim=0).values).float()


def build_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(32 * 16, NUM_LABELS),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    torch.manual_seed(0)

    pictures, _ = load_pictures(args.data, 32)
    targets = attributes_of(pictures)
    loader = DataLoader(TensorDataset(pictures, targets), batch_size=32, shuffle=True)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    trained = 0
    started = time.perf_counter()
    for epoch in range(EPOCHS):
        total = 0.0
        hits = predicted = present = 0
        for batch, wanted in loader:
            outputs = model(batch)
            loss = F.binary_cross_entropy_with_logits(outputs, wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
            trained += len(batch)
            said_yes = outputs > 0
            is_there = wanted > 0.5
            predicted += said_yes.sum()
            present += is_there.sum()
            hits += (said_yes & is_there).sum()
        hits, predicted, present = hits.item(), predicted.item(), present.item()
        if epoch % 10 == 9:
            score = f"precision {hits / max(1, predicted):.3f} recall {hits / present:.3f}"
            print(f"epoch {epoch}: loss {total / len(pictures):.4f} {score}")
    print(f"trained {trained} samples in {time.perf_counter() - started:.3f} s")


if __name__ == "__main__":
    main()
