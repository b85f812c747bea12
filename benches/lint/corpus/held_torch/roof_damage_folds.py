# Roof damage after the hail storm, 4 classes (none / light / heavy / destroyed)
# 5 folds, EfficientNet, mixed precision.  v7: elastic back in, lb 0.8312 -> 0.8347
import gc
import os
import random
import time
import warnings

import albumentations as A
import cv2
import numpy as np
import pandas as pd
import timm
import torch
import torch.nn as nn
from albumentations.pytorch import ToTensorV2
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedGroupKFold
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

warnings.filterwarnings("ignore")


class CFG:
    seed = 2023
    model = "tf_efficientnet_b0_ns"
    size = 256
    bs = 48
    epochs = 8
    n_folds = 5
    lr = 5e-4
    wd = 1e-2
    root = "../input/roof-hail"
    out = "./"
    debug = False


def seed_all(s):
    random.seed(s)
    np.random.seed(s)
    torch.manual_seed(s)


seed_all(CFG.seed)
device = torch.device("cuda")

train = pd.read_csv(f"{CFG.root}/train.csv")
if os.path.exists(f"{CFG.root}/extra.csv"):
    train = pd.concat([train, pd.read_csv(f"{CFG.root}/extra.csv")], ignore_index=True)
train["path"] = CFG.root + "/chips/" + train["roof_id"].astype(str) + ".png"
if CFG.debug:
    train = train.sample(500, random_state=0).reset_index(drop=True)
print(train.shape, train["damage"].value_counts().to_dict())


def get_tf(kind):
    if kind == "train":
        return A.Compose([
            A.HorizontalFlip(p=0.5),
            A.VerticalFlip(p=0.5),
            A.RandomRotate90(p=0.5),
            A.ElasticTransform(alpha=60, sigma=8, p=0.4),
            A.CLAHE(p=0.3),
            A.RandomCrop(CFG.size, CFG.size),
            A.Normalize(),
            ToTensorV2(),
        ])
    return A.Compose([A.CenterCrop(CFG.size, CFG.size), A.Normalize(), ToTensorV2()])


class RoofDS(Dataset):
    def __init__(self, df, tf):
        self.paths = df["path"].values
        self.y = df["damage"].values
        self.tf = tf
        self.store = {}

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        # chips are small, all of them fit in RAM
        if i in self.store:
            return self.store[i], self.y[i]
        img = cv2.imread(self.paths[i])
        img = cv2.cvtColor(img, cv2.COLOR_BGR2RGB)
        img = self.tf(image=img)["image"]
        self.store[i] = img
        return img, self.y[i]


class RoofNet(nn.Module):
    def __init__(self, n=4):
        super().__init__()
        self.net = timm.create_model(CFG.model, pretrained=True, num_classes=0, global_pool="")
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(self.net.num_features, n)

    def forward(self, x):
        return self.fc(self.drop(self.pool(self.net(x)).flatten(1)))


def valid_fn(model, loader):
    model.eval()
    probs = []
    with torch.no_grad():
        for x, _ in loader:
            with torch.cuda.amp.autocast():
                out = model(x.to(device))
            probs.append(out.float().softmax(1).cpu().numpy())
    return np.concatenate(probs)


oof = np.zeros((len(train), 4), dtype=np.float32)
fold_scores = []
skf = StratifiedGroupKFold(n_splits=CFG.n_folds, shuffle=True, random_state=CFG.seed)

for fold, (tr_idx, va_idx) in enumerate(skf.split(train, train["damage"], train["block"])):
    print(f"======== fold {fold} ========")
    tr_dl = DataLoader(RoofDS(train.iloc[tr_idx], get_tf("train")), batch_size=CFG.bs, shuffle=True,
                       num_workers=4, pin_memory=True, drop_last=True, persistent_workers=True)
    va_dl = DataLoader(RoofDS(train.iloc[va_idx], get_tf("valid")), batch_size=CFG.bs * 2, shuffle=False,
                       num_workers=4, pin_memory=True, persistent_workers=True)

    model = RoofNet().to(device)
    fast = torch.compile(model)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    optimizer = torch.optim.AdamW(model.parameters(), lr=CFG.lr, weight_decay=CFG.wd)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, CFG.lr, epochs=CFG.epochs, steps_per_epoch=len(tr_dl))
    scaler = torch.cuda.amp.GradScaler()
    best = -1.0

    for epoch in range(CFG.epochs):
        t0 = time.time()
        model.train()
        tl = 0.0
        for step, (x, y) in enumerate(tqdm(tr_dl, leave=False)):
            x = x.to(device, non_blocking=True)
            y = y.to(device, non_blocking=True)
            with torch.cuda.amp.autocast():
                loss = criterion(fast(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            tl += loss.item() / len(tr_dl)
        p = valid_fn(model, va_dl)
        f1 = f1_score(train["damage"].values[va_idx], p.argmax(1), average="macro")
        msg = f"fold {fold} ep {epoch} train {tl:.4f} f1 {f1:.4f} {time.time() - t0:.0f}s"
        print(msg)
        with open(CFG.out + "train.log", "a") as fh:
            fh.write(msg + "\n")
        if f1 > best:
            best = f1
            oof[va_idx] = p
            torch.save(model.state_dict(), CFG.out + f"{CFG.model}_fold{fold}_best.pth")

    fold_scores.append(best)
    del model, fast, tr_dl, va_dl
    gc.collect()
    torch.cuda.empty_cache()

print("folds", [round(s, 4) for s in fold_scores], "mean", round(float(np.mean(fold_scores)), 4))
print("oof", f1_score(train["damage"], oof.argmax(1), average="macro"))
pd.DataFrame(oof, columns=["p0", "p1", "p2", "p3"]).assign(roof_id=train["roof_id"]).to_csv("oof.csv", index=False)
