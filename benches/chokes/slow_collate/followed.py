"""Train a small CNN on small pictures, with a collate function of its own."""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, root):
        self.files = sorted(root.glob("*/*.jpg"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with Image.open(self.files[index]) as image:
            pixels = np.array(image.convert("RGB")).transpose(2, 0, 1)
        return {"image": torch.from_numpy(pixels).float() / 255, "label": int(self.files[index].parent.name[-1])}


def collate(samples):
    images = []
    labels = []
    for sample in samples:
        images.append(sample["image"])
        labels.append(sample["label"])
    return {"image": torch.stack(images), "label": torch.tensor(labels)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()

    torch.manual_seed(0)
    loader = DataLoader(Pictures(args.data / "jpeg_small"), batch_size=16, shuffle=True, collate_fn=collate)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=4),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 4),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss()

    samples = 0
    start = time.perf_counter()
    for epoch in range(5):
        total = 0.0
        for batch in loader:
            optimizer.zero_grad()
            loss = criterion(model(batch["image"]), batch["label"])
            loss.backward()
            optimizer.step()
            total += loss.item()
            samples += len(batch["label"])
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"trained {samples} samples in {time.perf_counter() - start:.3f} s")


if __name__ == "__main__":
    main()
