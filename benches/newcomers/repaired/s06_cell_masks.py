"""Small U-Net for stained cells (background + 3 kinds), PNG images and masks.
Cross entropy with the border weight map of the paper."""
import os
import time

import cv2
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy.ndimage import distance_transform_edt, label
from torch.utils.data import DataLoader, Dataset

from make_data import ensure

cfg = dict(classes=4, batch=8, epochs=6, lr=1e-3, seed=5, width=4)


class CellDataset(Dataset):
    def __init__(self, root):
        self.img_dir = os.path.join(root, "images")
        self.mask_dir = os.path.join(root, "masks")
        self.names = sorted(os.listdir(self.img_dir))
        self.weights = {}  # the masks never change: one weight map per image is enough

    def __len__(self):
        return len(self.names)

    def __getitem__(self, idx):
        img = cv2.imread(os.path.join(self.img_dir, self.names[idx]), cv2.IMREAD_COLOR)
        mask = cv2.imread(os.path.join(self.mask_dir, self.names[idx]), cv2.IMREAD_GRAYSCALE)
        x = torch.from_numpy(img).permute(2, 0, 1).float() / 127.5 - 1
        if idx not in self.weights:
            self.weights[idx] = torch.from_numpy(border_weights(mask))
        return x, torch.from_numpy(mask).long(), self.weights[idx]


def double_conv(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True),
        nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True),
    )


class TinyUNet(nn.Module):
    def __init__(self, n_classes, w):
        super().__init__()
        self.stem = nn.Conv2d(3, w, 3, stride=2, padding=1)
        self.d1, self.d2, self.d3 = double_conv(w, w), double_conv(w, 2 * w), double_conv(2 * w, 4 * w)
        self.u2, self.u1 = double_conv(6 * w, 2 * w), double_conv(3 * w, w)
        self.out = nn.Conv2d(w, n_classes, 1)

    def forward(self, x):
        a = self.d1(self.stem(x))
        b = self.d2(F.max_pool2d(a, 2))
        c = self.d3(F.max_pool2d(b, 2))
        b = self.u2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        a = self.u1(torch.cat([F.interpolate(b, scale_factor=2), a], 1))
        return F.interpolate(self.out(a), scale_factor=2, mode="bilinear", align_corners=False)


def border_weights(mask, w0=10.0, sigma=5.0):
    """Weight map of the U-Net paper: pixels squeezed between two cells count more."""
    dists = []
    for kind in range(1, cfg["classes"]):
        cells, n = label(mask == kind)
        dists += [distance_transform_edt(cells != c) for c in range(1, n + 1)]
    if len(dists) < 2:
        return np.ones(mask.shape, np.float32)
    d = np.sort(np.stack(dists, axis=-1), axis=-1)
    w = 1.0 + w0 * np.exp(-((d[..., 0] + d[..., 1]) ** 2) / (2 * sigma**2)) * (mask == 0)
    return w.astype(np.float32)


class WeightedCE(nn.Module):
    def forward(self, logits, target, weight):
        ce = F.cross_entropy(logits, target, reduction="none")
        return (ce * weight.to(ce.device)).mean()


def main():
    torch.manual_seed(cfg["seed"])
    loader = DataLoader(CellDataset(ensure("cells")), batch_size=cfg["batch"], shuffle=True)
    net = TinyUNet(cfg["classes"], cfg["width"])
    opt = torch.optim.Adam(net.parameters(), lr=cfg["lr"])
    criterion = WeightedCE()

    n, t0 = 0, time.time()
    for epoch in range(cfg["epochs"]):
        epoch_loss = right = 0.0
        for x, y, w in loader:
            logits = net(x)
            loss = criterion(logits, y, w)
            opt.zero_grad()
            loss.backward()
            opt.step()
            epoch_loss += loss.item()
            right += (logits.argmax(1) == y).float().mean().item()
            n += len(x)
        print(f"epoch {epoch + 1} loss {epoch_loss / len(loader):.3f} pixel acc {right / len(loader):.3f}")
    print(f"trained {n} samples in {time.time() - t0:.2f} s")


if __name__ == "__main__":
    main()
