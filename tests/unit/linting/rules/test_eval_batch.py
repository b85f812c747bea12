"""Batches of evaluation: cases that the specimens do not show. In code that is to be found, the lines end with `# here`."""

from __future__ import annotations

import pytest
from tests.linted import OneRule, each

HEAD = """\
from torch.utils.data import DataLoader
"""

FOUND = [
    pytest.param(
        """\
dls = {k: DataLoader(sets[k], batch_size=16, shuffle=k == "train") for k in ["train", "val"]}  # here
""",
        id="one call for both",
    ),
    pytest.param(
        """\
def make(ds, bs, shuffle):
    return DataLoader(ds, batch_size=bs, shuffle=shuffle)
train_dl = make(tr, 32, True)
val_dl = make(va, 32, False)  # here
""",
        id="a helper that is given it",
    ),
    pytest.param(
        """\
train_dl = DataLoader(tr, 32, True)
test_dl = DataLoader(te, 16)  # here
""",
        id="by position",
    ),
    pytest.param(
        """\
options = {"batch_size": 32}
train_dl = DataLoader(tr, shuffle=True, **options)
val_dl = DataLoader(va, **options)  # here
""",
        id="from options",
    ),
]

SILENT = [
    pytest.param(
        """\
dls = {k: DataLoader(sets[k], batch_size=16 if k == "train" else 64) for k in ["train", "val"]}
""",
        id="a choice in place",
    ),
    pytest.param(
        """\
def make(split):
    bs = 16 if split == "train" else 64
    return DataLoader(Ds(split), batch_size=bs)
train_dl = make("train")
val_dl = make("val")
""",
        id="a choice before",
    ),
    pytest.param(
        """\
train_dl = DataLoader(tr, batch_size=args.bs)
val_dl = DataLoader(va, batch_size=args.bs * 2)
""",
        id="twice as large",
    ),
    pytest.param(
        """\
train_dl = DataLoader(tr, batch_size=args.bs)
val_dl = DataLoader(va, batch_size=args.val_bs)
""",
        id="another option",
    ),
    pytest.param(
        """\
train_dl = DataLoader(tr, batch_size=args.bs)
val_dl = DataLoader(va)
""",
        id="none given",
    ),
    pytest.param(
        """\
train_dl = DataLoader(tr, batch_size=None)
val_dl = DataLoader(va, batch_size=None)
""",
        id="batched by the data set",
    ),
    pytest.param(
        """\
val_dl = DataLoader(va, batch_size=4)
""",
        id="nothing to compare with",
    ),
    pytest.param(
        """\
import tensorflow as tf
def make(p, training):
    return tf.data.Dataset.from_tensor_slices(p).batch(32 if training else 99).prefetch(1)
train_ds = make(a, True)
val_ds = make(b, False)
""",
        id="tf.data with a choice",
    ),
]


RULE = OneRule("eval-batch", HEAD)


@each("body", FOUND)
def test_it_is_found(body: str) -> None:
    assert RULE.lines(body) == RULE.marked(body)


@each("body", SILENT)
def test_it_is_silent(body: str) -> None:
    assert RULE.lines(body) == []
