"""
Weed / crop / soil segmentation, field robot photos.

    python segment_weeds.py prepare --photos photos --masks masks
    python segment_weeds.py train --epochs 60
    python segment_weeds.py map --photo row_17.jpg
"""
import argparse
import csv
import os
from multiprocessing import Pool
from pathlib import Path

import albumentations as A
import cv2
import h5py
import numpy as np
import segmentation_models_pytorch as smp
import torch
from albumentations.pytorch import ToTensorV2
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

SIDE = 512
CLASSES = ["soil", "crop", "weed"]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


# ---------------------------------------------------------------- prepare
def shrink(pair):
    k, photo, mask = pair
    img = cv2.imread(str(photo))
    lab = cv2.imread(str(mask), cv2.IMREAD_GRAYSCALE)
    if img is None or lab is None:
        raise RuntimeError(f"unreadable: {photo} / {mask}")
    img = cv2.cvtColor(img, cv2.COLOR_BGR2RGB)
    img = cv2.resize(img, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
    lab = cv2.resize(lab, (SIDE, SIDE), interpolation=cv2.INTER_NEAREST)
    return k, img, lab


def prepare(args):
    photos = sorted(Path(args.photos).glob("*.jpg"))
    jobs = []
    for k, p in enumerate(photos):
        m = Path(args.masks) / (p.stem + ".png")
        if not m.exists():
            raise FileNotFoundError(m)
        jobs.append((k, p, m))
    tmp = args.store + ".part"
    with h5py.File(tmp, "w") as f, Pool() as pool:
        d_img = f.create_dataset("img", (len(jobs), SIDE, SIDE, 3), "u1", chunks=(1, SIDE, SIDE, 3))
        d_lab = f.create_dataset("lab", (len(jobs), SIDE, SIDE), "u1", chunks=(1, SIDE, SIDE))
        for k, img, lab in tqdm(pool.imap_unordered(shrink, jobs), total=len(jobs)):
            d_img[k] = img
            d_lab[k] = lab
        f.attrs["names"] = [p.name for p in photos]
    os.replace(tmp, args.store)


# ---------------------------------------------------------------- data
class WeedStore(Dataset):
    def __init__(self, path, index, tfm):
        self.path = path
        self.index = np.asarray(index)
        self.tfm = tfm
        self.f = None

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        if self.f is None:
            self.f = h5py.File(self.path, "r")
        k = int(self.index[i])
        out = self.tfm(image=self.f["img"][k], mask=self.f["lab"][k])
        return out["image"], out["mask"].long()


def transforms(train):
    steps = []
    if train:
        steps += [
            A.HorizontalFlip(p=0.5),
            A.VerticalFlip(p=0.5),
            A.ShiftScaleRotate(0.05, 0.15, 30, p=0.5),
            A.RandomBrightnessContrast(p=0.4),
        ]
    return A.Compose(steps + [A.Normalize(MEAN, STD), ToTensorV2()])


# ---------------------------------------------------------------- train
@torch.inference_mode()
def evaluate(net, dl, device):
    net.eval()
    conf = torch.zeros(len(CLASSES) ** 2, device=device)
    for x, y in dl:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        p = net(x).argmax(1)
        conf += torch.bincount((y * len(CLASSES) + p).flatten(), minlength=len(CLASSES) ** 2)
    conf = conf.reshape(len(CLASSES), len(CLASSES)).cpu().numpy()
    inter = np.diag(conf)
    return inter / np.maximum(conf.sum(0) + conf.sum(1) - inter, 1)


def save(state, path):
    tmp = f"{path}.tmp"
    torch.save(state, tmp)
    os.replace(tmp, path)


def train(args):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with h5py.File(args.store, "r") as f:
        n = len(f["img"])
    rng = np.random.default_rng(0)
    order = rng.permutation(n)
    cut = int(0.85 * n)
    workers = min(8, os.cpu_count() or 1)
    train_dl = DataLoader(WeedStore(args.store, order[:cut], transforms(True)), batch_size=args.bs, shuffle=True,
                          num_workers=workers, persistent_workers=True, pin_memory=device.type == "cuda", drop_last=True)
    val_dl = DataLoader(WeedStore(args.store, order[cut:], transforms(False)), batch_size=args.bs * 2,
                        num_workers=workers, persistent_workers=True, pin_memory=device.type == "cuda")

    net = smp.Unet("resnet34", encoder_weights="imagenet", classes=len(CLASSES))
    net = net.to(device, memory_format=torch.channels_last)
    opt = torch.optim.AdamW([
        {"params": net.encoder.parameters(), "lr": args.lr / 10},
        {"params": net.decoder.parameters(), "lr": args.lr},
        {"params": net.segmentation_head.parameters(), "lr": args.lr},
    ])
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.epochs)
    dice = smp.losses.DiceLoss("multiclass")
    ce = torch.nn.CrossEntropyLoss(weight=torch.tensor([0.5, 1.0, 2.0], device=device))

    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    first, best = 0, 0.0
    if (out / "last.pt").exists():
        ck = torch.load(out / "last.pt", map_location=device, weights_only=True)
        net.load_state_dict(ck["net"])
        opt.load_state_dict(ck["opt"])
        sched.load_state_dict(ck["sched"])
        first, best = ck["epoch"] + 1, ck["best"]

    for epoch in range(first, args.epochs):
        net.train()
        total = torch.zeros((), device=device)
        bar = tqdm(train_dl, desc=f"{epoch}", leave=False)
        for step, (x, y) in enumerate(bar):
            x = x.to(device, non_blocking=True, memory_format=torch.channels_last)
            y = y.to(device, non_blocking=True)
            with torch.autocast(device.type, dtype=torch.bfloat16):
                z = net(x)
                loss = ce(z, y) + dice(z, y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            total += loss.detach()
            if step % 25 == 0:
                bar.set_postfix(loss=f"{loss.item():.3f}")
        sched.step()

        iou = evaluate(net, val_dl, device)
        row = [epoch, total.item() / len(train_dl), *(round(float(v), 4) for v in iou)]
        print(row)
        with open(out / "log.csv", "a", newline="") as fh:
            csv.writer(fh).writerow(row)
        better = iou[2] > best
        best = max(best, float(iou[2]))
        save({"net": net.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(),
              "epoch": epoch, "best": best}, out / "last.pt")
        if better:
            save({"net": net.state_dict(), "iou": [float(v) for v in iou]}, out / "best.pt")


# ---------------------------------------------------------------- one big photo
@torch.inference_mode()
def weed_map(args):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = smp.Unet("resnet34", encoder_weights=None, classes=len(CLASSES)).to(device).eval()
    net.load_state_dict(torch.load(Path(args.out) / "best.pt", map_location=device, weights_only=True)["net"])
    img = cv2.cvtColor(cv2.imread(args.photo), cv2.COLOR_BGR2RGB)
    h, w = (s // SIDE * SIDE for s in img.shape[:2])
    tfm = transforms(False)
    spots = [(r, c) for r in range(0, h, SIDE) for c in range(0, w, SIDE)]
    tiles = torch.stack([tfm(image=img[r:r + SIDE, c:c + SIDE])["image"] for r, c in spots])
    pred = torch.cat([net(part.to(device)).argmax(1).cpu() for part in tiles.split(16)]).numpy()
    canvas = np.zeros((h, w), np.uint8)
    for (r, c), p in zip(spots, pred):
        canvas[r:r + SIDE, c:c + SIDE] = p
    cv2.imwrite(Path(args.photo).stem + "_map.png", canvas * 100)
    print("weed share %.3f" % (canvas == 2).mean())


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("what", choices=["prepare", "train", "map"])
    ap.add_argument("--photos", default="photos")
    ap.add_argument("--masks", default="masks")
    ap.add_argument("--store", default="weeds_512.h5")
    ap.add_argument("--out", default="runs/weeds")
    ap.add_argument("--photo")
    ap.add_argument("--epochs", type=int, default=60)
    ap.add_argument("--bs", type=int, default=12)
    ap.add_argument("--lr", type=float, default=1e-3)
    a = ap.parse_args()
    {"prepare": prepare, "train": train, "map": weed_map}[a.what](a)
