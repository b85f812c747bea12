"""Train a small CNN on every eighth picture of one large folder."""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Thumbnails(Dataset):
    def __init__(self, folder, numbers):
        self.numbers = numbers
        self.files = {path.stem: path for path in Path(folder).iterdir()}

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, index):
        number = self.numbers[index]
        with Image.open(self.files[f"{number:04d}"]) as image:
            pixels = np.array(image.convert("RGB"))
        return torch.from_numpy(pixels).permute(2, 0, 1).float().div(255), number % 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, stride=2)
        self.conv2 = nn.Conv2d(16, 32, 3, stride=2)
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        return self.head(x.mean(dim=(2, 3)))


def train(model, loader, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    seen = 0
    begin = time.perf_counter()
    for epoch in range(epochs):
        losses = []
        for images, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            seen += len(images)
        print(f"epoch {epoch}: loss {np.mean(losses):.4f}")
    print(f"trained {seen} samples in {time.perf_counter() - begin:.3f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    torch.manual_seed(1)
    dataset = Thumbnails(args.data / "many", list(range(0, 4000, 8)))
    train(Net(), DataLoader(dataset, batch_size=20, shuffle=True), epochs=3)
