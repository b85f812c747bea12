"""Train a small CNN in short epochs with spawned loader workers."""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler


class Pictures(Dataset):
    def __init__(self, root):
        self.files = sorted(root.glob("*/*.jpg"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with Image.open(self.files[index]) as image:
            pixels = np.array(image.convert("RGB"))
        return torch.from_numpy(pixels).permute(2, 0, 1).float() / 255, int(self.files[index].parent.name[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()

    torch.manual_seed(0)
    dataset = Pictures(args.data / "jpeg_small")
    loader = DataLoader(
        dataset,
        batch_size=8,
        sampler=RandomSampler(dataset, generator=torch.Generator().manual_seed(0)),
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
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

    samples = 0
    start = time.perf_counter()
    for epoch in range(2):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            samples += len(labels)
        print(f"epoch {epoch}: last loss {loss.item():.4f}")
    print(f"trained {samples} samples in {time.perf_counter() - start:.3f} s")


if __name__ == "__main__":
    main()
