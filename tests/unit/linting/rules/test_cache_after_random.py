"""What is kept before chance and what after: cases beside the specimens, dashes between them."""

from __future__ import annotations

from tests.linted import OneRule, each

IMPORTS = """
import numpy as np, torch, random, os
import tensorflow as tf
from PIL import Image
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
from torch.utils.data import Dataset
from functools import lru_cache
import joblib
"""

FOUND = """
aug = tf.keras.Sequential([tf.keras.layers.RandomFlip('horizontal')])
ds = tf.keras.utils.image_dataset_from_directory('a')
ds = ds.map(lambda x, y: (aug(x, training=True), y)).cache().prefetch(2)
---
def npaug(x):
    return x + np.random.normal(size=3)

def aug(x):
    return tf.numpy_function(npaug, [x], tf.float32)
train = tf.data.Dataset.from_tensor_slices(a).map(aug).cache('f')
---
class D(Dataset):

    def __init__(self, ps):
        self.ps = ps
        self.cache = {}

    def __getitem__(self, i):
        if i in self.cache:
            return self.cache[i]
        img = Image.open(self.ps[i])
        if random.random() < 0.5:
            img = img.transpose(0)
        self.cache[i] = img
        return img
---
class Cached(Dataset):

    def __init__(self, ds):
        self.ds = ds
        self.memo = {}

    def __getitem__(self, i):
        if i not in self.memo:
            self.memo[i] = self.ds[i]
        return self.memo[i]
tf = T.Compose([T.RandomHorizontalFlip(), T.ToTensor()])
train = Cached(ImageFolder('a', transform=tf))
---
class D(Dataset):

    def __init__(self, ps):
        self.tf = T.Compose([T.RandomHorizontalFlip(), T.ToTensor()])
        self.items = []
        for p in ps:
            self.items.append(self.tf(Image.open(p)))

    def __getitem__(self, i):
        return self.items[i]
---
memory = joblib.Memory('.c')

@memory.cache
def get(p):
    x = np.array(Image.open(p))
    return x + np.random.normal(0, 1, x.shape)

class D(Dataset):

    def __getitem__(self, i):
        return get(self.p[i])
---
class D(Dataset):

    def __init__(self, ps):
        self.ps = ps
        self.jit = T.ColorJitter(0.3)

    @lru_cache(None)
    def __getitem__(self, i):
        return self.jit(Image.open(self.ps[i]))
---
CACHE = {}
aug = T.Compose([T.RandomCrop(3)])

class D(Dataset):

    def __getitem__(self, i):
        if i in CACHE:
            return CACHE[i]
        CACHE[i] = aug(Image.open(self.ps[i]))
        return CACHE[i]
---
class D(Dataset):

    def __init__(self, ps):
        self.cache = {}

    def augment(self, x):
        if np.random.rand() < 0.5:
            x = x[:, ::-1]
        return x

    def __getitem__(self, i):
        if i not in self.cache:
            x = np.array(Image.open(self.ps[i]))
            self.cache[i] = self.augment(x)
        return self.cache[i]
"""

SILENT = """
aug = tf.keras.Sequential([tf.keras.layers.RandomFlip('horizontal')])
ds = tf.keras.utils.image_dataset_from_directory('a')
ds = ds.cache().map(lambda x, y: (aug(x, training=True), y)).prefetch(2)
---
def load(p):
    return tf.io.decode_jpeg(tf.io.read_file(p))
train = tf.data.Dataset.from_tensor_slices(a).map(load).cache().map(lambda x: tf.image.random_flip_left_right(x))
val = tf.data.Dataset.from_tensor_slices(b).map(load).cache()
---
class D(Dataset):

    def __init__(self, ps):
        self.ps = ps
        self.cache = {}

    def __getitem__(self, i):
        if i not in self.cache:
            self.cache[i] = Image.open(self.ps[i])
        img = self.cache[i]
        if random.random() < 0.5:
            img = img.transpose(0)
        return img
---
class Cached(Dataset):

    def __init__(self, ds):
        self.ds = ds
        self.memo = {}

    def __getitem__(self, i):
        if i not in self.memo:
            self.memo[i] = self.ds[i]
        return self.memo[i]
tf = T.Compose([T.Resize(3), T.ToTensor()])
train = Cached(ImageFolder('a', transform=tf))
flip = T.RandomHorizontalFlip()
---
class D(Dataset):

    def __init__(self, ps):
        self.tf = T.Compose([T.RandomHorizontalFlip(), T.ToTensor()])

    def __getitem__(self, i):
        f = f'cache/{i}.npy'
        if os.path.exists(f):
            x = np.load(f)
        else:
            x = np.asarray(Image.open(self.ps[i]))
            np.save(f, x)
        return self.tf(x)
---
class D(Dataset):

    def __init__(self, ps):
        self.tf = T.Compose([T.RandomHorizontalFlip(), T.ToTensor()])

    def __getitem__(self, i):
        batch = {}
        batch['x'] = self.tf(Image.open(self.ps[i]))
        out = np.zeros(3)
        out[0] = self.tf(Image.open(self.ps[i]))
        return batch
"""


RULE = OneRule("cache-after-random", IMPORTS)


@each("case", FOUND.split("---\n"))
def test_it_is_found_once(case: str) -> None:
    assert len(RULE.lines(case)) == 1


@each("case", SILENT.split("---\n"))
def test_it_is_left_alone(case: str) -> None:
    assert RULE.lines(case) == []
