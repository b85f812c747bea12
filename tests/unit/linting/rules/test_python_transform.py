"""Which loops visit pixels, and which only look like it: cases beside the specimens, dashes between them."""

from __future__ import annotations

from tests.linted import OneRule, each

IMPORTS = """
import numpy as np, itertools
from PIL import Image
from torch.utils.data import Dataset
from numba import njit
"""

FOUND = """
class D(Dataset):

    def __getitem__(self, i):
        img = np.load(self.p[i])
        for y in range(img.shape[0]):
            for x in range(img.shape[1]):
                img[y, x] = 255 - img[y, x]
        return img
---
class D(Dataset):

    def __getitem__(self, i):
        img = np.load(self.p[i])
        img = Image.fromarray(img)
        w, h = img.size
        for x in range(w):
            for y in range(h):
                img.putpixel((x, y), 1)
        return img
---
class D(Dataset):

    def __getitem__(self, i):
        img = np.load(self.p[i])
        out = [[f(p) for p in row] for row in img]
        return out
---
class D(Dataset):

    def __getitem__(self, i):
        img = np.load(self.p[i])
        for i in range(len(img)):
            for j in range(len(img[0])):
                img[i][j] = 0
        return img
---
class D(Dataset):

    def __getitem__(self, i):
        img = np.load(self.p[i])
        pix = img.load()
        for i in range(img.width):
            for j in range(img.height):
                r, g, b = pix[i, j]
                pix[i, j] = (g, r, b)
        return img
---
import torch

class T:

    def __call__(self, t):
        h, w = t.shape[-2:]
        for i in range(h):
            for j in range(w):
                t[0, i, j] = t[0, i, j] ** 2
        return t
from torchvision import transforms
tf = transforms.Compose([T()])
---
class D(Dataset):

    def __getitem__(self, i):
        img = np.load(self.p[i])
        for r in range(img.shape[0]):
            img[r] = [lut[v] for v in img[r]]
        return img
"""

SILENT = """
class D(Dataset):

    def __getitem__(self, i):
        img = np.load(self.p[i])
        for y in range(0, img.shape[0], 64):
            for x in range(0, img.shape[1], 64):
                t = img[y:y + 64, x:x + 64]
        return img
---
class D(Dataset):

    def __getitem__(self, i):
        img = np.load(self.p[i])
        S = 7
        t = np.zeros((S, S))
        for y in range(S):
            for x in range(S):
                t[y, x] = 1
        return img
---
class D(Dataset):

    def __getitem__(self, i):
        img = np.load(self.p[i])
        for b in self.boxes[i]:
            for v in b:
                pass
        return img
---
@njit
def f(img):
    for y in range(img.shape[0]):
        for x in range(img.shape[1]):
            img[y, x] += 1
    return img

class D(Dataset):

    def __getitem__(self, i):
        img = np.load(self.p[i])
        return f(img)
---
def f(cm):
    for y in range(cm.shape[0]):
        for x in range(cm.shape[1]):
            cm[y, x] += 1
    return cm
f(np.zeros((9, 9)))
---
for i in range(patches_img.shape[0]):
    for j in range(patches_img.shape[1]):
        out.append(patches_img[i, j, :, :])
---
class D(Dataset):

    def __getitem__(self, i):
        img = np.load(self.p[i])
        for k in range(img.shape[0]):
            for c in range(3):
                img[k, c] -= 1
        return img
---
def collate_fn(batch):
    out = []
    for item in batch:
        for img in item:
            out.append(img)
    return out
from torch.utils.data import DataLoader
DataLoader(ds, collate_fn=collate_fn)
"""


RULE = OneRule("python-transform", IMPORTS)


@each("case", FOUND.split("---\n"))
def test_it_is_found_once(case: str) -> None:
    assert len(RULE.lines(case)) == 1


@each("case", SILENT.split("---\n"))
def test_it_is_left_alone(case: str) -> None:
    assert RULE.lines(case) == []


@each(
    "case",
    [
        "def f(img):\n    for y in range(img.shape[0]):\n        for x in range(img.shape[1]):\n            img[y, x] += 1\n",
        "for y in range(mask.shape[0]):\n    for x in range(mask.shape[1]):\n        if mask[y][x] > 9:\n            n += 1\n",
        "for path in paths:\n    im = cv2.imread(path)\n    values.extend(im.flatten())\n",
    ],
)
def test_pixels_are_found_outside_per_sample_code_too(case: str) -> None:
    assert len(RULE.lines("import cv2\n" + case)) == 1


@each(
    "body",
    [
        "picture = img[y, x]\n                h = picture.shape[1]\n                n += sizes[y, x] / h\n",
        "out[y, x] = self.net(img[y, x])\n",
        "parts[y, x] = img[y * s : y * s + s, x * s : x * s + s]\n",
        "n += img[y, x][:3].sum()\n",
    ],
)
def test_arrays_picked_by_two_counters_are_no_pixels(body: str) -> None:
    head = """
import torch
class D(Dataset):
    def __init__(self):
        self.net = torch.nn.Linear(3, 3)
    def __getitem__(self, i):
        img = np.load(self.p[i])
        for y in range(img.shape[0]):
            for x in range(img.shape[1]):
"""
    assert RULE.lines(head.lstrip() + " " * 16 + body) == []


def test_a_table_of_some_shape_is_no_picture() -> None:
    source = "for b in range(shape[0]):\n    for i in range(shape[1]):\n        im_info[b][i] = 1\n"
    assert not OneRule("python-transform").texts(source)
