"""Blood cell types from 100 px crops, with a table of cell measurements as a second input for comparison."""

from pathlib import Path

import pandas as pd
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torchvision import models, transforms

ROOT = Path("cells")
FEATURES = ["area", "perimeter", "roundness", "mean_stain"]


class Cells(Dataset):
    def __init__(self, table, transform):
        self.files = table["file"].tolist()
        self.kinds = table["kind"].tolist()
        self.transform = transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        image = Image.open(ROOT / self.files[index]).convert("RGB")
        return self.transform(image), self.kinds[index]


class Measurements(Dataset):
    def __init__(self, table):
        self.values = torch.tensor(table[FEATURES].to_numpy(), dtype=torch.float32)
        self.kinds = torch.tensor(table["kind"].to_numpy())

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        return self.values[index], self.kinds[index]


def train(model, loader, device, name, epochs=3):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    model.to(device).train()
    for epoch in range(epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.save(model.state_dict(), f"{name}_{epoch}.pt")


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    table = pd.read_csv(ROOT / "cells.csv")
    flips = transforms.Compose([transforms.RandomHorizontalFlip(), transforms.RandomVerticalFlip(), transforms.ToTensor()])
    images = DataLoader(Cells(table, flips), batch_size=64, shuffle=True, num_workers=6, persistent_workers=True)
    measured = DataLoader(Measurements(table), batch_size=64, shuffle=True)
    kinds = torch.tensor(table["kind"].to_numpy())
    shuffled = DataLoader(TensorDataset(torch.randn(len(kinds), len(FEATURES)), kinds), batch_size=64, num_workers=0)

    network = models.resnet18(weights="DEFAULT")
    network.fc = nn.Linear(512, 8)
    train(network, images, device, "cells")
    train(nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 8)), measured, device, "measured")
    train(nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 8)), shuffled, device, "chance")


if __name__ == "__main__":
    main()
