"""Sea ice charting on stored SAR patches, resumable; a linear baseline beside it."""

import json
import os

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.utils.data import DataLoader, Dataset

EPOCHS = 80
CHECKPOINT = "ice_chart.pt"
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Patches(Dataset):
    def __init__(self, split):
        self.sar = np.load(f"sar/{split}.npy").astype(np.float32)
        self.ice = np.load(f"sar/{split}_ice.npy").astype(np.int64)

    def __len__(self):
        return len(self.ice)

    def __getitem__(self, i):
        return self.sar[i], self.ice[i]


def unet_like():
    return nn.Sequential(
        nn.Conv2d(2, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=2, dilation=2), nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=4, dilation=4), nn.ReLU(), nn.Conv2d(64, 5, 1),
    )


def save_state(model, optimizer, epoch):
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    torch.save(state, CHECKPOINT + ".tmp")
    os.replace(CHECKPOINT + ".tmp", CHECKPOINT)


def first_epoch(model, optimizer):
    if not os.path.exists(CHECKPOINT):
        return 0
    state = torch.load(CHECKPOINT, map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"] + 1


def train_epoch(model, loader, optimizer):
    model.train()
    for sar, ice in loader:
        loss = nn.functional.cross_entropy(model(sar.to(device)), ice.to(device), ignore_index=-1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


def baseline(data):
    x, y = data.sar.mean((2, 3)), data.ice[:, 0, 0]
    for c in (0.01, 0.1, 1.0, 10.0, 100.0):
        print("baseline", c, LogisticRegression(C=c, max_iter=500).fit(x, y).score(x, y))


def main():
    data = Patches("train")
    baseline(data)
    loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=4)
    model = unet_like().to(device)

    # two passes at a low rate settle the first layer before the real run
    warm = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(2):
        train_epoch(model, loader, warm)

    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    for epoch in range(first_epoch(model, optimizer), EPOCHS):
        train_epoch(model, loader, optimizer)
        save_state(model, optimizer, epoch)

    with open("ice_chart.json", "w") as f:
        json.dump({"epochs": EPOCHS, "patches": len(data)}, f)


if __name__ == "__main__":
    main()
