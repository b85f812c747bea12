#!/usr/bin/env python
# Crop map from Sentinel scenes. One folder per scene:
#   scenes/T33_0412/B02.tif B03.tif B04.tif B08.tif crops.tif
# windows.csv says which 256 px windows have enough labelled fields (tile_id, scene, row, col, fold)
import glob
import json
import multiprocessing as mp
import os
import time

import numpy as np
import pandas as pd
import rasterio
import segmentation_models_pytorch as smp
import tifffile
import torch
import torch.nn.functional as F
from rasterio.windows import Window
from torch.utils.data import DataLoader, Dataset

mp.set_start_method("spawn", force=True)

SCENES = "scenes"
OUT = "runs/crops"
TILE = 256
N_BANDS = 4
N_CROPS = 9
EPOCHS = 30
BS = 8
IGNORE = 255


class FieldWindows(Dataset):
    """One sample = one window of a scene + its NDVI amplitude (made by ndvi_season.py)."""

    def __init__(self, table, ndvi_dir, train=False):
        self.table = table.reset_index(drop=True)
        self.ndvi_dir = ndvi_dir
        self.train = train

    def __len__(self):
        return len(self.table)

    def _image(self, scene, r, c):
        files = sorted(glob.glob(os.path.join(scene, "B*.tif")))
        win = Window(c, r, TILE, TILE)
        bands = []
        for f in files:
            with rasterio.open(f) as src:
                bands.append(src.read(1, window=win))
        return np.stack(bands).astype("float32") / 10000.0

    def _mask(self, scene, r, c):
        m = tifffile.imread(os.path.join(scene, "crops.tif"))
        return m[r:r + TILE, c:c + TILE].astype("int64")

    def __getitem__(self, i):
        w = self.table.iloc[i]
        scene = os.path.join(SCENES, w.scene)
        x = self._image(scene, w.row, w.col)
        y = self._mask(scene, w.row, w.col)
        ndvi = np.load(os.path.join(self.ndvi_dir, f"{w.tile_id}.npz"))["amp"]
        x = np.concatenate([x, ndvi[None].astype("float32")])
        if self.train:
            k = np.random.randint(4)
            x, y = np.rot90(x, k, (1, 2)), np.rot90(y, k)
        return torch.from_numpy(x.copy()), torch.from_numpy(y.copy())


def cloud_share(scene):
    """Share of pixels without data, block by block (a scene does not fit twice in my laptop)."""
    empty = total = 0
    with rasterio.open(os.path.join(scene, "B04.tif")) as src:
        for _, win in src.block_windows(1):
            a = src.read(1, window=win)
            empty += int((a == 0).sum())
            total += a.size
    return os.path.basename(scene), empty / total


def band_stats(scene):
    out = {"scene": os.path.basename(scene)}
    for f in sorted(glob.glob(os.path.join(scene, "B*.tif"))):
        with rasterio.open(f) as src:
            a = src.read(1)
        a = a[a > 0]
        out[os.path.basename(f)[:3]] = [float(np.percentile(a, q)) for q in (2, 50, 98)]
    return out


@torch.no_grad()
def validate(net, dl, device):
    net.eval()
    inter = torch.zeros(N_CROPS, device=device)
    union = torch.zeros(N_CROPS, device=device)
    for x, y in dl:
        x, y = x.to(device), y.to(device)
        p = net(x).argmax(1)
        ok = y != IGNORE
        for k in range(N_CROPS):
            a, b = (p == k) & ok, (y == k) & ok
            inter[k] += (a & b).sum()
            union[k] += (a | b).sum()
    iou = inter / union.clamp(min=1)
    return iou.cpu().numpy()


@torch.inference_mode()
def predict_scene(net, scene, device, bs=32):
    """Bands only; the NDVI layer is set to its mean for new scenes."""
    net.eval()
    srcs = [rasterio.open(f) for f in sorted(glob.glob(os.path.join(scene, "B*.tif")))]
    h, w = srcs[0].height, srcs[0].width
    out = np.full((h, w), IGNORE, "uint8")
    spots = [(r, c) for r in range(0, h - TILE + 1, TILE) for c in range(0, w - TILE + 1, TILE)]
    for k in range(0, len(spots), bs):
        part = spots[k:k + bs]
        x = np.stack([[s.read(1, window=Window(c, r, TILE, TILE)) for s in srcs] for r, c in part])
        x = torch.from_numpy(x.astype("float32") / 10000.0)
        x = torch.cat([x, torch.full_like(x[:, :1], 0.31)], 1)
        p = net(x.to(device)).argmax(1).to(torch.uint8).cpu().numpy()
        for (r, c), tile in zip(part, p):
            out[r:r + TILE, c:c + TILE] = tile
    for s in srcs:
        s.close()
    return out


def main():
    os.makedirs(OUT, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    scenes = sorted(glob.glob(os.path.join(SCENES, "T*")))

    with mp.Pool(6) as pool:
        stats = pool.map(band_stats, scenes)
        cloudy = {name for name, share in pool.imap_unordered(cloud_share, scenes) if share > 0.4}
    pd.DataFrame(stats).to_csv(os.path.join(OUT, "band_stats.csv"), index=False)
    print("left out:", sorted(cloudy))

    table = pd.read_csv("windows.csv")
    table = table[~table.scene.isin(cloudy)]
    tr, va = table[table.fold != 0], table[table.fold == 0]
    print(len(tr), "train windows", len(va), "val windows")

    train_dl = DataLoader(FieldWindows(tr, "ndvi_amp", train=True), batch_size=BS, shuffle=True,
                          num_workers=6, persistent_workers=True, pin_memory=True)
    val_dl = DataLoader(FieldWindows(va, "ndvi_amp"), batch_size=4 * BS, num_workers=6)

    net = smp.Unet("resnet18", in_channels=N_BANDS + 1, classes=N_CROPS).to(device)
    opt = torch.optim.AdamW(net.parameters(), lr=4e-4)
    log, best = [], 0.0

    for epoch in range(EPOCHS):
        net.train()
        t0 = time.time()
        total = torch.zeros((), device=device)
        for x, y in train_dl:
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            loss = F.cross_entropy(net(x), y, ignore_index=IGNORE)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            total += loss.detach()

        iou = validate(net, val_dl, device)
        log.append({"epoch": epoch, "loss": total.item() / len(train_dl),
                    "miou": float(iou.mean()), "s": round(time.time() - t0)})
        print(log[-1])
        with open(os.path.join(OUT, "progress.json"), "w") as fh:
            json.dump(log, fh, indent=1)

        if iou.mean() > best:
            best = float(iou.mean())
            tmp = os.path.join(OUT, "best.pt.tmp")
            torch.save({"net": net.state_dict(), "epoch": epoch, "miou": best}, tmp)
            os.replace(tmp, os.path.join(OUT, "best.pt"))

    m = predict_scene(net, scenes[-1], device)
    tifffile.imwrite(os.path.join(OUT, os.path.basename(scenes[-1]) + "_crops.tif"), m)


if __name__ == "__main__":
    main()
