"""Train a small CNN at 64 pixels on large camera pictures."""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE = 64


class CameraPictures(Dataset):
    def __init__(self, root):
        self.files = sorted(root.glob("*/*.jpg"))
        self.classes = sorted({file.parent.name for file in self.files})

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        file = self.files[index]
        with Image.open(file) as image:
            image.draft("RGB", (128, 128))
            image = image.convert("RGB").resize((SIZE, SIZE), Image.BILINEAR)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
        return pixels, self.classes.index(file.parent.name)


def build_model(num_classes):
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, num_classes),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()

    torch.manual_seed(0)
    dataset = CameraPictures(args.data / "jpeg_large")
    loader = DataLoader(dataset, batch_size=4, shuffle=True)
    model = build_model(len(dataset.classes))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    samples = 0
    start = time.perf_counter()
    for epoch in range(2):
        running = 0.0
        for images, targets in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), targets)
            loss.backward()
            optimizer.step()
            running += loss.item() * len(targets)
            samples += len(targets)
        print(f"epoch {epoch}: loss {running / len(dataset):.4f}")
    print(f"trained {samples} samples in {time.perf_counter() - start:.3f} s")


if __name__ == "__main__":
    main()
