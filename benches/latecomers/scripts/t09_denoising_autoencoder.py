"""Denoising autoencoder with stochastic weight averaging."""
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.optim.swa_utils import AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset

from make_data import ensure


class AutoEncoder(nn.Module):
    def __init__(self, w=24):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(3, w, 3, 1, 1), nn.BatchNorm2d(w), nn.ReLU(),
            nn.Conv2d(w, 2 * w, 3, 2, 1), nn.BatchNorm2d(2 * w), nn.ReLU(),
            nn.Conv2d(2 * w, 2 * w, 3, 2, 1), nn.BatchNorm2d(2 * w), nn.ReLU(),
        )
        self.dec = nn.Sequential(
            nn.Upsample(scale_factor=2), nn.Conv2d(2 * w, w, 3, 1, 1), nn.BatchNorm2d(w), nn.ReLU(),
            nn.Upsample(scale_factor=2), nn.Conv2d(w, 3, 3, 1, 1),
        )

    def forward(self, x):
        return self.dec(self.enc(x))


class Averager:
    """Keeps a running average of the weights, with usable batch-norm statistics."""

    def __init__(self, model, loader, start, every):
        self.avg = AveragedModel(model)
        self.loader, self.start, self.every = loader, start, every

    def after_step(self, model, step):
        if step < self.start or step % self.every:
            return
        self.avg.update_parameters(model)
        update_bn(self.loader, self.avg)

    def finish(self):
        update_bn(self.loader, self.avg)
        return self.avg


def load_images():
    files = sorted(ensure("shapes").rglob("*.jpg"))
    arr = np.stack([np.asarray(Image.open(f).convert("RGB")) for f in files])
    return torch.from_numpy(arr).permute(0, 3, 1, 2).float() / 255


def fit(epochs=4, batch=16):
    torch.manual_seed(0)
    data = TensorDataset(load_images())
    loader = DataLoader(data, batch_size=batch, shuffle=True)
    model = AutoEncoder()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    averager = Averager(model, DataLoader(data, batch_size=32), start=8, every=2)
    step = seen = 0
    t0 = time.time()
    for epoch in range(epochs):
        total = 0.0
        for (x,) in loader:
            loss = F.mse_loss(model(x + 0.1 * torch.randn_like(x)), x)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            step += 1
            averager.after_step(model, step)
            seen += len(x)
            total += loss.item() * len(x)
        print(f"epoch {epoch}: mse {total / len(data):.5f}")
    final = averager.finish().eval()
    with torch.no_grad():
        print(f"averaged model mse {F.mse_loss(final(data.tensors[0]), data.tensors[0]):.5f}")
    print(f"trained {seen} samples in {time.time() - t0:.2f} s")


if __name__ == "__main__":
    fit()
