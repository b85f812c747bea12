"""Where batches come from, how large they are, and what for."""

from __future__ import annotations

from typing import Any

import pytest

from programs import script
from unchoke.code.constant_values import UNKNOWN

HEAD = """
import os
import cv2
import rasterio
import tensorflow as tf
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Subset, random_split
from torchvision.datasets import ImageFolder
BS = 32
class Photos(Dataset):
    def __getitem__(self, i):
        return self.read(i)
    def read(self, i):
        return Image.open(i)
class Features(Dataset):
    def __getitem__(self, i):
        return self.x[i]
"""


def loader(text: str) -> Any:
    (found,) = script(HEAD + text).facts.loaders
    return found


@pytest.mark.parametrize(
    ("text", "role", "batch", "workers"),
    [
        ("train_dl = DataLoader(Photos(), batch_size=BS, num_workers=4)", "train", 32, 4),
        ("val_dl = DataLoader(Photos(), BS * 2)", "eval", 64, None),
        ("dl = DataLoader(ds, shuffle=True)", "train", 1, None),
        ("dl = DataLoader(Photos('test'), batch_size=n, num_workers=os.cpu_count())", "eval", UNKNOWN, 2),
        ("dl = DataLoader(Subset(ds, val_idx), 8)", "eval", 8, None),
        ("kw = dict(batch_size=BS, num_workers=6)\ntrain = DataLoader(ds, **kw)", "train", 32, 6),
        ("dls = {'valid': DataLoader(ds, 16)}", "eval", 16, None),
        ("class M:\n  def val_dataloader(self):\n    return DataLoader(self.ds, batch_size=12)", "eval", 12, None),
        ("x = DataLoader(ds, 4)\nfor a in x:\n  loss.backward()", "train", 4, None),
        ("x = DataLoader(ds, 4)\n@torch.no_grad()\ndef evaluate():\n  for a in x:\n    m(a)", "eval", 4, None),
        (
            "def make(ds, bs, **kw):\n  return DataLoader(ds, batch_size=bs, num_workers=3, **kw)\nval = make(d, 2 * BS)",
            "eval",
            64,
            3,
        ),
        ("train_ds = tf.data.Dataset.list_files('x').shuffle(9).batch(BS).prefetch(1)", "train", 32, None),
        ("v = tf.keras.utils.image_dataset_from_directory('d', subset='validation', batch_size=BS)", "eval", 32, None),
        ("g = gen.flow_from_directory('data/test', batch_size=7)", "eval", 7, None),
    ],
)
def test_a_loader_tells_its_role_batch_and_workers(text: str, role: str, batch: Any, workers: Any) -> None:
    found = loader(text)
    assert (found.role, found.batch, found.workers) == (role, batch, workers)


def test_comprehension_makes_one_loader_of_each_part() -> None:
    found = script(HEAD + "dls = {p: DataLoader(sets[p], batch_size=4) for p in ['train', 'val']}").facts.loaders
    assert [item.role for item in found] == ["train", "eval"]


def test_a_helper_makes_one_loader_for_each_call_of_it() -> None:
    text = "def make(ds, bs):\n  return DataLoader(ds, batch_size=bs)\ntrain = make(Photos(), 8)\nval = make(Features(), 16)"
    found = script(HEAD + text).facts.loaders
    assert [(item.role, item.batch, item.decodes) for item in found] == [("train", 8, True), ("eval", 16, False)]


@pytest.mark.parametrize(
    ("dataset", "decodes"),
    [
        ("Photos()", True),
        ("Features()", False),
        ("ImageFolder('x')", True),
        ("Subset(Photos(), idx)", True),
        ("random_split(Photos(), [8, 2])[0]", True),
        ("unknown", False),
    ],
)
def test_a_loader_knows_whether_its_samples_are_decoded(dataset: str, decodes: bool) -> None:
    assert loader(f"ds = {dataset}\ndl = DataLoader(ds)").decodes is decodes


def test_both_parts_of_a_random_split_are_the_same_data_set() -> None:
    text = "a, b = random_split(Photos(), [8, 2])\ntrain = DataLoader(a)\nval = DataLoader(b)"
    assert [item.decodes for item in script(HEAD + text).facts.loaders] == [True, True]


def test_tf_data_knows_whether_it_maps_a_decoding_function() -> None:
    load = "def load(p):\n  return tf.io.decode_jpeg(tf.io.read_file(p))\n"
    assert loader(load + "ds = tf.data.Dataset.list_files('x').map(load)\nds = ds.batch(3)").decodes
    made = "def pairs(p):\n  ds = tf.data.Dataset.list_files(p)\n  ds = ds.map(load)\n  return ds.cache()\n"
    assert loader(load + made + "train_ds = pairs('x').shuffle(4).batch(3)").decodes


def test_torch_tensors_have_batches_that_are_no_loader() -> None:
    assert script(HEAD + "y = model.batch(3)\nz = x.batch(4)").facts.loaders == []
