"""compressed-npz beyond its specimens."""

from __future__ import annotations

from tests.linted import OneRule, each

lines = OneRule("compressed-npz").lines


HEAD = """import numpy as np
from pathlib import Path
from multiprocessing import Pool
from torch.utils.data import Dataset
"""


@each(
    ("body", "found"),
    [
        ("return np.load(self.paths[i])['x']", 1),
        ("d = np.load(self.paths[i])\n    return d['x'], d['y']", 1),
        ("with np.load(self.paths[i]) as d:\n      return d['x']", 1),
        ("return self.read(self.paths[i])\n  def read(self, p):\n    return np.load(p)['x']", 1),
        ("return np.load(Path(self.root, self.ids[i]).with_suffix('.npz'))", 1),
        ("return np.load(self.root / f'{self.ids[i]}.npy')['x']", 0),
        ("return np.load(self.paths[i])", 0),
        ("return np.load(self.paths[i], allow_pickle=True).item()['x']", 0),
        ("if i not in self.kept:\n      self.kept[i] = np.load(self.paths[i])['x']\n    return self.kept[i]", 0),
    ],
)
def test_an_archive_is_told_from_an_array(body: str, found: int) -> None:
    assert len(lines(f"{HEAD}class A(Dataset):\n  def __getitem__(self, i):\n    {body}\n")) == found


@each(
    ("code", "found"),
    [
        ("for p in paths:\n  np.savez_compressed(p.with_suffix('.npz'), x=read(p))", 1),
        ("def one(p):\n  np.savez_compressed(p + '.npz', x=read(p))\nfor p in paths:\n  one(p)", 1),
        ("def one(p):\n  np.savez_compressed(p + '.npz', x=read(p))\nwith Pool() as pool:\n  pool.imap_unordered(one, paths)", 1),
        ("for fold in range(5):\n  np.savez_compressed(f'oof_{fold}.npz', p=p)", 0),
        ("for split in ['train', 'val']:\n  np.savez_compressed(f'{split}.npz', p=p)", 0),
        ("for epoch in range(EPOCHS):\n  np.savez_compressed(f'{epoch}.npz', p=p)", 0),
        ("for p in paths:\n  xs.append(read(p))\nnp.savez_compressed('all.npz', xs=xs)", 0),
    ],
)
def test_a_cache_of_samples_is_told_from_one_archive(code: str, found: int) -> None:
    assert len(lines(f"{HEAD}{code}\n")) == found
