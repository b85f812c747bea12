"""Click + star-rating prediction from user/item ids and context features."""
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn

from make_data import ensure


@dataclass
class Config:
    users: int = 200_000
    items: int = 5_000
    dim: int = 32
    batch: int = 512
    epochs: int = 1
    lr: float = 1e-3
    star_weight: float = 0.3


class TwoHead(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.user = nn.Embedding(cfg.users, cfg.dim, sparse=True)
        self.item = nn.Embedding(cfg.items, cfg.dim, sparse=True)
        self.trunk = nn.Sequential(
            nn.Linear(2 * cfg.dim + 8, 256), nn.ReLU(),
            nn.Linear(256, 128), nn.ReLU(),
        )
        self.click = nn.Linear(128, 1)
        self.stars = nn.Linear(128, 1)
        nn.init.normal_(self.user.weight, std=0.05)
        nn.init.normal_(self.item.weight, std=0.05)

    def forward(self, user, item, ctx):
        h = self.trunk(torch.cat([self.user(user), self.item(item), ctx], 1))
        return self.click(h).squeeze(1), self.stars(h).squeeze(1)


def make_optimizers(model, cfg):
    tables = [model.user.weight, model.item.weight]
    dense = [p for n, p in model.named_parameters() if not n.startswith(("user.", "item."))]
    return [torch.optim.SparseAdam(tables, lr=cfg.lr), torch.optim.Adam(dense, lr=cfg.lr)]


def iterate(data, batch, gen):
    n = len(data["click"])
    perm = torch.randperm(n, generator=gen)
    for i in range(0, n - batch + 1, batch):
        idx = perm[i:i + batch]
        yield {k: v[idx] for k, v in data.items()}


def joint_loss(model, b, cfg):
    click, stars = model(b["user"], b["item"], b["ctx"])
    l_click = nn.functional.binary_cross_entropy_with_logits(click, b["click"])
    l_stars = nn.functional.smooth_l1_loss(stars, b["stars"])
    return l_click + cfg.star_weight * l_stars, l_click.detach(), l_stars.detach()


def run(cfg):
    torch.manual_seed(0)
    raw = np.load(ensure("ratings") / "ratings.npz")
    data = {k: torch.from_numpy(raw[k]) for k in raw.files}
    model = TwoHead(cfg)
    opts = make_optimizers(model, cfg)
    gen = torch.Generator().manual_seed(0)
    seen, t0 = 0, time.time()
    for epoch in range(cfg.epochs):
        sums, steps = torch.zeros(2), 0
        for b in iterate(data, cfg.batch, gen):
            loss, lc, ls = joint_loss(model, b, cfg)
            for o in opts:
                o.zero_grad()
            loss.backward()
            for o in opts:
                o.step()
            sums += torch.stack([lc, ls])
            steps += 1
            seen += cfg.batch
        print(f"epoch {epoch}: click {sums[0] / steps:.4f} stars {sums[1] / steps:.4f}")
    print(f"trained {seen} samples in {time.time() - t0:.2f} s")


if __name__ == "__main__":
    run(Config())
