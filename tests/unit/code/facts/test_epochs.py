"""What a fit is fed with, back to the calls that made it."""

from __future__ import annotations

from unchoke.code.facts.epochs import item_functions, keras_feeds
from unchoke.code.program import Program
from unchoke.code.source import parse_source


def program(text: str) -> Program:
    return Program(parse_source("a.py", text.encode()))


def test_feed_leads_back_through_variables_and_functions() -> None:
    read = program(
        "import tensorflow as tf\n"
        "def make(paths):\n    ds = tf.data.Dataset.from_tensor_slices(paths)\n    ds = ds.map(load)\n    return ds.batch(8)\n"
        "train = make(glob('a'))\nmodel.fit(train, epochs=3)\n"
    )
    (feed,) = keras_feeds(read)
    assert [read.method(call) for call in feed.made_of][:4] == ["make", "batch", "glob", "map"]


def test_sequence_takes_items_from_its_dataset() -> None:
    read = program(
        "import keras\n"
        "class Photos:\n    def __getitem__(self, i):\n        return i\n"
        "class Batches(keras.utils.Sequence):\n    def __init__(self, data):\n        self.data = data\n"
        "    def __getitem__(self, i):\n        return [self.data[j] for j in range(8)]\n"
        "batches = Batches(Photos())\n"
    )
    functions = list(item_functions(read, read.classes["Batches"]))
    assert [read.enclosing_class(function).name for function in functions] == ["Batches", "Photos"]
