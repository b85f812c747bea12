"""Seagrass cover (five classes) from drone tiles plus water depth, mixed precision.

1st run: python seagrass_amp.py --prepare   (shrinks the tiles once)
then:    python seagrass_amp.py
"""
import argparse
import csv
import logging
import multiprocessing as mp
import os
import random
from pathlib import Path

import cv2
import h5py
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.models import resnet50

RAW = Path("tiles_raw")
SMALL = Path("tiles_288")
DEPTH = "bathymetry.h5"
SIDE = 288
BATCH = 48
EPOCHS = 40
CKPT = "seagrass.pt"
log = logging.getLogger("seagrass")

if not os.path.exists(DEPTH):
    log.warning("%s is not here, download it from the survey share", DEPTH)


def shrink(name):
    """One raw tile to a small uint8 copy. Returns (name, error or None)."""
    target = SMALL / f"{name}.npy"
    if target.exists():
        return name, None
    img = cv2.imread(str(RAW / f"{name}.tif"))
    if img is None:
        return name, "cannot be read"
    img = cv2.cvtColor(img, cv2.COLOR_BGR2RGB)
    img = cv2.resize(img, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
    tmp = target.with_suffix(f".{os.getpid()}.tmp.npy")
    np.save(tmp, img)
    os.replace(tmp, target)
    return name, None


def prepare(names):
    SMALL.mkdir(exist_ok=True)
    bad = []
    with mp.Pool(min(8, os.cpu_count() or 1)) as pool:
        for k, (name, err) in enumerate(pool.imap_unordered(shrink, names)):
            if err:
                bad.append((name, err))
            if k % 500 == 0:
                print(k, "of", len(names))
    if bad:
        pd.DataFrame(bad, columns=["tile", "error"]).to_csv("bad_tiles.csv", index=False)
        raise SystemExit(f"{len(bad)} tiles failed, see bad_tiles.csv")


class Tiles(Dataset):
    def __init__(self, table):
        self.names = table["tile"].tolist()
        self.rows = table["depth_row"].to_numpy()
        self.y = table["cover"].to_numpy()
        self._depth = None

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        if self._depth is None:
            self._depth = h5py.File(DEPTH, "r")["depth_32"]
        x = torch.from_numpy(np.load(SMALL / f"{self.names[i]}.npy")).permute(2, 0, 1)
        d = torch.from_numpy(self._depth[self.rows[i]]).float()
        return x, d, int(self.y[i])


class SeagrassNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.rgb = resnet50(weights="IMAGENET1K_V2")
        self.rgb.fc = nn.Identity()
        self.depth = nn.Sequential(nn.Flatten(), nn.Linear(32 * 32, 64), nn.ReLU())
        self.head = nn.Linear(2048 + 64, 5)
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).reshape(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).reshape(1, 3, 1, 1))

    def forward(self, x, d):
        x = (x.float() / 255 - self.mean) / self.std
        return self.head(torch.cat([self.rgb(x), self.depth(d)], dim=1))


def augment(x, d):
    # whole batch at once, on the device
    if random.random() < 0.5:
        x, d = x.flip(-1), d.flip(-1)
    if random.random() < 0.5:
        x, d = x.flip(-2), d.flip(-2)
    k = random.randrange(4)
    return x.rot90(k, (-2, -1)), d.rot90(k, (-2, -1))


@torch.inference_mode()
def evaluate(model, loader, device):
    model.eval()
    host, truth = [], []
    for x, d, y in loader:
        with torch.autocast(device.type, enabled=device.type == "cuda"):
            p = model(x.to(device), d.to(device)).argmax(1)
        host.append(p.to("cpu", non_blocking=True))
        truth.append(y)
    if device.type == "cuda":
        torch.cuda.synchronize()
    host, truth = torch.cat(host), torch.cat(truth)
    return (host == truth).float().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--prepare", action="store_true")
    ap.add_argument("--compile", action="store_true")
    args = ap.parse_args()

    table = pd.read_csv("cover.csv")
    if args.prepare:
        prepare(table["tile"].tolist())
        return
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cuda = device.type == "cuda"
    train, val = table[table["bay"] != "east"], table[table["bay"] == "east"]
    workers = min(8, os.cpu_count() or 1)
    train_dl = DataLoader(Tiles(train), batch_size=BATCH, shuffle=True, drop_last=True, num_workers=workers,
                          pin_memory=cuda, persistent_workers=True)
    val_dl = DataLoader(Tiles(val), batch_size=2 * BATCH, num_workers=workers, pin_memory=cuda)

    model = SeagrassNet().to(device)
    net = torch.compile(model) if args.compile else model
    opt = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=0.02)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, EPOCHS)
    scaler = torch.amp.GradScaler(device.type, enabled=cuda)
    start, best = 0, 0.0
    if os.path.isfile(CKPT):
        c = torch.load(CKPT, map_location=device, weights_only=True)
        model.load_state_dict(c["model"])
        opt.load_state_dict(c["opt"])
        sched.load_state_dict(c["sched"])
        scaler.load_state_dict(c["scaler"])
        start, best = c["epoch"] + 1, c["best"]

    for epoch in range(start, EPOCHS):
        net.train()
        running = torch.zeros((), device=device)
        for step, (x, d, y) in enumerate(train_dl):
            x, d, y = (t.to(device, non_blocking=cuda) for t in (x, d, y))
            x, d = augment(x, d)
            with torch.autocast(device.type, enabled=cuda):
                loss = F.cross_entropy(net(x, d), y)
            opt.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            running += loss.detach()
            if step % 50 == 0:
                print(epoch, step, f"{loss.item():.4f}")
        sched.step()
        acc = evaluate(model, val_dl, device)
        best = max(best, acc)
        with open("seagrass_log.csv", "a", newline="") as fh:
            csv.writer(fh).writerow([epoch, running.item() / len(train_dl), acc])
        state = {"model": model.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(),
                 "scaler": scaler.state_dict(), "epoch": epoch, "best": best}
        torch.save(state, CKPT + ".tmp")
        os.replace(CKPT + ".tmp", CKPT)


if __name__ == "__main__":
    mp.set_start_method("spawn")
    logging.basicConfig(level=logging.INFO)
    main()
