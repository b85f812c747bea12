"""Cut the ortho scenes into squares, then train a crop / no crop / ... classifier on them.

Everything in one go, start it in the evening: python cut_scenes_and_train.py
"""
import csv
import glob
import multiprocessing as mp
import os

import numpy as np
import pandas as pd
import rasterio
import torch
import torch.nn as nn
from rasterio.errors import RasterioIOError
from rasterio.windows import Window
from torch.utils.data import DataLoader, Dataset
from torchvision.models import ResNet18_Weights, resnet18

mp.set_start_method("fork")

SCENES = "scenes"
SQUARES = "squares"
SIDE = 224
CLASSES = ["bare", "cereal", "rape", "sugar_beet", "grass"]
device = torch.device("mps")

os.makedirs(SQUARES, exist_ok=True)
os.makedirs("ckpt", exist_ok=True)


def cut_scene(path):
    name = os.path.splitext(os.path.basename(path))[0]
    kept = []
    try:
        with rasterio.open(path) as src:
            for r in range(0, src.height - SIDE + 1, SIDE):
                for c in range(0, src.width - SIDE + 1, SIDE):
                    a = src.read([1, 2, 3], window=Window(c, r, SIDE, SIDE))
                    if (a == 0).mean() > 0.1:      # edge of the flight
                        continue
                    out = os.path.join(SQUARES, f"{name}_{r}_{c}.npy")
                    np.save(out, a)
                    kept.append((name, r, c, out))
    except RasterioIOError:
        return None
    return kept


def mean_of(path):
    a = np.load(path, mmap_mode="r")
    return a.mean((1, 2)), a.std((1, 2))


class Squares(Dataset):
    def __init__(self, df, mean, std, train):
        self.files = df["file"].tolist()
        self.y = [CLASSES.index(c) for c in df["crop"]]
        self.mean = torch.tensor(mean, dtype=torch.float32)[:, None, None]
        self.std = torch.tensor(std, dtype=torch.float32)[:, None, None]
        self.train = train

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        x = torch.from_numpy(np.load(self.files[i])).float()
        x = (x - self.mean) / self.std
        if self.train and torch.rand(()) < 0.5:
            x = x.flip(-1)
        if self.train and torch.rand(()) < 0.5:
            x = x.flip(-2)
        return x, self.y[i]


# ---- 1. squares --------------------------------------------------------------
scenes = sorted(glob.glob(os.path.join(SCENES, "*.tif")))
print(len(scenes), "scenes,", sum(os.path.getsize(s) for s in scenes) // 2**30, "GB")
# some are a whole flight, some only the piece that was flown again
if not os.path.exists("squares.csv"):
    with mp.Pool(8) as pool:
        parts = pool.map(cut_scene, scenes)
    rows = [r for p in parts if p for r in p]
    pd.DataFrame(rows, columns=["scene", "row", "col", "file"]).to_csv("squares.csv.tmp", index=False)
    os.replace("squares.csv.tmp", "squares.csv")

squares = pd.read_csv("squares.csv")
labels = pd.read_csv("labels.csv")          # scene,row,col,crop from the GIS
df = squares.merge(labels, on=["scene", "row", "col"])
print(len(squares), "squares,", len(df), "labelled")
print(df["crop"].value_counts())

with mp.Pool(8) as pool:
    stats = list(pool.imap_unordered(mean_of, df["file"].sample(500, random_state=0), chunksize=20))
mean = np.mean([s[0] for s in stats], 0)
std = np.mean([s[1] for s in stats], 0)
print("mean", mean.round(1), "std", std.round(1))

# ---- 2. training -------------------------------------------------------------
held = sorted(df["scene"].unique())[::5]
train_df, val_df = df[~df["scene"].isin(held)], df[df["scene"].isin(held)]

train_loader = DataLoader(Squares(train_df, mean, std, True), batch_size=48, shuffle=True,
                          num_workers=4, pin_memory=True)
val_loader = DataLoader(Squares(val_df, mean, std, False), batch_size=128, num_workers=4)

model = resnet18(weights=ResNet18_Weights.DEFAULT)
model.fc = nn.Linear(512, len(CLASSES))
model = model.to(device, memory_format=torch.channels_last)

optimizer = torch.optim.Adam(model.fc.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

for epoch in range(12):
    model.train()
    running = torch.zeros((), device=device)
    for i, (x, y) in enumerate(train_loader):
        x, y = x.to(device), y.to(device)
        out = model(x)
        loss = criterion(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.detach()
        if i % 100 == 0:
            print(f"{epoch:2d} {i:5d} {loss.item():.3f}")

    model.eval()
    hits = torch.zeros((), device=device)
    with torch.no_grad():
        for x, y in val_loader:
            hits += (model(x.to(device)).argmax(1) == y.to(device)).sum()
    acc = hits.item() / len(val_df)
    print(f"epoch {epoch}: loss {running.item() / len(train_loader):.4f}  val acc {acc:.4f}")
    with open("log.csv", "a", newline="") as fh:
        csv.writer(fh).writerow([epoch, running.item() / len(train_loader), acc])
    torch.save(model.state_dict(), f"ckpt/fields_{epoch:02d}.pt")
