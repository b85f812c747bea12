"""Crop type from Sentinel-2 pixel time series (36 dates x 10 bands)."""

import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Series(Dataset):
    def __init__(self, region):
        self.values = np.load(f"s2/{region}_values.npy")
        self.crops = np.load(f"s2/{region}_crops.npy").astype(np.int64)

    def __len__(self):
        return len(self.crops)

    def __getitem__(self, i):
        return self.values[i].astype(np.float32) / 10_000, self.crops[i]


class TempCNN(nn.Module):
    def __init__(self, bands=10, classes=14, width=128):
        super().__init__()
        layers = []
        for n_in in (bands, width, width):
            layers += [nn.Conv1d(n_in, width, 5, padding=2), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.3)]
        self.conv = nn.Sequential(*layers)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.conv(x.transpose(1, 2)).amax(2))


def train_epoch(model, loader, criterion, optimizer):
    model.train()
    running_loss, correct, seen = 0.0, 0, 0
    for values, crops in loader:
        values, crops = values.to(device, non_blocking=True), crops.to(device, non_blocking=True)
        optimizer.zero_grad()
        logits = model(values)
        loss = criterion(logits, crops)
        loss.backward()
        optimizer.step()
        running_loss += loss.item() * len(crops)
        correct += (logits.argmax(1) == crops).sum().item()
        seen += len(crops)
    return running_loss / seen, correct / seen


def main():
    pinned = device.type == "cuda"
    loader = DataLoader(Series("north"), batch_size=512, shuffle=True, num_workers=4, pin_memory=pinned)
    model = TempCNN().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    os.makedirs("ckpt", exist_ok=True)
    for epoch in range(15):
        loss, accuracy = train_epoch(model, loader, criterion, optimizer)
        print(f"{epoch + 1:2d}  loss {loss:.4f}  accuracy {accuracy:.3f}")
        torch.save(model.state_dict(), f"ckpt/tempcnn_{epoch:02d}.pt")


if __name__ == "__main__":
    main()
