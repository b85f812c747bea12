# beach_litter_features.py
# Photos of 1x1 m quadrats -> ResNet-18 features (mean over 5 crops) -> logistic regression for "litter present"
# no GPU on the field laptop, so one net per core
import logging
import multiprocessing as mp
import os
from collections import Counter
from pathlib import Path

import cv2
import joblib
import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import classification_report
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torchvision.models import resnet18

mp.set_start_method("fork", force=True)
torch.set_num_threads(1)
cv2.setNumThreads(0)
logging.basicConfig(filename="features.log", level=logging.INFO)

ROOT = Path("data/quadrats")
OUT = Path("features")
OUT.mkdir(exist_ok=True)
SIDE = 512
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)

net = resnet18(weights=None)
net.load_state_dict(torch.load("weights/resnet18_shore.pth", map_location="cpu"))
net.fc = torch.nn.Identity()
net.eval()


def five_crops(img, s=224):
    h, w = img.shape[:2]
    cy, cx = (h - s) // 2, (w - s) // 2
    corners = [(0, 0), (0, w - s), (h - s, 0), (h - s, w - s), (cy, cx)]
    return [img[y:y + s, x:x + s] for y, x in corners]


def infer_photo(path):
    img = cv2.imread(str(path))
    if img is None:
        logging.warning("cannot read %s", path)
        return path.name, None
    scale = SIDE / min(img.shape[:2])
    img = cv2.resize(img, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    crops = [(c.astype(np.float32) / 255 - MEAN) / STD for c in five_crops(img)]
    x = torch.from_numpy(np.stack(crops).transpose(0, 3, 1, 2).copy())
    feats = net(x)
    return path.name, feats.mean(0).detach().numpy()


def sharpness(path):
    g = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
    if g is None:
        logging.warning("cannot read %s", path)
        return path.name, float("nan")
    return path.name, float(cv2.Laplacian(g, cv2.CV_64F).var())


photos = sorted(p for p in ROOT.rglob("*") if p.suffix.lower() in {".jpg", ".jpeg", ".png"})
print(len(photos), "photos", Counter(p.parent.name for p in photos).most_common(5))

labels = pd.read_csv(ROOT / "quadrat_sheet.csv")
labels["photo"] = labels["photo"].str.strip()
if not os.path.exists(OUT / "resnet18.npz"):
    with mp.Pool(os.cpu_count()) as pool:
        rows = pool.map(infer_photo, photos)
    rows = [(n, f) for n, f in rows if f is not None]
    tmp = OUT / "part_resnet18.npz"
    np.savez(tmp, names=np.array([n for n, _ in rows]), X=np.stack([f for _, f in rows]))
    os.replace(tmp, OUT / "resnet18.npz")

    # blur check, just to know how bad the drizzle days were
    with mp.Pool(os.cpu_count()) as pool:
        sharp = dict(pool.imap_unordered(sharpness, photos, chunksize=8))
    pd.Series(sharp, name="lapvar").to_csv(OUT / "sharpness.csv")

z = np.load(OUT / "resnet18.npz")
names, X = z["names"], z["X"]
df = labels.set_index("photo").reindex(names)
ok = df["litter_items"].notna().to_numpy()
print("with a sheet entry:", ok.sum(), "of", len(ok))

X, df = X[ok], df[ok]
y = (df["litter_items"] > 0).astype(int).to_numpy()
groups = df["beach"].to_numpy()

for C in (0.003, 0.01, 0.03, 0.1):
    clf = make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=2000, class_weight="balanced"))
    pred = cross_val_predict(clf, X, y, groups=groups, cv=GroupKFold(5))
    print("C =", C)
    print(classification_report(y, pred, target_names=["clean", "litter"], digits=3))

final = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=2000, class_weight="balanced"))
final.fit(X, y)
joblib.dump(final, OUT / "litter_logreg.joblib")

# beaches with the most false alarms
wrong = pd.DataFrame({"beach": groups, "wrong": pred != y})
print(wrong.groupby("beach")["wrong"].mean().sort_values(ascending=False).head(10))
