"""repeated-decode beyond its specimens."""

from __future__ import annotations

from tests.linted import OneRule, each

lines = OneRule("repeated-decode").lines


HEAD = """import cv2, random
import numpy as np
import albumentations as A
import torchvision.transforms as T
from PIL import Image
from torch.utils.data import DataLoader, Dataset
"""
TRAIN = """
for epoch in range(9):
    for x, y in loader:
        loss = model(x, y)
        loss.backward()
        optimizer.step()
"""
OPEN = """class P(Dataset):
    def __init__(self, t=None):
        self.t = t
    def __getitem__(self, i):
        return self.t(Image.open(self.f[i]))
"""


@each(
    ("body", "found"),
    [
        ("return cv2.resize(cv2.imread(self.f[i]), (224, 224))", 1),
        ("return np.array(Image.open(self.f[i]))", 0),
        ("s = random.choice([192, 224])\n    return cv2.resize(cv2.imread(self.f[i]), (s, s))", 0),
        ("if i not in self.kept:\n      self.kept[i] = cv2.resize(cv2.imread(self.f[i]), (9, 9))\n    return self.kept[i]", 0),
        (
            "x = self.kept.get(i)\n    if x is None:\n"
            "      x = cv2.resize(cv2.imread(self.f[i]), (9, 9))\n      self.kept[i] = x\n    return x",
            0,
        ),
        (
            "if self.small[i].exists():\n      return np.load(self.small[i])\n"
            "    x = cv2.resize(cv2.imread(self.f[i]), (9, 9))\n    np.save(self.small[i], x)\n    return x",
            0,
        ),
        ("x = cv2.imread(self.f[i])\n    if x is None:\n      x = cv2.imread(self.g[i])\n    return cv2.resize(x, (9, 9))", 1),
        ("return read(self.f[i])\ndef read(p):\n  return Image.open(p).resize((64, 64))", 1),
    ],
)
def test_decode_and_resize_in_the_code_itself(body: str, found: int) -> None:
    code = f"{HEAD}class P(Dataset):\n  def __getitem__(self, i):\n    {body}\nloader = DataLoader(P())\n{TRAIN}"
    assert len(lines(code)) == found


@each(
    ("made", "found"),
    [
        ("loader = DataLoader(P(T.Compose([T.Resize(256), T.RandomCrop(224)])))", 1),
        ("loader = DataLoader(P(T.Compose([T.RandomResizedCrop(224)])))", 0),
        (
            "t = {'train': T.Compose([T.RandomResizedCrop(224)]), 'val': T.Compose([T.Resize(256)])}\n"
            "loader = DataLoader(P(t['train']))",
            0,
        ),
        ("t = {'train': T.Compose([T.Resize(224)]), 'val': T.Compose([T.Resize(256)])}\nloader = DataLoader(P(t=t['train']))", 1),
        (
            "def tf(train):\n  s = [A.Resize(64, 64)]\n  if train:\n"
            "    s.append(A.HorizontalFlip())\n  return A.Compose(s)\nloader = DataLoader(P(tf(True)))",
            1,
        ),
        (
            "class Small:\n  def __call__(self, x):\n    return x.resize((64, 64))\n"
            "loader = DataLoader(P(T.Compose([Small(), T.ToTensor()])))",
            1,
        ),
        ("def loaders(tf):\n  return DataLoader(P(tf), 32)\nloader = loaders(T.Resize((64, 64)))", 1),
        ("loader = DataLoader(P(T.ToTensor()))", 0),
        ("data = P()\ndata.t = T.Compose([T.Resize(224)])\nloader = DataLoader(data)", 1),
    ],
)
def test_the_pipeline_is_followed_to_where_it_is_made(made: str, found: int) -> None:
    assert len(lines(f"{HEAD}{OPEN}{made}\n{TRAIN}")) == found


@each(
    "rest",
    [
        "for x in loader:\n    out.append(model(x))\n",
        f"feats = []\nfor x in loader:\n    feats.append(encoder(x))\n"
        f"head = DataLoader(feats)\n{TRAIN.replace('loader', 'head')}",
        f"def shrink(p):\n    Image.open(p).resize((256, 256)).save(out / p.name)\n{TRAIN}",
    ],
)
def test_one_pass_and_small_copies_are_fine(rest: str) -> None:
    assert lines(f"{HEAD}{OPEN}loader = DataLoader(P(T.Resize((64, 64))))\n{rest}") == []


@each(
    ("chain", "found"),
    [
        ("ds.map(load).map(small).batch(8)", 1),
        ("ds.map(lambda p: small(tf.py_function(load, [p], tf.uint8))).batch(8)", 1),
        ("ds.map(load).map(small).cache().batch(8)", 0),
        ("finish(ds.map(lambda p: small(load(p))))", 0),
    ],
)
def test_a_cache_anywhere_behind_the_map_keeps_it(chain: str, found: int) -> None:
    code = f"""import tensorflow as tf
def load(p):
    return tf.io.decode_jpeg(tf.io.read_file(p))
def small(x):
    return tf.image.resize(x, (64, 64))
def finish(d):
    return d.cache('a').shuffle(9).batch(8)
ds = tf.data.Dataset.from_tensor_slices(paths)
train = {chain}
model.fit(train, epochs=9)
"""
    assert len(lines(code)) == found


@each(("window", "found"), [("i : i + self.n", 1), ("i * self.n : (i + 1) * self.n", 0), ("i : i + 1", 0), ("0 : 5", 0)])
def test_overlapping_windows_decode_files_repeatedly(window: str, found: int) -> None:
    source = (
        "import cv2\nimport numpy as np\nfrom torch.utils.data import Dataset\nclass Clips(Dataset):\n"
        f"    def __getitem__(self, i):\n        return np.stack([cv2.imread(name) for name in self.files[{window}]])\n"
    )
    assert len(OneRule("repeated-decode").found(source)) == found


@each(
    ("parallel", "fit", "kind"),
    [
        (", num_parallel_calls=tf.data.AUTOTUNE", "epochs=25", "nit"),
        (", num_parallel_calls=tf.data.AUTOTUNE", "epochs=60", "nit"),
        (", num_parallel_calls=tf.data.AUTOTUNE", "epochs=100", "choke"),
        (", num_parallel_calls=tf.data.AUTOTUNE).prefetch(2", "epochs=100", "nit"),
        (", num_parallel_calls=8", "epochs=60, callbacks=[tf.keras.callbacks.EarlyStopping()]", "nit"),
        ("", "epochs=9", "nit"),
        ("", "epochs=25", "choke"),
    ],
)
def test_decoding_beside_the_step_is_a_nit(parallel: str, fit: str, kind: str) -> None:
    code = f"""import tensorflow as tf
def load(p):
    x = tf.io.decode_jpeg(tf.io.read_file(p))
    return tf.image.resize(x, (64, 64))
train = tf.data.Dataset.from_tensor_slices(paths).map(load{parallel}).batch(8)
model.fit(train, {fit})
"""
    assert [item.kind for item in OneRule("repeated-decode").found(code)] == [kind]
