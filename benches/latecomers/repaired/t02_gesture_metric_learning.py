# Metric learning on hand-crafted gesture features (P classes x K samples per batch).
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

from make_data import ensure

P, K = 8, 8
STEPS_PER_EPOCH = 180
EPOCHS = 3


class PKSampler(Sampler):
    """Yields batches made of P random classes with K random members each."""

    def __init__(self, labels, p, k, steps, seed=0):
        self.classes = sorted(set(labels))
        arr = np.asarray(labels)
        self.members = {c: np.flatnonzero(arr == c) for c in self.classes}
        self.p, self.k, self.steps = p, k, steps
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return self.steps

    def __iter__(self):
        for _ in range(self.steps):
            batch = []
            for c in self.rng.choice(self.classes, self.p, replace=False):
                batch.extend(self.rng.choice(self.members[int(c)], self.k, replace=False).tolist())
            yield batch


class Embedder(nn.Module):
    def __init__(self, n_in, dim=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(n_in, 256), nn.BatchNorm1d(256), nn.GELU(),
            nn.Linear(256, 256), nn.BatchNorm1d(256), nn.GELU(),
            nn.Linear(256, dim),
        )

    def forward(self, x):
        return nn.functional.normalize(self.body(x), dim=1)


def batch_hard_triplet(emb, y, margin=0.3):
    d = torch.cdist(emb, emb)
    same = y[:, None] == y[None, :]
    pos = d.masked_fill(~same, 0).amax(1)
    neg = d.masked_fill(same, 10.0).amin(1)
    return nn.functional.softplus((pos - neg + margin) * 4).mean()


def main():
    torch.manual_seed(0)
    df = pd.read_csv(ensure("gestures") / "gestures.csv")
    labels = df.pop("label").tolist()
    x = torch.tensor(df.to_numpy(np.float32))
    x = (x - x.mean(0)) / x.std(0)
    data = TensorDataset(x, torch.tensor(labels))
    loader = DataLoader(data, batch_sampler=PKSampler(labels, P, K, STEPS_PER_EPOCH))

    net = Embedder(x.shape[1])
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    sched = torch.optim.lr_scheduler.StepLR(opt, 2, 0.5)

    seen = 0
    start = time.perf_counter()
    for epoch in range(EPOCHS):
        net.train()
        losses = []
        for xb, yb in loader:
            loss = batch_hard_triplet(net(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.detach())
            seen += len(xb)
        sched.step()
        print(f"[{epoch}] triplet {torch.stack(losses).mean():.4f}")
    print(f"trained {seen} samples in {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
