"""Train a small CNN at 64 pixels, with random blur, brightness and saturation; the pictures are read into memory first."""

import argparse
import random
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE = 64


class Augmented(Dataset):
    def __init__(self, files):
        self.images = []
        self.labels = []
        for file in files:
            with Image.open(file) as image:
                image.draft("RGB", (800, 600))
                self.images.append(image.convert("RGB"))
            self.labels.append(int(file.parent.name[-1]))
        self.random = random.Random(0)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        factor = SIZE / image.width
        image = image.resize((SIZE, SIZE), Image.BILINEAR)
        image = image.filter(ImageFilter.GaussianBlur(self.random.uniform(4, 12) * factor))
        image = ImageEnhance.Brightness(image).enhance(self.random.uniform(0.8, 1.2))
        image = ImageEnhance.Color(image).enhance(self.random.uniform(0.7, 1.3))
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
        return pixels, self.labels[index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()

    torch.manual_seed(0)
    files = sorted((args.data / "jpeg_large").glob("*/*.jpg"))[::2]
    loader = DataLoader(Augmented(files), batch_size=4, shuffle=True)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 4),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    criterion = nn.CrossEntropyLoss()

    samples = 0
    start = time.perf_counter()
    for epoch in range(4):
        total = 0.0
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
            samples += len(labels)
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"trained {samples} samples in {time.perf_counter() - start:.3f} s")


if __name__ == "__main__":
    main()
