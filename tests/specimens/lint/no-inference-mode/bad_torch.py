"""Tree species from single-tree lidar point clouds (PointNet-like)."""

from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

ROOT = Path("als_trees")
SPECIES = ["spruce", "pine", "beech", "oak", "birch"]
POINTS = 1024
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Trees(Dataset):
    def __init__(self, table, training):
        self.names = table["tree"].tolist()
        self.species = [SPECIES.index(s) for s in table["species"]]
        self.training = training

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        cloud = np.load(ROOT / f"{self.names[i]}.npy")
        rng = np.random.default_rng(None if self.training else i)
        cloud = cloud[rng.choice(len(cloud), POINTS, replace=len(cloud) < POINTS)]
        cloud = cloud - cloud.mean(0)
        return torch.from_numpy(cloud.T.astype(np.float32)), self.species[i]


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.local = nn.Sequential(nn.Conv1d(3, 64, 1), nn.ReLU(), nn.Conv1d(64, 256, 1), nn.ReLU(), nn.Conv1d(256, 512, 1))
        self.out = nn.Sequential(nn.Linear(512, 128), nn.ReLU(), nn.Dropout(0.4), nn.Linear(128, len(SPECIES)))

    def forward(self, cloud):
        return self.out(self.local(cloud).max(2).values)


def validate(model, loader):
    model.eval()
    correct = 0
    for clouds, species in loader:
        logits = model(clouds.to(device))
        correct += (logits.argmax(1).cpu() == species).sum().item()
    return correct / len(loader.dataset)


def predict(model, table):
    model.eval()
    names = []
    for clouds, _ in DataLoader(Trees(table, False), batch_size=256, num_workers=4):
        best = model(clouds.to(device)).argmax(dim=1)
        names.extend(SPECIES[k] for k in best.tolist())
    return table.assign(predicted=names)


def main():
    table = pd.read_csv(ROOT / "trees.csv")
    parts = {name: part for name, part in table.groupby("split")}
    train_loader = DataLoader(Trees(parts["train"], True), batch_size=64, shuffle=True, num_workers=4)
    val_loader = DataLoader(Trees(parts["val"], False), batch_size=256, num_workers=4)

    model = PointNet().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(4):
        model.train()
        for clouds, species in train_loader:
            loss = F.cross_entropy(model(clouds.to(device)), species.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {validate(model, val_loader):.3f}")

    predict(model, parts["test"]).to_csv("predicted_species.csv", index=False)


if __name__ == "__main__":
    main()
