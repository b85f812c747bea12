import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

from make_data import ensure

K = 8


class Clouds(Dataset):
    def __init__(self, root):
        files = sorted(root.glob("*.npy"))
        self.points = [np.load(f) for f in files]
        self.labels = [int(f.name[0]) for f in files]
        self.rng = np.random.default_rng(0)

    def __len__(self):
        return len(self.points)

    def __getitem__(self, i):
        a = self.rng.uniform(0, 2 * np.pi)
        rot = np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]], dtype=np.float32)
        return torch.from_numpy(self.points[i] @ rot), self.labels[i]


def neighbours(x, k):
    """x: (B, N, C) -> indices (B, N, k) of the k nearest points"""
    with torch.no_grad():
        dist = torch.cdist(x, x)
        return dist.topk(k, dim=-1, largest=False).indices


def gather(x, idx):
    b = torch.arange(x.size(0), device=x.device)[:, None, None]
    return x[b, idx]


class EdgeConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.local = nn.Linear(cin, cout)
        self.centre = nn.Linear(cin, cout)
        self.norm = nn.LayerNorm(cout)

    def forward(self, x):
        idx = neighbours(x, K)
        near = gather(self.local(x), idx).amax(dim=2)
        return F.relu(self.norm(near + self.centre(x)))


class DGCNN(nn.Module):
    def __init__(self, n_classes=4):
        super().__init__()
        self.e1, self.e2, self.e3 = EdgeConv(3, 24), EdgeConv(24, 32), EdgeConv(32, 48)
        self.head = nn.Sequential(nn.Linear(104, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, n_classes))

    def forward(self, x):
        a = self.e1(x)
        b = self.e2(a)
        c = self.e3(b)
        return self.head(torch.cat([a, b, c], -1).amax(1))


def train(epochs=2):
    torch.manual_seed(0)
    loader = DataLoader(Clouds(ensure("clouds")), batch_size=8, shuffle=True)
    model = DGCNN()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    n, t0 = 0, time.time()
    for epoch in range(epochs):
        right, losses = 0, 0.0
        for pts, y in loader:
            out = model(pts)
            loss = F.cross_entropy(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            right += (out.argmax(1) == y).sum().item()
            losses += loss.item()
            n += len(y)
        print(f"epoch {epoch}  loss {losses / len(loader):.4f}  acc {right / len(loader.dataset):.3f}")
    print(f"trained {n} samples in {time.time() - t0:.2f} s")


if __name__ == "__main__":
    train()
