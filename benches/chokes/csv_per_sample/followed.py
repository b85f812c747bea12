"""Train a small CNN on thumbnails whose labels stand in a table."""

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


class LabelledThumbnails(Dataset):
    def __init__(self, root, table, names):
        self.root = root
        self.names = names
        self.labels = pd.read_csv(table).set_index("path")["label"][names].tolist()

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        name = self.names[index]
        with Image.open(self.root / name) as image:
            pixels = np.array(image.convert("RGB"))
        return torch.from_numpy(pixels).permute(2, 0, 1).float() / 255, self.labels[index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()

    torch.manual_seed(0)
    names = [f"{number:04d}.jpg" for number in range(0, 4000, 5)]
    dataset = LabelledThumbnails(args.data / "many", args.data / "many.csv", names)
    loader = DataLoader(dataset, batch_size=32, shuffle=True)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 4),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss()

    samples = 0
    start = time.perf_counter()
    for epoch in range(2):
        total = 0.0
        for images, labels in loader:
            loss = criterion(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            samples += len(labels)
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"trained {samples} samples in {time.perf_counter() - start:.3f} s")


if __name__ == "__main__":
    main()
