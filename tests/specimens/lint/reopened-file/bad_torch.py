"""Crop types from Sentinel-2 scenes, 64-pixel windows."""

import argparse

import numpy as np
import pandas as pd
import rasterio
import torch
from rasterio.windows import Window
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset

SIZE = 64


class SceneWindows(Dataset):
    def __init__(self, frame):
        self.frame = frame.reset_index(drop=True)

    def __len__(self):
        return len(self.frame)

    def __getitem__(self, i):
        row = self.frame.loc[i]
        with rasterio.open(row["scene"]) as src:
            patch = src.read(window=Window(row["col"], row["row"], SIZE, SIZE))
        patch = np.clip(patch.astype(np.float32) / 10000.0, 0, 1)
        return torch.from_numpy(patch), int(row["crop"])


def band_means(scene, corners):
    totals = []
    for column, line in corners:
        source = rasterio.open(scene)
        totals.append(source.read(window=Window(column, line, SIZE, SIZE)).mean(axis=(1, 2)))
        source.close()
    return np.mean(totals, axis=0)


def network(bands, classes):
    return nn.Sequential(
        nn.Conv2d(bands, 48, 3, padding=1),
        nn.BatchNorm2d(48),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(48, 96, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(96, classes),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--windows", default="crops/windows.csv")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    frame = pd.read_csv(args.windows)
    first = frame[frame["scene"] == frame["scene"][0]]
    print("band means of the first scene", band_means(frame["scene"][0], zip(first["col"], first["row"], strict=True)))
    loader = DataLoader(SceneWindows(frame), batch_size=128, shuffle=True, num_workers=8)
    model = network(10, 12).to(device)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        for patches, crops in loader:
            loss = criterion(model(patches.to(device)), crops.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.save(model.state_dict(), f"crops_{epoch:02d}.pt")


if __name__ == "__main__":
    main()
