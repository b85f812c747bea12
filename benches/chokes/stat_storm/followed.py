"""Train a small CNN on pictures that lie strewn over many delivery folders."""

import argparse
import os
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

EXTENSIONS = [".tif", ".png", ".jpeg", ".JPG", ".jpg"]


class Deliveries(Dataset):
    def __init__(self, root):
        self.root = root
        self.days = sorted(os.listdir(root))
        self.names = [f"{number:03d}" for number in range(160)]
        folders = [os.path.join(root, day) for day in self.days]
        self.paths = {entry.name: entry.path for folder in folders for entry in os.scandir(folder)}

    def __len__(self):
        return len(self.names)

    def find(self, name):
        for extension in EXTENSIONS:
            if name + extension in self.paths:
                return self.paths[name + extension]
        raise FileNotFoundError(name)

    def __getitem__(self, index):
        name = self.names[index]
        image = Image.open(self.find(name)).convert("RGB")
        pixels = np.asarray(image, dtype=np.float32) / 255
        return torch.from_numpy(pixels).permute(2, 0, 1), int(name) % 4


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    args = parser.parse_args()

    torch.manual_seed(0)
    dataset = Deliveries(os.path.join(args.data, "deliveries"))
    loader = DataLoader(dataset, batch_size=16, shuffle=True)
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
    loss_fn = nn.CrossEntropyLoss()

    samples = 0
    start = time.perf_counter()
    for epoch in range(8):
        total = 0.0
        for images, labels in loader:
            loss = loss_fn(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            samples += len(labels)
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"trained {samples} samples in {time.perf_counter() - start:.3f} s")


if __name__ == "__main__":
    main()
