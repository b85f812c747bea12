"""Which code runs for every sample."""

from __future__ import annotations

import pytest

from programs import script
from unchoke.code.program import Program


def kinds(program: Program) -> dict[str, str]:
    return {getattr(record.function, "name", "lambda"): record.kind for record in program.facts.per_sample}


def runs_per_sample(program: Program, method: str) -> bool:
    return program.facts.in_per_sample(program.calls_to(method)[0]) is not None


DATASETS = """
from torch.utils import data
from tensorflow.keras.utils import Sequence, PyDataset
from collections import abc
class A(data.Dataset):
    def __init__(self):
        self.files = looked_for_once()
    def __getitem__(self, i):
        return self.read(i)
    def read(self, i):
        return helper(i)
def helper(i):
    return reached(i)
class B(A):
    pass
class C(Sequence):
    def __getitem__(self, i):
        return 1
class D(PyDataset):
    pass
class E(abc.Sequence):
    pass
class F:
    def __len__(self): return 3
    def __getitem__(self, i): return i
class G:
    def __getitem__(self, i): return i
loader = data.DataLoader(F())
"""


def test_datasets_are_known_by_base_or_loader() -> None:
    assert [owner.name for owner in script(DATASETS).facts.datasets] == ["A", "B", "C", "D", "F"]


def test_getitem_runs_per_sample_and_init_does_not() -> None:
    program = script(DATASETS)
    assert runs_per_sample(program, "reached")
    assert not runs_per_sample(program, "looked_for_once")
    record = program.facts.per_sample[0]
    assert {getattr(function, "name", "") for function in program.facts.functions_of(record)} == {"__getitem__", "read", "helper"}


@pytest.mark.parametrize(
    "line",
    [
        "ds = tf.data.Dataset.from_tensor_slices(p).map(load)",
        "ds = tf.data.Dataset.list_files('x').map(lambda p: load(p), num_parallel_calls=4)",
        "ds = tf.data.Dataset.from_tensor_slices(p)\nds = ds.shuffle(9)\nds = ds.map(load)",
        "ds = tf.data.TFRecordDataset(p).map(functools.partial(load, size=3))",
        "def build(ds):\n    return ds.map(load).prefetch(2)",
        "ds = make()\nds = ds.map(load, num_parallel_calls=tf.data.AUTOTUNE)",
        "y = tf.py_function(load, [p], tf.float32)",
        "y = tf.numpy_function(func=load, inp=[p], Tout=tf.float32)",
    ],
)
def test_function_mapped_over_tf_data_is_per_sample(line: str) -> None:
    program = script(f"import functools\nimport tensorflow as tf\ndef load(p, size=2):\n    return touch(p)\n{line}")
    assert runs_per_sample(program, "touch")


@pytest.mark.parametrize(
    "line", ["df['x'].map(load)", "pool.map(load, files)", "list(map(load, files))", "dataset.map(load, batched=True)"]
)
def test_other_maps_do_not(line: str) -> None:
    assert not runs_per_sample(script(f"def load(p):\n    return touch(p)\n{line}"), "touch")


def test_collate_transform_and_loader_functions_do() -> None:
    program = script(
        """
        import torchvision.transforms as T
        from torch.utils.data import DataLoader, Dataset
        def collate(batch): return touch_collate(batch)
        def noise(x): return touch_noise(x)
        def read(p): return touch_read(p)
        class Jitter:
            def __call__(self, x): return touch_jitter(x)
        class Data(Dataset):
            def __init__(self, reader): self.reader = reader
            def __getitem__(self, i): return self.reader(i)
        tf = T.Compose([T.Lambda(noise), Jitter(), T.ToTensor()])
        loader = DataLoader(Data(read), collate_fn=collate)
        """
    )
    assert all(runs_per_sample(program, f"touch_{name}") for name in ("collate", "noise", "jitter", "read"))
    assert kinds(program)["collate"] == "collate"


GENERATOR = """
import contextlib
import cv2
def batches(files):
    while True:
        yield touch(files), 1
def samples(rows):
    for row in rows:
        yield cv2.imread(row), row
def fed(rows):
    for row in rows:
        yield touch_fed(row)
def corners(n):
    for r in range(n):
        yield r, r + 1
@contextlib.contextmanager
def opened(p):
    yield p, 1
gen = fed(rows)
model.fit(gen, epochs=3)
"""


def test_only_generators_of_samples_count() -> None:
    assert kinds(script(GENERATOR)) == {"batches": "generator", "samples": "generator", "fed": "generator"}


def test_same_name_in_another_class_is_another_function() -> None:
    program = script(
        """
        from torch.utils.data import Dataset
        class Prepare:
            def read(self, p): return touch(p)
        class Data(Dataset):
            def __getitem__(self, i): return self.read(i)
            def read(self, p): return p
        """
    )
    assert not runs_per_sample(program, "touch")


def test_lambdas_are_part_of_the_function_they_stand_in() -> None:
    program = script(
        """
        from torch.utils.data import Dataset
        class Data(Dataset):
            def __getitem__(self, i):
                return sorted(self.rows, key=lambda row: touch(row))
        """
    )
    assert runs_per_sample(program, "touch")
