"""Crop types from Sentinel-2 scenes: each worker opens a scene once and keeps it."""

import argparse

import h5py
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
        self.opened = {}

    def __len__(self):
        return len(self.frame)

    def scene(self, path):
        if path not in self.opened:
            self.opened[path] = rasterio.open(path)
        return self.opened[path]

    def __getitem__(self, i):
        row = self.frame.loc[i]
        patch = self.scene(row["scene"]).read(window=Window(row["col"], row["row"], SIZE, SIZE))
        patch = np.clip(patch.astype(np.float32) / 10000.0, 0, 1)
        return torch.from_numpy(patch), int(row["crop"])


class FieldChips(Dataset):
    """One small GeoTIFF for each field."""

    def __init__(self, paths, crops):
        self.paths = paths
        self.crops = crops

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with rasterio.open(self.paths[i]) as chip:
            values = chip.read()
        return torch.from_numpy(values.astype(np.float32) / 10000.0), self.crops[i]


class StackedWindows(Dataset):
    def __init__(self, path):
        self.path = path
        self.file = None
        with h5py.File(path, "r") as file:
            self.length = len(file["crop"])

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        if self.file is None:
            self.file = h5py.File(self.path, "r")
        return torch.from_numpy(self.file["patch"][i]), int(self.file["crop"][i])


def band_means(scene, corners):
    totals = []
    with rasterio.open(scene) as source:
        for column, line in corners:
            totals.append(source.read(window=Window(column, line, SIZE, SIZE)).mean(axis=(1, 2)))
    return np.mean(totals, axis=0)


def scene_sizes(scenes):
    sizes = {}
    for scene in scenes:
        with rasterio.open(scene) as source:
            sizes[scene] = (source.height, source.width)
    return sizes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--windows", default="crops/windows.csv")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    frame = pd.read_csv(args.windows)
    with rasterio.open(frame["scene"][0]) as first:
        bands = first.count
    rows = frame[frame["scene"] == frame["scene"][0]]
    print("band means of the first scene", band_means(frame["scene"][0], zip(rows["col"], rows["row"], strict=True)))
    print("sizes", scene_sizes(frame["scene"].unique()))
    loader = DataLoader(SceneWindows(frame), batch_size=128, shuffle=True, num_workers=8)
    model = nn.Sequential(nn.Conv2d(bands, 96, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 12))
    model.to(device)
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
