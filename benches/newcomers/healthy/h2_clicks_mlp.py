"""Dense part of the click log only: a wide MLP, the table sits in memory as tensors."""
import sqlite3
import time

import numpy as np
import torch
from torch import nn

from make_data import ensure


class Table:
    def __init__(self):
        with sqlite3.connect(ensure("ratings") / "clicks.sqlite") as db:
            rows = db.execute("SELECT x0,x1,x2,x3,x4,x5,x6,x7,clicked FROM clicks LIMIT 60000").fetchall()
        a = torch.from_numpy(np.array(rows, np.float32))
        self.x, self.y = a[:, :8].contiguous(), a[:, 8].contiguous()
        self.x = (self.x - self.x.mean(0)) / self.x.std(0)

    def batches(self, size, limit):
        perm = torch.randperm(len(self.y))
        for idx in perm[: size * limit].split(size):
            yield self.x[idx], self.y[idx]


class Residual(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.f = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU(), nn.Linear(d, d))

    def forward(self, x):
        return x + self.f(x)


def main():
    torch.manual_seed(1)
    table = Table()
    model = nn.Sequential(nn.Linear(8, 512), Residual(512), Residual(512), Residual(512), nn.Linear(512, 1))
    opt = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 2e-3, total_steps=120)
    lossf = nn.BCEWithLogitsLoss()
    t0, n = time.time(), 0
    for epoch in range(2):
        total, steps = torch.zeros(()), 0
        for x, y in table.batches(1024, 58):
            loss = lossf(model(x).squeeze(1), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            total += loss.detach()
            steps += 1
            n += len(y)
        print(f"epoch {epoch} logloss {(total / steps).item():.4f} lr {sched.get_last_lr()[0]:.2e}")
    print(f"trained {n} samples in {time.time() - t0:.2f} s")


if __name__ == "__main__":
    main()
