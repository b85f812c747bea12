"""Whole data sets in memory, and handfuls: cases beside the specimens, dashes between them."""

from __future__ import annotations

from tests.linted import OneRule, each

IMPORTS = """
import cv2, glob, os, numpy as np, random
from PIL import Image
from torch.utils.data import Dataset
files = glob.glob("*.jpg")
"""

FOUND = """
X = [cv2.imread(f) for f in files]
---
def load(d):
    X = []
    for c in os.listdir(d):
        for f in os.listdir(os.path.join(d, c)):
            img = cv2.imread(os.path.join(d, c, f))
            img = cv2.resize(img, (64, 64))
            X.append(img)
    return np.array(X)
X = load('train')
---
class D(Dataset):

    def __init__(self, paths):
        self.images = [Image.open(p).convert('RGB') for p in paths]

    def __getitem__(self, i):
        return self.images[i]
---
def read(p):
    return np.array(Image.open(p))
data = {f: read(f) for f in files}
---
def load(paths):
    return [cv2.imread(p) for p in paths]
X = load(files)
---
imgs, masks = ([], [])
for f in files:
    imgs.append(cv2.imread(f))
    masks.append(cv2.imread(f.replace('a', 'b'), 0))
---
from multiprocessing import Pool

def read(p):
    return cv2.imread(p)
with Pool() as pool:
    X = pool.map(read, files, chunksize=4)
---
def read(p):
    return cv2.imread(p)
X = np.stack(list(map(read, files)))
---
import pandas as pd
df = pd.read_csv('a')
df['img'] = df['path'].apply(lambda p: cv2.imread(p))
---
from joblib import Parallel, delayed

def read(p):
    return cv2.imread(p)
X = Parallel(4)((delayed(read)(f) for f in files))
---
def read_folder(d):
    out = []
    for p in glob.glob(d + '/*.png'):
        out.append(cv2.imread(p))
    return out
X = []
for d in folders:
    X.extend(read_folder(d))
---
X = []
for f in df.filename[:5000]:
    X.append(cv2.imread(f))
---
import tensorflow as tf
X = tf.stack([tf.io.decode_jpeg(tf.io.read_file(f)) for f in files])
---
from concurrent.futures import ThreadPoolExecutor

def read(p):
    return cv2.imread(p)
with ThreadPoolExecutor() as ex:
    X = list(ex.map(read, files))
---
class D(Dataset):

    def __init__(self, root):
        self.files = glob.glob(root)
        self.imgs = {}
        for p in self.files:
            self.imgs[p] = np.array(Image.open(p))

    def __getitem__(self, i):
        return self.imgs[self.files[i]]
---
import rasterio
X = []
for s in glob.glob('*.tif'):
    with rasterio.open(s) as src:
        X.append(src.read())
"""

SILENT = """
X = [cv2.imread(f) for f in files[:16]]
---
X = []
for part in parts:
    for f in part:
        X.append(cv2.imread(f))
    use(X)
    X.clear()
---
X = [cv2.imread(f).shape for f in files]
Y = [cv2.imread(f).mean() for f in files]
---
for i in range(0, len(files), 32):
    X = np.stack([cv2.imread(f) for f in files[i:i + 32]])
    model.predict(X)
---
def batch(paths):
    return [cv2.imread(p) for p in paths]
---
def batch(paths):
    return [cv2.imread(p) for p in paths]
for chunk in chunks:
    model.predict(batch(chunk))
---
imgs = []
for f in files:
    imgs.append(cv2.imread(f))
    if len(imgs) == 32:
        go(imgs)
        imgs = []
---
imgs = []
for f in files:
    imgs.append(cv2.imread(f))
    if len(imgs) >= 9:
        break
---
feats = []
for f in files:
    feats.append(model.predict(cv2.imread(f)[None]))
---
mm = np.lib.format.open_memmap('a', mode='w+', shape=(len(files), 3))
for i, f in enumerate(files):
    mm[i] = cv2.imread(f)
---
masks = [cv2.imread(f, 0) for f in files]
---
for ax, f in zip(axes.flat, random.sample(files, 9)):
    ims.append(Image.open(f))
---
img = cv2.imread('a.png')
out = []
for k in range(1000):
    out.append(aug(img))
tiles = []
for y in range(0, img.shape[0], 64):
    tiles.append(img[y:y + 64])
---
import pydicom

def scan(d):
    return np.stack([pydicom.dcmread(p).pixel_array for p in glob.glob(d + '/*.dcm')])
for d in folders:
    v = scan(d)
    np.save(d, v)
---
import rasterio
for s in scenes:
    with rasterio.open(s) as src:
        tiles = []
        for w in windows:
            tiles.append(src.read(window=w))
        go(tiles)
---
thumbs = []
for i in range(9):
    thumbs.append(Image.open(files[i]))
"""


RULE = OneRule("images-in-list", IMPORTS)


@each("case", FOUND.split("---\n"))
def test_it_is_found_once(case: str) -> None:
    assert len(RULE.lines(case)) == 1


@each("case", SILENT.split("---\n"))
def test_it_is_left_alone(case: str) -> None:
    assert RULE.lines(case) == []


def test_a_compression_that_is_tried_out_is_no_file() -> None:
    source = "import torchvision\nout = []\nfor i in range(image.shape[0]):\n"
    source += "    small = torchvision.io.encode_jpeg(image[i])\n    out.append(torchvision.io.decode_jpeg(small))\n"
    assert not OneRule("images-in-list").texts(source)
