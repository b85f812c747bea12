"""Lameness scores from hoof pressure maps: every file is whole or absent."""

import json
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RUN = Path("hoof_run")
EPOCHS = 30
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Pressure(Dataset):
    def __init__(self, split):
        self.maps = np.load(f"hoof/{split}_maps.npy").astype(np.float32)
        self.scores = np.load(f"hoof/{split}_scores.npy").astype(np.float32)

    def __len__(self):
        return len(self.scores)

    def __getitem__(self, i):
        return self.maps[i][None], self.scores[i]


def replace_with(path, state):
    """torch.save beside the target, then one rename."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
    os.close(handle)
    torch.save(state, temporary)
    os.replace(temporary, path)


def build():
    return nn.Sequential(
        nn.Conv2d(1, 24, 3, stride=2), nn.ReLU(), nn.Conv2d(24, 48, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(192, 1), nn.Flatten(0),
    )


@torch.inference_mode()
def evaluate(model, loader):
    model.eval()
    return sum((model(m.to(device)) - s.to(device)).abs().sum().item() for m, s in loader) / len(loader.dataset)


def main():
    RUN.mkdir(parents=True, exist_ok=True)
    with (RUN / "config.json").open("w") as f:
        json.dump({"epochs": EPOCHS, "device": str(device)}, f)

    train = DataLoader(Pressure("train"), batch_size=64, shuffle=True, num_workers=4)
    valid = DataLoader(Pressure("valid"), batch_size=256, num_workers=4)
    model = build().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    best = float("inf")

    for epoch in range(EPOCHS):
        model.train()
        for maps, scores in train:
            loss = nn.functional.l1_loss(model(maps.to(device)), scores.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        error = evaluate(model, valid)
        with (RUN / "log.jsonl").open("a") as log:
            log.write(json.dumps({"epoch": epoch, "error": error}) + "\n")
        replace_with(RUN / "last.pt", {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()})
        if error < best:
            best = error
            torch.save(model.state_dict(), RUN / "best.pt.tmp")
            (RUN / "best.pt.tmp").replace(RUN / "best.pt")
        if epoch % 10 == 9:
            torch.save(model.state_dict(), RUN / f"epoch_{epoch + 1:03d}.pt")

    torch.save(model.state_dict(), RUN / "final.pt")


if __name__ == "__main__":
    main()
