"""Fabric defects: small grey patches, kept in memory after the first epoch."""

from functools import lru_cache
from pathlib import Path

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T


class FabricPatches(Dataset):
    def __init__(self, paths, labels):
        self.paths = paths
        self.labels = labels
        self.transform = T.Compose([T.RandomHorizontalFlip(), T.RandomCrop(112, padding=8), T.ToTensor()])
        self.cache = {}

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        if index not in self.cache:
            patch = Image.open(self.paths[index]).convert("L")
            self.cache[index] = self.transform(patch)
        return self.cache[index], self.labels[index]


class WeavePairs(Dataset):
    def __init__(self, pairs):
        self.pairs = pairs
        self.jitter = T.Compose([T.RandomCrop(112), T.RandomVerticalFlip(), T.ToTensor()])

    def __len__(self):
        return len(self.pairs)

    @lru_cache(maxsize=None)
    def view(self, path):
        return self.jitter(Image.open(path).convert("L"))

    def __getitem__(self, index):
        left, right, same = self.pairs[index]
        return self.view(left), self.view(right), same


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    paths = sorted(Path("fabric/patches").glob("*/*.png"))
    data = FabricPatches(paths, [int(path.parent.name == "defect") for path in paths])
    loader = DataLoader(data, batch_size=128, shuffle=True, num_workers=2, persistent_workers=True)
    model = nn.Sequential(nn.Conv2d(1, 24, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, 2))
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters())
    criterion = nn.CrossEntropyLoss()
    for epoch in range(15):
        for patches, labels in loader:
            loss = criterion(model(patches.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.save(model.state_dict(), f"fabric_{epoch:02d}.pt")


if __name__ == "__main__":
    main()
