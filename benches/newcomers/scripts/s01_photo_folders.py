#!/usr/bin/env python
"""Scene classifier on a folder of holiday photos.

    python s01_photo_folders.py --epochs 4
"""
import argparse
import time

import torch
from torch import nn

from make_data import ensure
from s01_photolib import PhotoFolder, SceneNet, make_loader


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--seed", type=int, default=7)
    return p.parse_args()


def train_epoch(model, loader, opt, loss_fn):
    model.train()
    seen, right, total = 0, 0, 0.0
    for x, y in loader:
        opt.zero_grad(set_to_none=True)
        out = model(x)
        loss = loss_fn(out, y)
        loss.backward()
        opt.step()
        seen += len(y)
        right += (out.argmax(1) == y).sum().item()
        total += loss.item() * len(y)
    return seen, total / seen, right / seen


def main():
    args = parse()
    torch.manual_seed(args.seed)
    ds = PhotoFolder(ensure("photos"))
    loader = make_loader(ds, args.batch_size, args.workers, args.seed)
    model = SceneNet(len(ds.classes))
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    loss_fn = nn.CrossEntropyLoss()

    start, n = time.time(), 0
    for epoch in range(args.epochs):
        seen, loss, acc = train_epoch(model, loader, opt, loss_fn)
        n += seen
        print(f"epoch {epoch}: loss {loss:.3f} acc {acc:.3f}")
    print(f"trained {n} samples in {time.time() - start:.2f} s")


if __name__ == "__main__":
    main()
