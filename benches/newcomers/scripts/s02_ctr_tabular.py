"""Click-through-rate model on a sqlite log: id embeddings + a small MLP."""
import sqlite3
import time

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn

from make_data import ensure

N_USERS, N_ITEMS, DIM = 400_000, 150_000, 16
BATCH = 1024
STEPS_PER_EPOCH = 60
EPOCHS = 2


def load_table():
    with sqlite3.connect(ensure("ratings") / "clicks.sqlite") as db:
        df = pd.read_sql("SELECT * FROM clicks", db)
    dense = df[[f"x{i}" for i in range(8)]].to_numpy(np.float32)
    dense = (dense - dense.mean(0)) / dense.std(0)
    return (
        torch.from_numpy(df["user_id"].to_numpy(copy=True)),
        torch.from_numpy(df["item_id"].to_numpy(copy=True)),
        torch.from_numpy(dense),
        torch.from_numpy(df["clicked"].to_numpy(np.float32, copy=True)),
    )


class CTRNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(N_USERS, DIM)
        self.item = nn.Embedding(N_ITEMS, DIM)
        self.mlp = nn.Sequential(
            nn.Linear(2 * DIM + 8, 768), nn.ReLU(),
            nn.Linear(768, 768), nn.ReLU(),
            nn.Linear(768, 256), nn.ReLU(),
            nn.Linear(256, 1),
        )

    def forward(self, u, i, x):
        return self.mlp(torch.cat([self.user(u), self.item(i), x], dim=1)).squeeze(1)


def build_optimizers(model):
    return [torch.optim.Adam(model.parameters(), lr=1e-3)]


def train():
    torch.manual_seed(0)
    users, items, dense, clicked = load_table()
    model = CTRNet()
    optimizers = build_optimizers(model)

    t0 = time.perf_counter()
    n = 0
    for epoch in range(EPOCHS):
        perm = torch.randperm(len(clicked))
        running = torch.zeros(())
        for step in range(STEPS_PER_EPOCH):
            idx = perm[step * BATCH:(step + 1) * BATCH]
            logit = model(users[idx], items[idx], dense[idx])
            loss = F.binary_cross_entropy_with_logits(logit, clicked[idx])
            for o in optimizers:
                o.zero_grad()
            loss.backward()
            for o in optimizers:
                o.step()
            running += loss.detach()
            n += len(idx)
        print(f"epoch {epoch} logloss {running.item() / STEPS_PER_EPOCH:.4f}")
    print(f"trained {n} samples in {time.perf_counter() - t0:.2f} s")


if __name__ == "__main__":
    train()
