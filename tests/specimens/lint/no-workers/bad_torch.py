"""Lymph node patches (PatchCamelyon, 96 px): tumour or not."""

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import models

ROOT = Path("pcam")


class Patches(Dataset):
    def __init__(self, table, augment=False):
        self.ids = table["id"].tolist()
        self.labels = table["label"].astype("float32").tolist()
        self.augment = augment

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        pixels = np.asarray(Image.open(ROOT / "train" / f"{self.ids[index]}.tif").convert("RGB"))
        if self.augment and np.random.rand() < 0.5:
            pixels = pixels[:, ::-1]
        tensor = torch.from_numpy(pixels.transpose(2, 0, 1).copy()).float().div_(255)
        return tensor, self.labels[index]


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    hits = torch.zeros((), device=device)
    for x, y in loader:
        hits += ((model(x.to(device)).squeeze(1) > 0) == (y.to(device) > 0.5)).sum()
    return hits.item() / len(loader.dataset)


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    table = pd.read_csv(ROOT / "train_labels.csv").sample(frac=1, random_state=0)
    cut = int(0.9 * len(table))
    train_loader = DataLoader(
        Patches(table[:cut], augment=True),
        batch_size=128,
        shuffle=True,
    )
    valid_loader = DataLoader(Patches(table[cut:]), batch_size=512, num_workers=4)

    model = models.resnet34(weights="DEFAULT")
    model.fc = nn.Linear(512, 1)
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    for epoch in range(6):
        model.train()
        for x, y in train_loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x.to(device)).squeeze(1), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.save(model.state_dict(), f"pcam_{epoch}.pt")
        print(epoch, evaluate(model, valid_loader, device))


if __name__ == "__main__":
    main()
