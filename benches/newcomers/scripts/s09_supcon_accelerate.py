"""Supervised contrastive embeddings of small patches, P identities x K pictures per batch (accelerate)."""
import random
import time

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

from make_data import ensure


class Patches(Dataset):
    def __init__(self, root):
        self.pixels = np.load(root / "patches.npy")
        table = pd.read_csv(root / "patches.csv")
        self.identities = table["identity"].tolist()
        code = {c: i for i, c in enumerate(sorted(set(self.identities)))}
        self.targets = [code[c] for c in self.identities]

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, i):
        x = torch.from_numpy(self.pixels[i]).float().sub_(128).div_(50)
        return x.unsqueeze(0), self.targets[i]


class PKBatchSampler(Sampler):
    """Every batch: P random identities, K pictures of each."""

    def __init__(self, identities, p, k, batches):
        self.identities = identities
        self.names = sorted(set(identities))
        self.p, self.k, self.batches = p, k, batches

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            batch = []
            for name in random.sample(self.names, self.p):
                members = [i for i, who in enumerate(self.identities) if who == name]
                batch += random.sample(members, self.k)
            yield batch


class Encoder(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(32 * 36, 128), nn.ReLU(), nn.Linear(128, dim),
        )

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


def supcon(z, y, t=0.1):
    sim = z @ z.T / t
    eye = torch.eye(len(z), dtype=torch.bool, device=z.device)
    sim = sim.masked_fill(eye, -1e9)
    logp = sim - sim.logsumexp(1, keepdim=True)
    pos = (y[:, None] == y[None]) & ~eye
    return -(logp * pos).sum(1).div(pos.sum(1)).mean()


def main(epochs=2, batches=90):
    set_seed(99)
    accelerator = Accelerator(cpu=True)
    data = Patches(ensure("patches"))
    loader = DataLoader(data, batch_sampler=PKBatchSampler(data.identities, p=24, k=4, batches=batches))
    model = Encoder()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, opt, loader = accelerator.prepare(model, opt, loader)

    t0, n = time.time(), 0
    for epoch in range(epochs):
        total = 0.0
        for x, y in loader:
            loss = supcon(model(x), y)
            opt.zero_grad()
            accelerator.backward(loss)
            opt.step()
            total += loss.item()
            n += len(y)
        accelerator.print(f"epoch {epoch} loss {total / batches:.4f}")
    accelerator.print(f"trained {n} samples in {time.time() - t0:.2f} s")


if __name__ == "__main__":
    main()
