"""Decoding in the process that trains: cases beside the specimens."""

from __future__ import annotations

from tests.linted import OneRule, each

lines = OneRule("no-workers").lines


DATA = """
from PIL import Image
from torch.utils.data import DataLoader, Dataset, random_split
from torchvision.datasets import ImageFolder, CIFAR10
class Data(Dataset):
    def __getitem__(self, i):
        return Image.open(self.names[i])
class Kept(Dataset):
    def __getitem__(self, i):
        if i not in self.kept:
            self.kept[i] = Image.open(self.names[i])
        return self.kept[i]
"""


@each(
    ("line", "reported"),
    [
        ("train_loader = DataLoader(Data(), shuffle=True)", True),
        ("train_loader = DataLoader(Data(), shuffle=True, num_workers=0)", True),
        ("train_loader = DataLoader(Data(), shuffle=True, num_workers=2)", False),
        ("train_loader = DataLoader(Data(), shuffle=True, num_workers=n)", False),
        ("train_loader = DataLoader(Data(), shuffle=True, **options)", False),
        ("options = {'batch_size': 4}; train_loader = DataLoader(Data(), shuffle=True, **options)", True),
        ("options = {'num_workers': 4} if gpu else {}; train_loader = DataLoader(Data(), shuffle=True, **options)", False),
        ("options = dict(num_workers=4); train_loader = DataLoader(Data(), **options)", False),
        ("options = {}; options.update(more); train_loader = DataLoader(Data(), **options)", False),
        ("test_loader = DataLoader(Data())", False),
        ("train_loader = DataLoader(Kept(), shuffle=True)", False),
        ("train_loader = DataLoader(CIFAR10('.'), shuffle=True)", False),
        ("train_loader = DataLoader(ImageFolder('.'), shuffle=True)", True),
        ("train, test = random_split(ImageFolder('.'), [8, 2]); train_loader = DataLoader(train, shuffle=True)", True),
    ],
)
def test_training_loaders_of_pictures(line: str, reported: bool) -> None:
    assert lines(DATA + line) == ([13] if reported else [])


@each(
    ("line", "reported"),
    [
        ("ds = tf.data.Dataset.from_tensor_slices(x).map(load)", True),
        ("ds = tf.data.Dataset.from_tensor_slices(x).map(lambda p: load(p))", True),
        ("ds = tf.data.Dataset.from_tensor_slices(x).map(load, tf.data.AUTOTUNE)", False),
        ("ds = tf.data.Dataset.from_tensor_slices(x).map(flip)", False),
        ("ds = tf.data.Dataset.from_tensor_slices(x).map(wrapped)", True),
        ("ds = (tf.data.Dataset.from_tensor_slices(x)\n    .map(load))", True),
        ("val_ds = tf.data.Dataset.from_tensor_slices(x).map(load)", False),
    ],
)
def test_maps_that_decode(line: str, reported: bool) -> None:
    head = """import tensorflow as tf, cv2
def load(p):
    return tf.io.decode_jpeg(tf.io.read_file(p))
def flip(x):
    return tf.image.random_flip_left_right(x)
def with_cv2(p):
    return cv2.imread(p)
def wrapped(p):
    return tf.py_function(with_cv2, [p], tf.uint8)
"""
    assert lines(head + line) == ([10 + line.count("\n")] if reported else [])
