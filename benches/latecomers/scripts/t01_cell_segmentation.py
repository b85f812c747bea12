"""Train a small U-Net on microscopy crops."""
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from scipy.ndimage import gaussian_filter, map_coordinates
from torch.utils.data import DataLoader, Dataset

from make_data import ensure

CROP = 96
EPOCHS = 5


def elastic(img, mask, rng, alpha=120.0, sigma=9.0):
    h, w = mask.shape
    dx = gaussian_filter(rng.uniform(-1, 1, (h, w)), sigma) * alpha
    dy = gaussian_filter(rng.uniform(-1, 1, (h, w)), sigma) * alpha
    yy, xx = np.meshgrid(np.arange(h), np.arange(w), indexing="ij")
    coords = [yy + dy, xx + dx]
    img = np.stack([map_coordinates(img[..., c], coords, order=1, mode="reflect") for c in range(3)], -1)
    mask = map_coordinates(mask, coords, order=0, mode="reflect")
    return img, mask


def random_crop(img, mask, rng):
    top = rng.integers(0, img.shape[0] - CROP + 1)
    left = rng.integers(0, img.shape[1] - CROP + 1)
    sl = (slice(top, top + CROP), slice(left, left + CROP))
    return img[sl], mask[sl]


class CellDataset(Dataset):
    def __init__(self, root):
        self.images, self.masks = [], []
        for p in sorted((root / "images").glob("*.png")):
            self.images.append(np.asarray(Image.open(p), dtype=np.float32) / 255)
            self.masks.append(np.asarray(Image.open(root / "masks" / p.name), dtype=np.float32) / 255)
        self.rng = np.random.default_rng(0)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        img, mask = self.images[i], self.masks[i]
        img, mask = elastic(img, mask, self.rng)
        img, mask = random_crop(img, mask, self.rng)
        if self.rng.random() < 0.5:
            img, mask = img[:, ::-1], mask[:, ::-1]
        x = torch.from_numpy(np.ascontiguousarray(img.transpose(2, 0, 1)))
        return x, torch.from_numpy(np.ascontiguousarray(mask))[None]


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
                         nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.d1, self.d2, self.mid = block(3, w), block(w, 2 * w), block(2 * w, 4 * w)
        self.u2, self.u1 = block(6 * w, 2 * w), block(3 * w, w)
        self.head = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.mid(F.max_pool2d(b, 2))
        b = self.u2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        a = self.u1(torch.cat([F.interpolate(b, scale_factor=2), a], 1))
        return self.head(a)


def dice_bce(logits, target):
    p = logits.sigmoid()
    inter = (p * target).sum((1, 2, 3))
    dice = 1 - (2 * inter + 1) / (p.sum((1, 2, 3)) + target.sum((1, 2, 3)) + 1)
    return F.binary_cross_entropy_with_logits(logits, target) + dice.mean()


def main():
    torch.manual_seed(0)
    random.seed(0)
    ds = CellDataset(ensure("cells"))
    loader = DataLoader(ds, batch_size=8, shuffle=True)
    model = UNet()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, EPOCHS)
    seen, t0 = 0, time.time()
    for epoch in range(EPOCHS):
        total = 0.0
        for x, y in loader:
            opt.zero_grad(set_to_none=True)
            loss = dice_bce(model(x), y)
            loss.backward()
            opt.step()
            total += loss.item() * len(x)
            seen += len(x)
        sched.step()
        print(f"epoch {epoch} loss {total / len(ds):.4f}")
    print(f"trained {seen} samples in {time.time() - t0:.2f} s")


if __name__ == "__main__":
    main()
