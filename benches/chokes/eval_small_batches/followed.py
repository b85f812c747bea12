"""A classifier that looks at its validation set, one picture at a time, after every other step."""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset, random_split

EPOCHS = 34


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


def build_model() -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        layers += [nn.Conv2d(after, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 4))


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
    torch.manual_seed(0)

    dataset = TensorDataset(*load_pictures(args.data, 32))
    training, validation = random_split(dataset, [0.6, 0.4], generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(0)
    train_loader = DataLoader(training, batch_size=16, shuffle=True, generator=generator)
    validation_loader = DataLoader(validation, batch_size=64)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    trained = 0
    started = time.perf_counter()
    for epoch in range(EPOCHS):
        total = 0.0
        for batch, targets in train_loader:
            loss = F.cross_entropy(model(batch), targets)
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
