"""Counts pollen grains in microscope fields: regression on 192 px fields."""

import csv
import os

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset
from torchvision.io import read_image


class Fields(Dataset):
    def __init__(self, table, root):
        with open(table, newline="") as stream:
            self.rows = [(os.path.join(root, row["field"]), float(row["grains"])) for row in csv.DictReader(stream)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        path, grains = self.rows[index]
        return read_image(path).float() / 255, torch.tensor([grains])


def build():
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, stride=2), nn.ReLU(),
        nn.Conv2d(24, 48, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 1),
    )


if __name__ == "__main__":

    class Meter:
        """A running mean that stays on the device."""

        def __init__(self, device):
            self.total = torch.zeros((), device=device)
            self.count = 0

        def add(self, value, n):
            self.total += value.detach() * n
            self.count += n

    device = "cuda" if torch.cuda.is_available() else "cpu"
    loader = DataLoader(Fields("pollen/train.csv", "pollen/192px"), batch_size=64, shuffle=True, num_workers=os.cpu_count())
    model = build().to(device)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(1, 16):
        meter = Meter(device)
        for images, grains in loader:
            loss = nn.functional.smooth_l1_loss(model(images.to(device)), grains.to(device))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            meter.add(loss, len(images))
        torch.save(model.state_dict(), f"pollen/epoch{epoch:02d}.pt")
        print(epoch, (meter.total / meter.count).item())
