"""list-per-sample beyond its specimens."""

from __future__ import annotations

from tests.linted import OneRule, each

lines = OneRule("list-per-sample").lines


HEAD = """import fnmatch, glob, os
from pathlib import Path
from torch.utils.data import Dataset, IterableDataset
"""


@each(
    ("code", "found"),
    [
        ("class A(Dataset):\n  def __getitem__(self, i):\n    return next(os.walk(self.folders[i]))", [6]),
        ("class A(Dataset):\n  def __getitem__(self, i):\n    return list(Path(self.folders[i]).rglob('*.png'))", [6]),
        ("class A(Dataset):\n  def __getitem__(self, i):\n    return fnmatch.filter(self.names, f'{i}*')", []),
        ("class A(Dataset):\n  def __getitem__(self, i):\n    return self.walk(i)\n  def walk(self, i):\n    return i", []),
        (
            "class A(Dataset):\n  def __getitem__(self, i):\n    return self.files[i]\n"
            "  def setup(self):\n    self.files = os.listdir('a')",
            [],
        ),
        ("class A(Dataset):\n  def __getitem__(self, i):\n    if self.files is None:\n      self.files = os.listdir('a')", []),
        ("class A(IterableDataset):\n  def __iter__(self):\n    for f in sorted(glob.glob('*.png')):\n      yield f", []),
        ("class A(IterableDataset):\n  def __iter__(self):\n    return iter(os.listdir('a'))", []),
        ("class A(IterableDataset):\n  def __iter__(self):\n    for d in self.dirs:\n      yield os.listdir(d)", [7]),
    ],
)
def test_a_listing_counts_where_it_runs_for_each_sample(code: str, found: list[int]) -> None:
    assert lines(f"{HEAD}{code}\n") == found


def test_generator_made_by_a_function_is_per_sample() -> None:
    code = """import os
import tensorflow as tf
def samples(ids):
    def generate():
        for patient in ids:
            yield os.listdir(patient)
    return generate
ds = tf.data.Dataset.from_generator(samples(ids), output_signature=spec)
"""
    assert lines(code) == [6]
