"""Sorts scanned herbarium sheets into families with a small convolutional network."""

import csv
import os

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset
from torchvision.io import read_image


def build(num_classes):
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, stride=2), nn.ReLU(),
        nn.Conv2d(32, 64, 5, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, num_classes),
    )


if __name__ == "__main__":
    device = "cuda" if torch.cuda.is_available() else "cpu"

    class Sheets(Dataset):
        def __init__(self, table, root):
            with open(table, newline="") as stream:
                self.rows = [(os.path.join(root, row["file"]), int(row["family"])) for row in csv.DictReader(stream)]

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, index):
            path, family = self.rows[index]
            return read_image(path).float() / 255, family

    sheets = Sheets("herbarium/train.csv", "herbarium/256px")
    loader = DataLoader(sheets, batch_size=64, shuffle=True, num_workers=os.cpu_count())
    model = build(num_classes=112).to(device)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(1, 9):
        for images, families in loader:
            loss = nn.functional.cross_entropy(model(images.to(device)), families.to(device))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        torch.save(model.state_dict(), f"herbarium/epoch{epoch:02d}.pt")
        print("finished epoch", epoch)
