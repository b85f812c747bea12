"""Sensor windows, TCN. Validates, logs to CSV and checkpoints often, all of it small."""
import csv
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from sklearn.metrics import roc_auc_score
from torch.utils.data import DataLoader, TensorDataset

from make_data import ensure


class TCN(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.inp = nn.Conv1d(4, width, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Conv1d(width, width, 5, padding=2 * d, dilation=d) for d in (1, 2, 4, 1))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        h = torch.relu(self.inp(x))
        for c in self.blocks:
            h = h + torch.relu(c(h))
        return self.head(h.mean(-1)).squeeze(-1)


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    scores = torch.cat([model(x[i:i + 128]) for i in range(0, len(x), 128)])
    model.train()
    return roc_auc_score(y.numpy(), scores.numpy())


def main():
    torch.manual_seed(0)
    raw = np.load(ensure("sensors") / "sensors.npz")
    x, y = torch.from_numpy(raw["x"]), torch.from_numpy(raw["y"])
    train = DataLoader(TensorDataset(x[:3000], y[:3000]), batch_size=64, shuffle=True)
    vx, vy = x[21500:], y[21500:]
    model = TCN()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 8)
    best, seen, t0 = 0.0, 0, time.time()
    with tempfile.TemporaryDirectory() as out, open(os.path.join(out, "log.csv"), "w", newline="") as f:
        log = csv.writer(f)
        for epoch in range(8):
            for step, (xb, yb) in enumerate(train):
                loss = nn.functional.binary_cross_entropy_with_logits(model(xb), yb)
                opt.zero_grad(set_to_none=True)
                loss.backward()
                opt.step()
                log.writerow([epoch, step, loss.item()])
                f.flush()
                seen += len(xb)
            sched.step()
            auc = evaluate(model, vx, vy)
            torch.save(model.state_dict(), os.path.join(out, "last.pt"))
            if auc > best:
                best = auc
                torch.save(model.state_dict(), os.path.join(out, "best.pt"))
            print(f"epoch {epoch} auc {auc:.4f}")
    print(f"trained {seen} samples in {time.time() - t0:.2f} s")


if __name__ == "__main__":
    main()
