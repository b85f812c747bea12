"""Wheat rust severity from hyperspectral pixel signatures (204 bands, 6 grades)."""

import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

GRADES = ["healthy", "trace", "low", "medium", "high", "dead"]


class Signatures(Dataset):
    def __init__(self, folder, split):
        self.bands = np.load(f"{folder}/{split}_bands.npy").astype("float32")
        self.grades = np.load(f"{folder}/{split}_grades.npy").astype("int64")

    def __len__(self):
        return len(self.grades)

    def __getitem__(self, i):
        return torch.from_numpy(self.bands[i])[None], self.grades[i]


class BandNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, 32, 9, padding=4), nn.BatchNorm1d(32), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(32, 64, 9, padding=4), nn.BatchNorm1d(64), nn.ReLU(), nn.AdaptiveAvgPool1d(1),
        )
        self.head = nn.Linear(64, classes)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = total = 0
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        right += (model(x).argmax(1) == y).sum().item()
        total += len(y)
    return right / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()

    train = DataLoader(Signatures(args.folder, "train"), batch_size=256, shuffle=True, num_workers=2, pin_memory=True)
    valid = DataLoader(Signatures(args.folder, "valid"), batch_size=1024, num_workers=2, pin_memory=True)

    model = BandNet(len(GRADES)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    weights = torch.tensor([1.0, 1.5, 1.5, 2.0, 2.0, 3.0], device="cuda")
    criterion = nn.CrossEntropyLoss(weight=weights)

    for epoch in range(args.epochs):
        model.train()
        for x, y in train:
            x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
            loss = criterion(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: accuracy {evaluate(model, valid):.3f}")

    torch.save(model.state_dict(), "bandnet.pt")


if __name__ == "__main__":
    main()
