"""Beehive sound states (queenless, swarming, normal): training with a log that survives a kill."""

import csv
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 40
OUT = Path("hive_run")
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def hives(split):
    mfcc = torch.from_numpy(np.load(f"hives/{split}_mfcc.npy")).float()
    state = torch.from_numpy(np.load(f"hives/{split}_state.npy")).long()
    return TensorDataset(mfcc, state)


class Log:
    """One line an epoch, on disk before the next epoch begins."""

    def __init__(self, path, columns):
        self.path, self.columns = path, columns
        if not path.exists():
            self.write(columns)

    def write(self, row):
        with self.path.open("a", newline="") as f:
            csv.writer(f).writerow(row)


def train_epoch(model, loader, optimizer):
    model.train()
    total = torch.zeros((), device=device)
    for mfcc, state in loader:
        loss = nn.functional.cross_entropy(model(mfcc.to(device)), state.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total.item() / len(loader)


@torch.inference_mode()
def evaluate(model, loader):
    model.eval()
    wrong = []
    for mfcc, state in loader:
        wrong.append((model(mfcc.to(device)).argmax(1) != state.to(device)).float())
    return torch.cat(wrong).mean().item()


def main():
    OUT.mkdir(exist_ok=True)
    train = DataLoader(hives("train"), batch_size=128, shuffle=True)
    valid = DataLoader(hives("valid"), batch_size=1024)
    model = nn.Sequential(nn.Flatten(), nn.Linear(40 * 87, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 3)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    log = Log(OUT / "log.csv", ["epoch", "loss", "error"])

    # rate search: three short passes, looked at once
    tried = []
    for rate in (1e-4, 3e-4, 1e-3):
        probe = torch.optim.Adam(model.parameters(), lr=rate)
        tried.append((rate, train_epoch(model, train, probe)))
    print("rates:", tried)

    losses, errors = [], []
    for epoch in range(EPOCHS):
        losses.append(train_epoch(model, train, optimizer))
        errors.append(evaluate(model, valid))
        log.write([epoch, losses[-1], errors[-1]])
        state = {"model": model.state_dict(), "losses": losses, "errors": errors}
        torch.save(state, OUT / "last.pt.tmp")
        os.replace(OUT / "last.pt.tmp", OUT / "last.pt")

    plt.plot(losses, label="loss")
    plt.plot(errors, label="validation error")
    plt.legend()
    plt.savefig(OUT / "curves.png")


if __name__ == "__main__":
    main()
