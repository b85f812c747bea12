"""Train a small CNN on four-band arrays stored one to a file."""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class BandArrays(Dataset):
    def __init__(self, folder):
        self.files = [file.with_suffix(".npy") for file in sorted(folder.glob("*.npz"))]
        for file in self.files:
            if not file.exists():
                with np.load(file.with_suffix(".npz")) as archive:
                    np.save(file, archive["image"])

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        file = self.files[index]
        image = np.load(file)
        return torch.from_numpy(image), int(file.stem) % 4


class BandNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(4, 8, 4, stride=4), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU())
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.features(x).amax(dim=(2, 3)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=36)
    args = parser.parse_args()

    torch.manual_seed(0)
    loader = DataLoader(BandArrays(args.data / "npz"), batch_size=16, shuffle=True)
    model = BandNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    samples = 0
    start = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            total += float(loss)
            samples += len(labels)
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"trained {samples} samples in {time.perf_counter() - start:.3f} s")


if __name__ == "__main__":
    main()
