"""Which pipelines are dear, and which run on the device: cases beside the specimens, dashes between them."""

from __future__ import annotations

from tests.linted import OneRule, each

IMPORTS = """
import albumentations as A, numpy as np
from torchvision import transforms as T
from torchvision.transforms import v2
import kornia.augmentation as K
import imgaug.augmenters as iaa
from scipy.ndimage import gaussian_filter, map_coordinates
import scipy.ndimage as ndi, torch
from torch.utils.data import Dataset
import tensorflow as tf
"""

FOUND = """
steps = [T.Resize(3)]
if train:
    steps += [T.RandomRotation(3), T.ColorJitter(1)]
    steps.append(T.RandAugment())
tf = T.Compose(steps)
---
tf = A.Compose([A.OneOf([A.ElasticTransform(), A.GridDistortion()], p=0.3)])
---
seq = iaa.Sequential([iaa.Fliplr(0.5), iaa.PiecewiseAffine(0.1)])
---
def elastic(img):
    d = gaussian_filter(np.random.rand(3, 3), 4)
    return map_coordinates(img, d)

class D(Dataset):

    def __getitem__(self, i):
        return elastic(np.load(self.p[i]))
---
class D(Dataset):

    def __init__(self):
        self.el = T.ElasticTransform(50.0)

    def __getitem__(self, i):
        return self.el(self.x[i])
---
def get(train):
    if train:
        return A.Compose([A.RandomResizedCrop(3, 3), A.ShiftScaleRotate(), A.GaussNoise(), A.CLAHE()])
    return A.Compose([A.Resize(3, 3)])
---
from torchvision.transforms import *
tf = Compose([RandomPerspective(), RandomAffine(3), GaussianBlur(3), ToTensor()])
---
import scipy.ndimage as nd

class D(Dataset):

    def __getitem__(self, i):
        x = np.load(self.p[i])
        x = nd.rotate(x, 3)
        x = nd.zoom(x, 2)
        return nd.gaussian_filter(x, 1)
---
class Data:

    def train_transforms(self):
        return T.Compose([T.RandomApply([T.ColorJitter(0.4)], p=0.8), T.RandomAffine(4), T.RandomPerspective(), T.ToTensor()])
---
from monai.transforms import Compose, Rand2DElasticd
t = Compose([Rand2DElasticd(keys=['a'])])
"""

SILENT = """
tf = T.Compose([T.RandomResizedCrop(3), T.RandomHorizontalFlip(), T.ColorJitter(1), T.RandomRotation(3), T.ToTensor()])
---
tf = A.Compose([A.OneOf([A.MotionBlur(), A.MedianBlur(), A.GaussianBlur()], p=0.3), A.HorizontalFlip(), A.CLAHE()])
---
aug = v2.Compose([v2.RandomAffine(3), v2.ColorJitter(1), v2.GaussianBlur(3)])
for x, y in loader:
    x = aug(x.cuda())
    loss = f(model(x), y)
    loss.backward()
    opt.step()
---
class M(torch.nn.Module):

    def __init__(self):
        super().__init__()
        self.aug = torch.nn.Sequential(T.RandomAffine(3), T.ColorJitter(1), T.GaussianBlur(3))

    def forward(self, x):
        return self.net(self.aug(x))
---
d = gaussian_filter(np.zeros((3, 3)), 4)
x = map_coordinates(img, d)
---
aug = A.Compose([A.ElasticTransform()])
import cv2
for f in files:
    for k in range(5):
        cv2.imwrite(f'{k}{f}', aug(image=cv2.imread(f))['image'])
---
import scipy.ndimage as nd

class D(Dataset):

    def __getitem__(self, i):
        x = np.load(self.p[i])
        x = nd.rotate(x, 3)
        return x
"""


RULE = OneRule("heavy-augmentation", IMPORTS)


@each("case", FOUND.split("---\n"))
def test_it_is_found_once(case: str) -> None:
    assert len(RULE.lines(case)) == 1


@each("case", SILENT.split("---\n"))
def test_it_is_left_alone(case: str) -> None:
    assert RULE.lines(case) == []


APART = """
def build(policy, jitter, blur):
    steps = [T.Resize(3)]
    if policy:
        steps.append(T.RandAugment())
    else:
        steps.append(T.RandomRotation(3))
    if jitter:
        steps += [T.ColorJitter(1)]
    if blur:
        steps += [T.GaussianBlur(3)]
    return T.Compose(steps)
---
tf = A.Compose([A.OneOf([A.CLAHE(), A.MotionBlur(), A.GaussNoise()]), A.HorizontalFlip()])
---
tf = A.Compose([A.OneOf([A.CLAHE(), A.RandomGamma()]), A.OneOf([A.MotionBlur(), A.Blur()]), A.ShiftScaleRotate()])
"""
TOGETHER = """
def build(policy):
    steps = [T.RandomRotation(3), T.ColorJitter(1)]
    if policy:
        steps.append(T.RandAugment())
    return T.Compose(steps)
---
tf = A.Compose([A.OneOf([A.CLAHE(), A.RandomGamma()]), A.MotionBlur(), A.GaussNoise(), A.ShiftScaleRotate()])
"""


@each("case", APART.split("---\n"))
def test_what_no_sample_meets_together_is_not_added_up(case: str) -> None:
    assert RULE.lines(case) == []


@each("case", TOGETHER.split("---\n"))
def test_what_one_sample_can_meet_is_added_up(case: str) -> None:
    assert len(RULE.lines(case)) == 1
