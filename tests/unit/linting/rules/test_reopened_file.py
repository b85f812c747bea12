"""reopened-file beyond its specimens."""

from __future__ import annotations

from tests.linted import OneRule, each

lines = OneRule("reopened-file").lines


HEAD = """import h5py, lmdb, rasterio, zipfile, random, io
import xarray as xr
from functools import lru_cache
from osgeo import gdal
from rasterio.windows import Window
from torch.utils.data import Dataset
"""


@each(
    ("body", "found"),
    [
        ("return h5py.File(self.path, 'r')['x'][i]", 1),
        ("f = h5py.File(self.files[self.of[i]], 'r')\n    d = f['x']\n    return d[self.at[i]]", 1),
        ("with h5py.File(self.files[i]) as f:\n      return f['x'][:], f['y'][()]", 0),
        ("with h5py.File(self.files[i]) as f:\n      return [f['x'][k] for k in range(0, len(f['x']), 4)]", 0),
        ("with rasterio.open(self.files[i]) as src:\n      return src.read([1, 2, 3])", 0),
        (
            "with rasterio.open(self.files[i]) as src:\n      x = random.randint(0, src.width)\n"
            "      return src.read(window=Window(x, x, 9, 9))",
            1,
        ),
        (
            "with rasterio.open(self.files[i]) as src:\n      x = src.width // 2\n"
            "      return src.read(window=Window(x, x, 9, 9))",
            0,
        ),
        ("with zipfile.ZipFile(self.zip) as z:\n      return z.read(self.names[i])", 1),
        ("return zipfile.ZipFile(io.BytesIO(self.blobs[i])).read('a')", 0),
        ("env = lmdb.open(self.path)\n    with env.begin() as t:\n      return t.get(str(i).encode())", 1),
        ("p, w = self.index[i]\n    self.src = rasterio.open(p)\n    return self.src.read(window=w)", 1),
        ("return gdal.Open(self.scenes[i]).ReadAsArray()", 0),
        ("s, x, y = self.index[i]\n    return gdal.Open(s).ReadAsArray(x, y, 64, 64)", 1),
        (
            "return self.scene(self.rows[i].path).read(window=self.windows[i])\n"
            "  @lru_cache(8)\n  def scene(self, p):\n    return rasterio.open(p)",
            0,
        ),
        (
            "return self.scene(self.rows[i].path).read(window=self.windows[i])\n"
            "  def scene(self, p):\n    return rasterio.open(p)",
            1,
        ),
        (
            "return self.handle()['x'][i]\n  def handle(self):\n    if not hasattr(self, 'f'):\n"
            "      self.f = h5py.File(self.path)\n    return self.f",
            0,
        ),
        (
            "if self.f is None:\n      self.open_file()\n    return self.x[i]\n"
            "  def open_file(self):\n    self.f = h5py.File(self.path)\n    self.x = self.f['x']",
            0,
        ),
        (
            "if self.other is None:\n      self.open_file()\n    return self.x[i]\n"
            "  def open_file(self):\n    self.f = h5py.File(self.path)\n    self.x = self.f['x']",
            1,
        ),
        ("with h5py.File('log.h5', 'a') as f:\n      f['seen'][i] = 1", 0),
    ],
)
def test_a_file_of_many_samples_is_told_from_a_file_of_one(body: str, found: int) -> None:
    assert len(lines(f"{HEAD}class A(Dataset):\n  def __getitem__(self, i):\n    {body}\n")) == found


@each(
    ("code", "found"),
    [
        ("for w in windows:\n  with rasterio.open(path) as src:\n    out.append(src.read(window=w))", 1),
        ("with rasterio.open(path) as src:\n  for w in windows:\n    out.append(src.read(window=w))", 0),
        ("for path in paths:\n  with rasterio.open(path) as src:\n    out.append(src.read(window=Window(0, 0, 64, 64)))", 0),
        ("for path in paths:\n  for w in windows:\n    out.append(rasterio.open(path).read(1, window=w))", 1),
        (
            "def cut(path, w):\n  with rasterio.open(path) as src:\n"
            "    return src.read(window=w)\ntiles = [cut(path, w) for w in windows]",
            1,
        ),
        ("def cut(path, w):\n  with rasterio.open(path) as src:\n    return src.read(window=w)\ntile = cut(path, w)", 0),
        ("for split in ('train', 'val'):\n  with h5py.File(path) as f:\n    data[split] = f[split][:]", 0),
        ("for z in range(depth):\n  with h5py.File(path) as f:\n    show(f['ct'][z])", 1),
    ],
)
def test_a_loop_over_windows_opens_before_it(code: str, found: int) -> None:
    assert len(lines(f"{HEAD}{code}\n")) == found
