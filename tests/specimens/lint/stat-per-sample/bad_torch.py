"""Leaf disease classification from field photographs."""

import os
from pathlib import Path

import pandas as pd
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import models, transforms

ROOT = Path("data/leaves")
CLASSES = ["healthy", "rust", "scab"]


class LeafDataset(Dataset):
    def __init__(self, table, root, transform):
        self.rows = list(table.itertuples(index=False))
        self.root = root
        self.transform = transform

    def __len__(self):
        return len(self.rows)

    def locate(self, name):
        path = self.root / "cropped" / f"{name}.jpg"
        if path.is_file():
            return path
        return self.root / "original" / f"{name}.jpg"

    def __getitem__(self, index):
        row = self.rows[index]
        notes = os.path.join(self.root, "notes", row.name + ".txt")
        weight = 2.0 if os.path.exists(notes) else 1.0
        image = Image.open(self.locate(row.name)).convert("RGB")
        return self.transform(image), CLASSES.index(row.label), weight


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    transform = transforms.Compose(
        [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    )
    dataset = LeafDataset(pd.read_csv(ROOT / "train.csv"), ROOT, transform)
    loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=4)
    model = models.resnet18(weights="DEFAULT")
    model.fc = nn.Linear(model.fc.in_features, len(CLASSES))
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    criterion = nn.CrossEntropyLoss(reduction="none")

    for epoch in range(3):
        model.train()
        for images, labels, weights in loader:
            images, labels, weights = images.to(device), labels.to(device), weights.to(device)
            loss = (criterion(model(images), labels) * weights).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} done")
    torch.save(model.state_dict(), "leaf_resnet18.pt")


if __name__ == "__main__":
    main()
