"""What stands in for a sample, and what is recorded: cases beside the specimens, dashes between them."""

from __future__ import annotations

from tests.linted import OneRule, each

IMPORTS = """
import cv2, glob, os, numpy as np, random
from PIL import Image
from torch.utils.data import Dataset
files = glob.glob("*.jpg")
import torch, logging
logger = logging.getLogger()
"""

FOUND = """class D(Dataset):

    def __getitem__(self, i):
        try:
            img = Image.open(self.p[i]).convert('RGB')
        except:
            return None
        return img
---
class D(Dataset):

    def __getitem__(self, i):
        try:
            img = Image.open(self.p[i]).convert('RGB')
        except OSError as e:
            logger.warning('bad %s', self.p[i])
            img = torch.zeros(3, 2, 2)
        return img
---
for f in files:
    try:
        img = Image.open(f)
    except:
        continue
---
for f in files:
    try:
        img = Image.open(f)
    except OSError:
        print('bad file')
        continue
---
def load(p):
    try:
        return np.array(Image.open(p))
    except Exception:
        return np.random.randint(0, 255, (3, 3, 3))
x = [load(f) for f in files]
---
BLANK = np.zeros((3, 3, 3))

class D(Dataset):

    def load(self, p):
        with open(p, 'rb') as f:
            return Image.open(f)

    def __getitem__(self, i):
        try:
            x = self.load(self.p[i])
        except IOError:
            x = BLANK
        return x
---
for f in files:
    try:
        X.append(np.array(Image.open(f)))
    except Exception:
        failed += 1
---
for f in files:
    try:
        X.append(np.array(Image.open(f)))
    except Exception:
        print('error')
---
import tensorflow as tf

def py(p):
    try:
        im = np.array(Image.open(p.numpy()))
    except Exception:
        im = np.full((3, 3), 0)
    return im
ds = tf.data.Dataset.from_tensor_slices(files).map(lambda p: tf.py_function(py, [p], tf.uint8))
---
def gen(files):
    while True:
        for f in files:
            img = cv2.imread(f)
            if img is None:
                continue
            yield (img, 1)
---
import rasterio
from rasterio.errors import RasterioIOError

class D(Dataset):

    def __getitem__(self, i):
        try:
            with rasterio.open(self.p[i]) as src:
                a = src.read()
        except RasterioIOError:
            a = np.zeros((4, 3, 3))
        return a
"""

SILENT = """
class D(Dataset):

    def __getitem__(self, i):
        try:
            img = Image.open(self.p[i]).convert('RGB')
        except OSError as e:
            logger.warning('bad %s', self.p[i])
            return None
        return img
---
for f in files:
    try:
        img = Image.open(f)
    except OSError:
        print('cannot read', f)
        continue
---
try:
    mean = np.load('mean.npy')
except OSError:
    mean = np.zeros(3)
---
def ok(p):
    try:
        Image.open(p).verify()
        return True
    except OSError:
        return False
---
def load(p):
    for attempt in range(3):
        try:
            return Image.open(p)
        except OSError:
            continue
    raise RuntimeError(p)
---
def load(p):
    img = cv2.imread(p)
    if img is None:
        return None
    return img
for f in files:
    x = load(f)
    if x is None:
        bad.append(f)
        continue
---
for f in files:
    img = cv2.imread(f)
    if img is not None:
        X.append(img)
    else:
        print('no', f)
---
try:
    ck = torch.load('a.pt', weights_only=True)
    model.load_state_dict(ck)
except FileNotFoundError:
    pass
---
class D(Dataset):

    def __getitem__(self, i):
        img = cv2.imread(self.p[i])
        boxes = self.boxes.get(i)
        if boxes is None:
            boxes = np.zeros((0, 4))
        return (img, boxes)
---
def f(img=None):
    if img is None:
        img = cv2.imread('default.png')
    return img
---
for f in files:
    try:
        X.append(np.array(Image.open(f)))
    except Exception as e:
        print(f, e)
---
cap = cv2.VideoCapture('a')
while True:
    ok, fr = cap.read()
    if not ok:
        break
    if fr is None:
        continue
---
class D(Dataset):

    def __getitem__(self, i):
        img = Image.open(self.p[i])
        if self.transform is None:
            return np.zeros(3)
        return img
---
def load_model(p):
    try:
        return torch.load(p)
    except FileNotFoundError:
        return None
---
def load_cfg():
    try:
        with open('a.json') as f:
            return json.load(f)
    except FileNotFoundError:
        return None
"""


RULE = OneRule("blank-on-error", IMPORTS)


@each("case", FOUND.split("---\n"))
def test_it_is_found_once(case: str) -> None:
    assert len(RULE.lines(case)) == 1


@each("case", SILENT.split("---\n"))
def test_it_is_left_alone(case: str) -> None:
    assert RULE.lines(case) == []
