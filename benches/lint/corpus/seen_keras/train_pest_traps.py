"""
Insects on sticky traps: classify the cut-out boxes (already cropped by the detector).

usage:
    python train_pest_traps.py --csv boxes.csv --root crops/ --epochs 40
"""
import argparse
import csv
import os
import random
import time

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from PIL import Image
from sklearn.metrics import f1_score
from torch.utils.data import DataLoader, Dataset
from torchvision import models
from torchvision import transforms as T


def get_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--csv", required=True)
    p.add_argument("--root", default="crops")
    p.add_argument("--out", default="runs/traps")
    p.add_argument("--epochs", type=int, default=40)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--workers", type=int, default=8)
    p.add_argument("--resume", default=None, help="last.pt of an earlier run")
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]

train_tf = T.Compose([
    T.Resize((224, 224)),
    T.RandomHorizontalFlip(),
    T.RandomVerticalFlip(),
    T.RandomPerspective(0.3, p=0.5),
    T.RandomRotation(180),
    T.ColorJitter(0.3, 0.3, 0.2, 0.05),
    T.GaussianBlur(5, sigma=(0.1, 2.0)),
    T.ToTensor(),
    T.Lambda(lambda t: t + 0.02 * torch.randn_like(t)),
    T.Normalize(MEAN, STD),
])

val_tf = T.Compose([
    T.Resize((224, 224)),
    T.ToTensor(),
    T.Normalize(MEAN, STD),
])


class TrapBoxes(Dataset):
    def __init__(self, df, root, classes, tf):
        self.files = [os.path.join(root, f) for f in df["crop"]]
        self.y = [classes.index(c) for c in df["species"]]
        self.tf = tf

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        img = Image.open(self.files[i]).convert("RGB")
        return self.tf(img), self.y[i]


@torch.no_grad()
def validate(model, loader, device):
    model.eval()
    crit = nn.CrossEntropyLoss(reduction="sum")
    loss, ys, ps = 0.0, [], []
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        out = model(x)
        loss += crit(out, y).item()
        ps.append(out.argmax(1).cpu().numpy())
        ys.append(y.cpu().numpy())
    ys, ps = np.concatenate(ys), np.concatenate(ps)
    return loss / len(ys), f1_score(ys, ps, average="macro")


def train_one_epoch(model, loader, opt, sched, crit, device, epoch):
    model.train()
    running, seen = 0.0, 0
    correct = torch.zeros((), device=device)
    t0 = time.time()
    for step, (x, y) in enumerate(loader):
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        out = model(x)
        loss = crit(out, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        running += loss.item() * len(x)
        correct += (out.argmax(1) == y).sum()
        seen += len(x)
        if step % 50 == 0:
            print(f"epoch {epoch} step {step}/{len(loader)} loss {loss.item():.3f}")
    print(f"epoch {epoch}: {time.time() - t0:.0f} s")
    return running / seen, correct.item() / seen


def main():
    args = get_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    os.makedirs(args.out, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    df = pd.read_csv(args.csv)
    df = df[df["score"] > 0.4]
    classes = sorted(df["species"].unique())
    print(df["species"].value_counts())
    # by trap, not by box
    traps = sorted(df["trap_id"].unique())
    random.shuffle(traps)
    held = set(traps[: len(traps) // 5])
    is_val = df["trap_id"].isin(held)

    train_ds = TrapBoxes(df[~is_val], args.root, classes, train_tf)
    val_ds = TrapBoxes(df[is_val], args.root, classes, val_tf)
    train_dl = DataLoader(train_ds, batch_size=args.batch_size, shuffle=True, drop_last=True,
                          num_workers=args.workers, pin_memory=True, persistent_workers=True)
    val_dl = DataLoader(val_ds, batch_size=args.batch_size * 2, num_workers=args.workers, pin_memory=True)

    model = models.convnext_tiny(weights="IMAGENET1K_V1")
    model.classifier[2] = nn.Linear(768, len(classes))
    model = model.to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, args.lr, total_steps=args.epochs * len(train_dl))
    weights = 1.0 / np.sqrt(df[~is_val]["species"].value_counts().reindex(classes).values)
    crit = nn.CrossEntropyLoss(weight=torch.tensor(weights / weights.mean(), dtype=torch.float32, device=device))

    start = 0
    if args.resume:
        state = torch.load(args.resume, map_location=device)
        model.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
        sched.load_state_dict(state["sched"])
        start = state["epoch"] + 1

    model = torch.compile(model)

    for epoch in range(start, args.epochs):
        tr_loss, tr_acc = train_one_epoch(model, train_dl, opt, sched, crit, device, epoch)
        va_loss, va_f1 = validate(model, val_dl, device)
        print(f"  train {tr_loss:.4f} / {tr_acc:.3f}   val {va_loss:.4f}   F1 {va_f1:.3f}")
        with open(os.path.join(args.out, "log.csv"), "a", newline="") as fh:
            csv.writer(fh).writerow([epoch, tr_loss, tr_acc, va_loss, va_f1])
        torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(),
                    "epoch": epoch, "classes": classes}, os.path.join(args.out, "last.pt"))


if __name__ == "__main__":
    main()
