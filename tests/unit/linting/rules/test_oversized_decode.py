"""oversized-decode beyond its specimens."""

from __future__ import annotations

from tests.linted import OneRule, each

lines = OneRule("oversized-decode").lines


HEAD = """import cv2, random, rasterio, tifffile
import nibabel as nib, numpy as np
from functools import lru_cache
from PIL import Image
from torch.utils.data import Dataset
from torchvision import transforms as T
import torchvision.transforms.functional as TF
TILE = 256
"""


@each(
    ("body", "found"),
    [
        ("p, r, c = self.index[i]\n    return cv2.imread(p)[r * TILE:(r + 1) * TILE, c * TILE:(c + 1) * TILE]", 1),
        ("p, r, c = self.index[i]\n    img = cv2.imread(p)\n    r2, c2 = r + TILE, c + TILE\n    return img[r:r2, c:c2]", 1),
        (
            "w = self.rows[i]\n    with rasterio.open(w.path) as src:\n"
            "      a = src.read()\n    return a[:, w.y:w.y + 64, w.x:w.x + 64]",
            1,
        ),
        (
            "w = self.rows[i]\n    return self.scene(w.path)[w.y:w.y + 64, w.x:w.x + 64]\n"
            "  def scene(self, p):\n    return np.array(Image.open(p))",
            1,
        ),
        (
            "w = self.rows[i]\n    return self.scene(w.path)[w.y:w.y + 64, w.x:w.x + 64]\n"
            "  @lru_cache(4)\n  def scene(self, p):\n    return np.array(Image.open(p))",
            0,
        ),
        ("w = self.rows[i]\n    return np.load(w.path)[w.y:w.y + 64, w.x:w.x + 64]", 1),
        ("w = self.rows[i]\n    return np.load(w.path, mmap_mode='r')[w.y:w.y + 64, w.x:w.x + 64]", 0),
        ("p, z = self.index[i]\n    return nib.load(p).get_fdata()[:, :, z]", 1),
        ("v = nib.load(self.paths[i]).get_fdata()\n    return v[:, :, v.shape[2] // 2]", 0),
        ("return cv2.imread(self.paths[i])[::4, ::4]", 1),
        ("p, y = self.index[i]\n    im = cv2.imread(p)\n    b = min(y + TILE, len(im))\n    return im[y:b, y:b]", 1),
        ("return cv2.imread(self.paths[i])[:, ::-1, ::-1]", 0),
        (
            "img = Image.open(self.paths[i])\n    top, left, h, w = T.RandomCrop.get_params(img, (64, 64))\n"
            "    return TF.crop(img, top, left, h, w)",
            0,
        ),
        ("img = cv2.imread(self.paths[i])\n    y = random.randint(0, 9)\n    return img[y:y + 64, y:y + 64]", 0),
        (
            "img = cv2.imread(self.paths[i])\n    h, w = img.shape[:2]\n"
            "    y, x = (h - 64) // 2, (w - 64) // 2\n    return img[y:y + 64, x:x + 64]",
            0,
        ),
        ("img = cv2.imread(self.paths[i])\n    x1, y1, x2, y2 = self.boxes[i]\n    return img[y1:y2, x1:x2]", 0),
        ("img = cv2.imread(self.paths[i])\n    x1, y1, x2, y2 = self.tiles[i]\n    return img[y1:y2, x1:x2]", 1),
        ("img = cv2.imread(self.paths[i])\n    return np.stack([img[r:r + 64, c:c + 64] for r, c in self.spots])", 0),
        ("img = cv2.imread(self.paths[i])\n    x, y = self.marks[i]\n    img[y:y + 9, x:x + 9] = 0\n    return img", 0),
        ("img = Image.open(self.paths[i]).resize((512, 512))\n    return img.resize((224, 224))", 0),
    ],
)
def test_pixels_thrown_away_are_told_from_a_crop(body: str, found: int) -> None:
    assert len(lines(f"{HEAD}class A(Dataset):\n  def __getitem__(self, i):\n    {body}\n")) == found
