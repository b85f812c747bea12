# 2.5D U-Net on T2w prostate volumes. One h5 per patient (key "t2", z*y*x), contours as npz (keys "gland", "zone").
# slices are already resampled to 0.5 mm and 320x320
import glob
import os
import random

import h5py
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy.ndimage import rotate
from torch.utils.data import DataLoader, Dataset

VOL_DIR = "/data/prostate/h5"
SEG_DIR = "/data/prostate/contours"
OUT = "/data/prostate/runs/unet25d"
EPOCHS = 80
BATCH = 8
LR = 2e-4

device = torch.device("cuda")
torch.autograd.set_detect_anomaly(True)


class ProstateSlices(Dataset):
    def __init__(self, patients, train):
        self.train = train
        self.index = []
        for p in patients:
            with h5py.File(os.path.join(VOL_DIR, p + ".h5"), "r") as f:
                depth = f["t2"].shape[0]
            # the first and last slice have no neighbours
            self.index += [(p, z) for z in range(1, depth - 1)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        p, z = self.index[i]
        with h5py.File(os.path.join(VOL_DIR, p + ".h5"), "r") as f:
            img = f["t2"][z - 1:z + 2].astype("float32")
        seg = np.load(os.path.join(SEG_DIR, p + ".npz"))["gland"][z].astype("float32")
        lo, hi = np.percentile(img, (1, 99))
        img = np.clip((img - lo) / (hi - lo + 1e-6), 0, 1)
        if self.train:
            if random.random() < 0.5:
                img, seg = img[:, :, ::-1], seg[:, ::-1]
            if random.random() < 0.3:
                a = random.uniform(-12, 12)
                img = rotate(img, a, axes=(1, 2), reshape=False, order=1)
                seg = rotate(seg, a, reshape=False, order=0)
        return torch.from_numpy(img.copy()), torch.from_numpy(seg.copy())[None]


def double_conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.InstanceNorm2d(o, affine=True), nn.LeakyReLU(0.1, True),
                         nn.Conv2d(o, o, 3, padding=1, bias=False), nn.InstanceNorm2d(o, affine=True), nn.LeakyReLU(0.1, True))


class UNet(nn.Module):
    def __init__(self, widths=(32, 64, 128, 256)):
        super().__init__()
        self.down = nn.ModuleList()
        i = 3
        for w in widths:
            self.down.append(double_conv(i, w))
            i = w
        self.up, self.dec = nn.ModuleList(), nn.ModuleList()
        for w in reversed(widths[:-1]):
            self.up.append(nn.ConvTranspose2d(i, w, 2, 2))
            self.dec.append(double_conv(2 * w, w))
            i = w
        self.head = nn.Conv2d(i, 1, 1)

    def forward(self, x):
        skips = []
        for k, d in enumerate(self.down):
            x = d(x)
            if k < len(self.down) - 1:
                skips.append(x)
                x = F.max_pool2d(x, 2)
        for u, d in zip(self.up, self.dec):
            x = d(torch.cat([u(x), skips.pop()], 1))
        return self.head(x)


def dice_loss(logits, seg):
    p = torch.sigmoid(logits)
    inter = (p * seg).sum((1, 2, 3))
    return (1 - (2 * inter + 1) / (p.sum((1, 2, 3)) + seg.sum((1, 2, 3)) + 1)).mean()


def dice_np(p, s):
    p = p > 0.5
    d = 2 * (p & (s > 0)).sum((1, 2, 3)) / np.maximum(p.sum((1, 2, 3)) + (s > 0).sum((1, 2, 3)), 1)
    return d[(s > 0).any((1, 2, 3))]


def validate(model, loader):
    model.eval()
    scores = []
    for img, seg in loader:
        logits = model(img.to(device, non_blocking=True))
        prob = torch.sigmoid(logits).detach().to("cpu", non_blocking=True)
        scores.append(dice_np(prob.numpy(), seg.numpy()))
    return np.concatenate(scores).mean()


def main():
    os.makedirs(OUT, exist_ok=True)
    patients = sorted(os.path.basename(f)[:-3] for f in glob.glob(os.path.join(VOL_DIR, "*.h5")))
    have = [p for p in patients if os.path.exists(os.path.join(SEG_DIR, p + ".npz"))]
    print(len(patients), "volumes,", len(have), "with contours")
    random.seed(7)
    random.shuffle(have)
    n_val = len(have) // 5
    train_set = ProstateSlices(have[n_val:], True)
    val_set = ProstateSlices(have[:n_val], False)
    train_loader = DataLoader(train_set, BATCH, shuffle=True, num_workers=6, pin_memory=True, drop_last=True)
    val_loader = DataLoader(val_set, batch_size=3 * BATCH, num_workers=4, pin_memory=True)

    model = UNet().to(device)
    start = os.path.join(OUT, "pretrained_promise.pt")
    if os.path.isfile(start):
        model.load_state_dict(torch.load(start, map_location="cpu", weights_only=True))
    opt = torch.optim.AdamW(model.parameters(), lr=LR)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, EPOCHS)
    bce = nn.BCEWithLogitsLoss()

    for epoch in range(EPOCHS):
        model.train()
        total = 0
        for step, (img, seg) in enumerate(train_loader):
            img, seg = img.to(device, non_blocking=True), seg.to(device, non_blocking=True)
            logits = model(img)
            loss = bce(logits, seg) + dice_loss(logits, seg)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            total += loss
            if step % 20 == 0:
                print(f"  {step:4d}/{len(train_loader)}  {loss.item():.3f}")
        sched.step()
        dice = validate(model, val_loader)
        print(f"epoch {epoch:02d}  train {total.item() / len(train_loader):.4f}  dice {dice:.4f}")
        torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "epoch": epoch},
                   os.path.join(OUT, f"unet_{epoch:03d}.pt"))


if __name__ == "__main__":
    main()
