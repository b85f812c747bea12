"""A classifier that writes its whole history, with the norm of every gradient, to a JSON file after every step."""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 46


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
    for before, after in ((3, 32), (32, 64), (64, 64)):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.GroupNorm(8, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 4))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    torch.manual_seed(0)
    out = tempfile.TemporaryDirectory()

    pictures, labels = load_pictures(args.data, 32)
    loader = DataLoader(TensorDataset(pictures, labels), batch_size=16, shuffle=True)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    trained = 0
    log = Path(out.name, "history.jsonl").open("a")  # noqa: SIM115
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
            norms = torch.stack([parameter.grad.norm() for parameter in model.parameters()]).tolist()
            names = [name for name, _ in model.named_parameters()]
            row = {"epoch": epoch, "loss": loss.item(), "norms": dict(zip(names, norms, strict=True))}
            log.write(json.dumps(row) + "\n")
        if epoch % 10 == 9:
            print(f"epoch {epoch}: loss {total / len(pictures):.4f}")
    log.close()
    print(f"trained {trained} samples in {time.perf_counter() - started:.3f} s")


if __name__ == "__main__":
    main()
