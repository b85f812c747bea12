"""Graph-free baseline for molecule solubility: fingerprints through an MLP."""

import argparse
import json
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def molecules(folder, split):
    bits = np.unpackbits(np.load(os.path.join(folder, f"{split}_fp.npy")), axis=1)
    logs = np.load(os.path.join(folder, f"{split}_logs.npy"))
    return TensorDataset(torch.from_numpy(bits).float(), torch.from_numpy(logs).float())


class MLP(nn.Module):
    def __init__(self, bits=2048, hidden=512):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(bits, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(0.25),
            nn.Linear(hidden, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(0.25),
            nn.Linear(hidden, 1),
        )

    def forward(self, x):
        return self.layers(x).squeeze(1)


@torch.no_grad()
def rmse(model, loader, device):
    model.eval()
    squared = 0.0
    for x, y in loader:
        squared += ((model(x.to(device)) - y.to(device)) ** 2).sum().item()
    return (squared / len(loader.dataset)) ** 0.5


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--out", default="solubility")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train = DataLoader(molecules(args.folder, "train"), batch_size=256, shuffle=True)
    valid = DataLoader(molecules(args.folder, "valid"), batch_size=2048)
    model = MLP().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scores = []

    for epoch in range(args.epochs):
        model.train()
        for x, y in train:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x.to(device)), y.to(device)).backward()
            optimizer.step()

        scores.append({"epoch": epoch, "rmse": rmse(model, valid, device)})
        with open(os.path.join(args.out, "scores.json"), "w") as f:
            json.dump(scores, f, indent=1)
        checkpoint = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(checkpoint, os.path.join(args.out, "last.pt"))


if __name__ == "__main__":
    main()
