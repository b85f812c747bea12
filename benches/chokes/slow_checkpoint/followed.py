"""Pictures told apart by comparing them with a bank of remembered embeddings; all of it is saved in every step."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 8
BANK_SIZE = 65_536
WIDTH = 256


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
    for before, after in ((3, 32), (32, 64), (64, WIDTH)):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.GroupNorm(8, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    torch.manual_seed(0)
    out = tempfile.TemporaryDirectory()

    pictures, _ = load_pictures(args.data, 32)
    loader = DataLoader(TensorDataset(pictures), batch_size=16, shuffle=True)
    model = build_model()
    bank = F.normalize(torch.randn(BANK_SIZE, WIDTH), dim=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    trained = slot = 0
    started = time.perf_counter()
    for epoch in range(EPOCHS):
        total = 0.0
        for (batch,) in loader:
            one = F.normalize(model(batch), dim=1)
            other = F.normalize(model(batch.flip(3)), dim=1)
            negatives = bank[torch.randint(BANK_SIZE, (1024,))]
            scores = torch.cat([(one * other).sum(dim=1, keepdim=True), one @ negatives.T], dim=1)
            loss = F.cross_entropy(scores / 0.2, torch.zeros(len(batch), dtype=torch.long))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bank[slot : slot + len(batch)] = one.detach()
            slot = (slot + len(batch)) % BANK_SIZE
            total += loss.item() * len(batch)
            trained += len(batch)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "bank": bank, "slot": slot}
        torch.save(state, Path(out.name, "last.pt"))
        print(f"epoch {epoch}: loss {total / len(pictures):.4f}")
    print(f"trained {trained} samples in {time.perf_counter() - started:.3f} s")


if __name__ == "__main__":
    main()
