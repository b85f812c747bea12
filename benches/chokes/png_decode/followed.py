"""Train a small network on PNG pictures in grey at their full size, for many epochs."""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


class PngFolder(Dataset):
    def __init__(self, root):
        self.classes = sorted(folder.name for folder in root.iterdir())
        self.samples = [(file, label) for label, name in enumerate(self.classes) for file in sorted((root / name).glob("*.png"))]
        self.pictures = [self.load(file) for file, _ in self.samples]

    def load(self, file):
        with Image.open(file) as image:
            return np.array(image.convert("L"))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        _, label = self.samples[index]
        return torch.from_numpy(self.pictures[index]), label


class PatchNet(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.patches = nn.Conv2d(1, 12, 16, stride=16)
        self.mix = nn.Conv2d(12, 24, 3, stride=2)
        self.head = nn.Linear(24, num_classes)

    def forward(self, images):
        x = images.unsqueeze(1).float() / 255
        x = torch.relu(self.patches(x))
        x = torch.relu(self.mix(x))
        return self.head(x.mean(dim=(2, 3)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=24)
    args = parser.parse_args()

    torch.manual_seed(0)
    dataset = PngFolder(args.data / "png")
    loader = DataLoader(dataset, batch_size=8, shuffle=True)
    model = PatchNet(len(dataset.classes))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    samples = 0
    start = time.perf_counter()
    for epoch in range(args.epochs):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            samples += len(labels)
        print(f"epoch {epoch}: last loss {loss.item():.4f}")
    print(f"trained {samples} samples in {time.perf_counter() - start:.3f} s")


if __name__ == "__main__":
    main()
