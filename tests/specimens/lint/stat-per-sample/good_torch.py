"""Leaf disease classification: which files exist is settled once, before training."""

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
CHECKPOINT = Path("runs/leaf.pt")


class LeafDataset(Dataset):
    def __init__(self, table, root, transform):
        self.samples = []
        for row in table.itertuples(index=False):
            cropped = root / "cropped" / f"{row.name}.jpg"
            path = cropped if cropped.is_file() else root / "original" / f"{row.name}.jpg"
            self.samples.append((path, CLASSES.index(row.label)))
        self.noted = {os.path.splitext(name)[0] for name in os.listdir(root / "notes")}
        self.transform = transform
        self.stat = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}

    def __len__(self):
        return len(self.samples)

    def exists(self, name):
        return name in self.noted

    def __getitem__(self, index):
        path, label = self.samples[index]
        name, _ = os.path.splitext(os.path.basename(path))
        weight = 2.0 if self.exists(name) else 1.0
        image = Image.open(path).convert("RGB")
        tensor = transforms.functional.normalize(self.transform(image), self.stat["mean"], self.stat["std"])
        return tensor, label, weight


def save(model, optimizer, epoch):
    temporary = CHECKPOINT.with_suffix(".tmp")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, temporary)
    os.replace(temporary, CHECKPOINT)


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    transform = transforms.Compose([transforms.RandomResizedCrop(224), transforms.ToTensor()])
    dataset = LeafDataset(pd.read_csv(ROOT / "train.csv"), ROOT, transform)
    loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=4)
    model = models.resnet18(weights="DEFAULT")
    model.fc = nn.Linear(model.fc.in_features, len(CLASSES))
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    criterion = nn.CrossEntropyLoss(reduction="none")
    first = 0
    if CHECKPOINT.exists():
        state = torch.load(CHECKPOINT, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1

    for epoch in range(first, 20):
        model.train()
        for images, labels, weights in loader:
            images, labels, weights = images.to(device), labels.to(device), weights.to(device)
            loss = (criterion(model(images), labels) * weights).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        save(model, optimizer, epoch)


if __name__ == "__main__":
    main()
