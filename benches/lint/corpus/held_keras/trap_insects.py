#!/usr/bin/env python3
"""Light-trap insects -> order (Coleoptera, Diptera, ...). Linear probe first, maybe more later."""
import argparse
import csv
import os
import random

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import models
from torchvision.transforms import *

ORDERS = ["Coleoptera", "Diptera", "Hemiptera", "Hymenoptera", "Lepidoptera", "Neuroptera", "Trichoptera"]
EPOCHS = 20
BS = 32
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class TrapInsects(Dataset):
    def __init__(self, root, names, tfm):
        self.root = root
        self.names = list(names)
        self.tfm = tfm

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        name = self.names[i]
        log = pd.read_csv(os.path.join(self.root, "trap_log.csv"), sep=";", index_col="image")
        label = ORDERS.index(log.loc[name, "order"])
        img = Image.open(os.path.join(self.root, "crops", name)).convert("RGB")
        return self.tfm(img), label


train_tfm = Compose([
    Resize((224, 224)),
    RandomHorizontalFlip(),
    RandomVerticalFlip(),
    ColorJitter(0.2, 0.2, 0.1),
    ToTensor(),
    Lambda(lambda t: (t + 0.01 * torch.randn_like(t)).clamp(0, 1)),
    Normalize(MEAN, STD),
])
val_tfm = Compose([Resize((224, 224)), ToTensor(), Normalize(MEAN, STD)])


def split_by_night(log, frac=0.2, seed=5):
    # never put the same trap night in both halves
    nights = sorted(log["night"].unique())
    random.Random(seed).shuffle(nights)
    held = set(nights[: int(len(nights) * frac)])
    is_val = log["night"].isin(held)
    return log.index[~is_val], log.index[is_val]


@torch.no_grad()
def validate(model, loader, device, crit):
    model.eval()
    total, right, n = 0.0, 0, 0
    per_class = np.zeros((len(ORDERS), 2), int)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        out = model(x)
        total += crit(out, y).item() * len(y)
        hit = out.argmax(1) == y
        right += hit.sum().item()
        n += len(y)
        for yi, h in zip(y.cpu().numpy(), hit.cpu().numpy()):
            per_class[yi] += (h, 1)
    return total / n, right / n, per_class


def save_atomic(obj, path):
    tmp = path + ".tmp"
    torch.save(obj, tmp)
    os.replace(tmp, path)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("root")
    ap.add_argument("--out", default="runs/insects")
    ap.add_argument("--lr", type=float, default=1e-3)
    args = ap.parse_args()
    os.makedirs(args.out, exist_ok=True)
    torch.manual_seed(0)
    torch.autograd.set_detect_anomaly(True)

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    log = pd.read_csv(os.path.join(args.root, "trap_log.csv"), sep=";", index_col="image")
    print(log.groupby("order").size())
    tr, va = split_by_night(log)
    train_dl = DataLoader(TrapInsects(args.root, tr, train_tfm), batch_size=BS, shuffle=True, drop_last=True)
    val_dl = DataLoader(TrapInsects(args.root, va, val_tfm), batch_size=BS * 4)

    model = models.resnet34(weights=models.ResNet34_Weights.DEFAULT)
    model.fc = nn.Linear(model.fc.in_features, len(ORDERS))
    model.to(device)
    counts = log.loc[tr, "order"].value_counts().reindex(ORDERS).fillna(1)
    crit = nn.CrossEntropyLoss(weight=torch.tensor((counts.max() / counts).pow(0.5).values, dtype=torch.float32, device=device))
    opt = torch.optim.AdamW(model.fc.parameters(), lr=args.lr)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, EPOCHS)

    start, best = 0, 0.0
    last = os.path.join(args.out, "last.pt")
    if os.path.isfile(last):
        ck = torch.load(last, map_location="cpu", weights_only=True)
        model.load_state_dict(ck["model"])
        opt.load_state_dict(ck["opt"])
        sched.load_state_dict(ck["sched"])
        start, best = ck["epoch"] + 1, ck["best"]
        print("resuming at", start)

    for epoch in range(start, EPOCHS):
        model.train()
        running = 0.0
        for step, (x, y) in enumerate(train_dl):
            x, y = x.to(device), y.to(device)
            opt.zero_grad(set_to_none=True)
            out = model(x)
            loss = crit(out, y)
            loss.backward()
            opt.step()
            running += loss.item()
            if step % 100 == 0:
                print(f"[{epoch}:{step}] lr {sched.get_last_lr()[0]:.2e} loss {loss.item():.3f}")
        sched.step()

        vl, acc, per_class = validate(model, val_dl, device, crit)
        with open(os.path.join(args.out, "log.csv"), "a", newline="") as fh:
            csv.writer(fh).writerow([epoch, running / len(train_dl), vl, acc])
        print(f"epoch {epoch}: {running / len(train_dl):.4f} / {vl:.4f}  acc {acc:.3f}")
        for name, (h, n) in zip(ORDERS, per_class):
            print(f"   {name:12s} {h}/{n}")

        best = max(best, acc)
        save_atomic({"model": model.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(),
                     "epoch": epoch, "best": best}, last)


if __name__ == "__main__":
    main()
