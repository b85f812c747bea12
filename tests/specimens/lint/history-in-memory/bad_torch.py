"""LSTM for glacier melt water runoff; yearly folds were prepared by prepare_runoff.py."""

import json
import os

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
epochs = 50


class Runoff(nn.Module):
    def __init__(self, n_inputs, hidden=64):
        super().__init__()
        self.lstm = nn.LSTM(n_inputs, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        h, _ = self.lstm(x)
        return self.out(h[:, -1]).squeeze(-1)


def load(split):
    x, y = np.load(f"runoff/{split}_x.npy"), np.load(f"runoff/{split}_y.npy")
    return TensorDataset(torch.from_numpy(x).float(), torch.from_numpy(y).float())


def train_epoch(model, loader, optimizer, criterion):
    model.train()
    total = torch.zeros((), device=device)
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return (total / len(loader)).item()


@torch.no_grad()
def valid_epoch(model, loader, criterion):
    model.eval()
    losses = [criterion(model(x.to(device)), y.to(device)).item() for x, y in loader]
    return sum(losses) / len(losses)


def main():
    train_loader = DataLoader(load("train"), batch_size=256, shuffle=True)
    valid_loader = DataLoader(load("valid"), batch_size=1024)
    model = Runoff(n_inputs=8).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.MSELoss()
    os.makedirs("models", exist_ok=True)

    history = {"train": [], "valid": []}
    for epoch in range(epochs):
        history["train"].append(train_epoch(model, train_loader, optimizer, criterion))
        history["valid"].append(valid_epoch(model, valid_loader, criterion))
        print(f"[{epoch + 1}/{epochs}] {history['train'][-1]:.4f} {history['valid'][-1]:.4f}")
        torch.save(model.state_dict(), f"models/runoff_{epoch:02d}.pt")

    with open("runoff_history.json", "w") as f:
        json.dump(history, f)
    plt.plot(history["train"], label="train")
    plt.plot(history["valid"], label="valid")
    plt.legend()
    plt.savefig("runoff_losses.png")


if __name__ == "__main__":
    main()
