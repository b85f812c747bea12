"""What cannot be sent to worker processes: cases beside the specimens."""

from __future__ import annotations

from tests.linted import OneRule, each

lines = OneRule("unpicklable-dataset").lines


def dataset(body: str, rest: str = "") -> str:
    head = (
        "import h5py, threading\nfrom torch.utils.data import Dataset as D\nclass Data(D):\n    def __init__(self, path, fn=0):\n"
    )
    return f"{head}        {body}\n    def __getitem__(self, i):\n        return i\n{rest}\n"


@each(
    ("source", "expected"),
    [
        (dataset("self.f = h5py.File(path)"), [5]),
        (dataset("f = h5py.File(path); self.f = f"), [5]),
        (dataset("self.f = [h5py.File(p) for p in path]"), [5]),
        (dataset("self.images = h5py.File(path)['images']"), [5]),
        (dataset("self.images = h5py.File(path)['images'][:]"), []),
        (dataset("self.lines = open(path).readlines()"), []),
        (dataset("self.f = h5py.File(path); self.n = len(self.f); self.f.close()"), []),
        (dataset("self.f = h5py.File(path); self.n = len(self.f); self.f = None"), []),
        (dataset("self.fn = lambda x: x + 1"), [5]),
        (dataset("self.n = sorted(path, key=lambda x: x)"), []),
        (dataset("self.f = h5py.File(path)", "    def __getstate__(self):\n        return {}"), []),
        (dataset("self.fn = fn", "data = Data('a', fn=lambda x: x)"), [8]),
        (dataset("self.fn = fn", "data = Data('a', lambda x: x)"), [8]),
        (dataset("self.n = fn(path)", "data = Data('a', fn=lambda x: x)"), []),
        (dataset("self.open()", "    def open(self):\n        self.f = h5py.File('a')"), [9]),
        (dataset("self.lock = threading.Lock()"), [5]),
        ("from torch.utils.data import DataLoader\njoin = lambda b: b\nDataLoader(d, collate_fn=join)", [2]),
        ("from torch.utils.data import DataLoader\nDataLoader(d, worker_init_fn=lambda i: None)", [2]),
        ("import torchvision.transforms as T\nt = T.Compose([lambda x: x])\nDataLoader(d, transform=t)", [2]),
        ("import torchvision.transforms as T\nshow = T.Compose([T.Lambda(lambda x: x)])\nshow(next(DataLoader(d)))", []),
        ("import torchvision.transforms as T\nt = T.Compose([T.Lambda(lambda x: x)])", []),
        ("import albumentations as A\nt = A.Lambda(image=lambda x, **k: x)\nDataLoader(d)", [2]),
        ("from tensorflow.keras.layers import Lambda\nx = Lambda(lambda x: x)(x)", []),
        ("import torch\ns = torch.optim.lr_scheduler.LambdaLR(o, lambda e: e)", []),
        ("class Model:\n    def __init__(self):\n        self.f = open('a')", []),
    ],
)
def test_lambdas_handles_and_locks(source: str, expected: list[int]) -> None:
    assert lines(source) == expected
