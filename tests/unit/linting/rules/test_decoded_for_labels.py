"""decoded-for-labels beyond its specimens."""

from __future__ import annotations

from tests.linted import OneRule, each

HEAD = """import cv2, os
import numpy as np
from PIL import Image
from torch.utils.data import Dataset, DataLoader
from torchvision import datasets
class Photos(Dataset):
    def __init__(self, paths):
        self.paths = paths
    def __len__(self):
        return len(self.paths)
    def __getitem__(self, index):
        return np.asarray(Image.open(self.paths[index])), index % 2, self.paths[index]
class Rows(Dataset):
    def __getitem__(self, index):
        return self.x[index], self.y[index]
photos = Photos(sorted(os.listdir("a")))
folder = datasets.ImageFolder("train")
loader = DataLoader(photos, batch_size=8)
rows = Rows()
"""
RULE = OneRule("decoded-for-labels", HEAD)


@each(
    "body",
    [
        "labels = [label for _, label, _ in photos]",
        "names = {item[2] for item in photos}",
        "for image, label in folder:\n    counts[label] += 1",
        "targets = [folder[i][1] for i in range(len(folder))]",
        "from tqdm import tqdm\nfor _, y, _ in tqdm(loader):\n    seen.append(y)",
        "for i, (x, y, name) in enumerate(photos):\n    table[name] = y",
        "shapes = [cv2.imread(path).shape for path in paths]",
        "for path in paths:\n    picture = cv2.imread(path)\n    h, w = picture.shape[:2]",
    ],
)
def test_a_pass_for_labels_names_or_sizes_is_found(body: str) -> None:
    assert len(RULE.lines(body)) == 1


@each(
    "body",
    [
        "for image, label, _ in photos:\n    show(image, label)",
        "labels = [label for _, label in rows]",
        "labels = [item[0] for item in photos]",
        "labels = folder.targets",
        "sizes = [Image.open(path).size for path in paths]",
        "for path in paths:\n    picture = cv2.imread(path)\n    out.append(picture[:10].mean() / picture.shape[0])",
        "picture = cv2.imread('one.png')\nprint(picture.shape)",
        "label = photos[3][1]",
    ],
)
def test_what_needs_the_pixels_or_has_them_at_hand_is_not(body: str) -> None:
    assert RULE.lines(body) == []


def test_the_fix_names_what_the_data_set_knows() -> None:
    (item,) = RULE.found(RULE.whole("labels = [y for _, y in folder]"))
    assert "`folder.targets`" in item.finding.fix
