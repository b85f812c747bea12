"""
Leaf diseases, one folder per class:

    data/leaves/train/<class>/*.jpg
    data/leaves/val/<class>/*.jpg

run:  python leaf_folders.py
"""
import csv
import os
import os.path as osp
import random
import time

import cv2
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F, torchvision.transforms as tf
from torch.utils import data as D
from torchvision import models

ROOT = "data/leaves"
OUT = "runs/leaf_folders"
EPOCHS = 25
BATCH = 48
SIZE = 224
LR = 3e-4
SEED = 7

random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
print("device:", device)

if not osp.isdir(ROOT):
    raise SystemExit(f"put the photos under {ROOT} first")
os.makedirs(OUT, exist_ok=True)

norm = tf.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
aug = tf.Compose([
    tf.ToPILImage(),
    tf.Resize((SIZE, SIZE)),
    tf.RandomHorizontalFlip(),
    tf.RandomVerticalFlip(),
    tf.ColorJitter(0.2, 0.2, 0.1),
    tf.ToTensor(),
    norm,
])
plain = tf.Compose([tf.ToPILImage(), tf.Resize((SIZE, SIZE)), tf.ToTensor(), norm])


class LeafFolder(D.Dataset):
    def __init__(self, root, tfm):
        self.classes = sorted(os.listdir(root))
        self.items = []
        for k, c in enumerate(self.classes):
            for f in sorted(os.listdir(osp.join(root, c))):
                if f.lower().endswith((".jpg", ".jpeg", ".png")) and "_hand" not in f:
                    self.items.append((osp.join(root, c, f), k))
        self.tfm = tfm
        self.done = {}

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        if i in self.done:
            return self.done[i]
        path, y = self.items[i]
        # some photos were cropped by hand in the lab, those are better
        hand = osp.splitext(path)[0] + "_hand.jpg"
        if osp.exists(hand):
            path = hand
        img = cv2.imread(path)
        if img is None:
            raise RuntimeError(f"cannot read {path}")
        x = self.tfm(img)
        self.done[i] = (x, y)
        return x, y


train_ds = LeafFolder(osp.join(ROOT, "train"), aug)
val_ds = LeafFolder(osp.join(ROOT, "val"), plain)
assert train_ds.classes == val_ds.classes, "class folders differ"
print(len(train_ds), "train /", len(val_ds), "val,", len(train_ds.classes), "classes")

train_dl = D.DataLoader(train_ds, batch_size=BATCH, shuffle=True, num_workers=4,
                        persistent_workers=True, pin_memory=True, drop_last=True)
val_dl = D.DataLoader(val_ds, batch_size=BATCH * 2, num_workers=4,
                      persistent_workers=True, pin_memory=True)

model = models.resnet34(weights="DEFAULT")
model.fc = nn.Linear(model.fc.in_features, len(train_ds.classes))
model = model.to(device)

opt = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=1e-2)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=EPOCHS)

start, best = 0, 0.0
last = osp.join(OUT, "leaf_best.pt")
if osp.exists(last):
    ck = torch.load(last, map_location=device, weights_only=True)
    model.load_state_dict(ck["model"])
    start, best = ck["epoch"] + 1, ck["acc"]
    print("going on from epoch", start, "best so far", best)


def evaluate(net, dl):
    net.eval()
    right, seen = 0, 0
    for x, y in dl:
        x, y = x.to(device), y.to(device)
        out = net(x)
        right += (out.argmax(1) == y).sum().item()
        seen += len(y)
    return right / seen


for epoch in range(start, EPOCHS):
    model.train()
    t0 = time.time()
    right, seen = 0, 0
    run = torch.zeros((), device=device)
    for step, (x, y) in enumerate(train_dl):
        x = x.to(device, non_blocking=True)
        y = y.to(device, non_blocking=True)
        opt.zero_grad(set_to_none=True)
        out = model(x)
        loss = F.cross_entropy(out, y, label_smoothing=0.1)
        loss.backward()
        opt.step()

        run += loss.detach()
        right += (out.argmax(1) == y).sum().item()
        seen += len(y)
        if step % 50 == 0:
            print(f"  {epoch:02d} {step:4d}/{len(train_dl)} loss {loss.item():.3f}")
    sched.step()

    acc = evaluate(model, val_dl)
    tr_loss = run.item() / len(train_dl)
    print(f"epoch {epoch:02d} loss {tr_loss:.3f} train {right / seen:.3f} val {acc:.3f} {time.time() - t0:.0f}s")
    with open(osp.join(OUT, "log.csv"), "a", newline="") as fh:
        csv.writer(fh).writerow([epoch, tr_loss, right / seen, acc])

    if acc > best:
        best = acc
        torch.save({"model": model.state_dict(), "epoch": epoch, "acc": acc}, last)

# per class, to see which ones get mixed up
model.eval()
k = len(train_ds.classes)
conf = np.zeros((k, k), int)
with torch.no_grad():
    for x, y in val_dl:
        p = model(x.to(device)).argmax(1).cpu().numpy()
        np.add.at(conf, (y.numpy(), p), 1)
for name, row in zip(train_ds.classes, conf):
    print(f"{name:24s}", row, f"{row.max() / max(row.sum(), 1):.2f}")
