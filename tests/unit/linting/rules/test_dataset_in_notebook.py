"""Classes that workers cannot import: cases beside the specimens."""

from __future__ import annotations

import json

from tests.linted import each

from unchoke.code.source import parse_source
from unchoke.linting.lint_engine import lint_source
from unchoke.linting.rules import load_rule

ITEM = "    def __getitem__(self, i):\n        return i\n"
TORCH = f"from torch.utils.data import DataLoader, Dataset, Subset\nclass Data(Dataset):\n{ITEM}"
KERAS = f"from tensorflow import keras\nclass Data(keras.utils.PyDataset):\n{ITEM}"


def places(*cells: str) -> list[tuple[int | None, int]]:
    made = [{"cell_type": "code", "source": cell, "metadata": {}, "outputs": []} for cell in cells]
    book = json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": made}).encode()
    found, problems = lint_source(parse_source("a.ipynb", book), [load_rule("dataset-in-notebook")])
    assert not problems
    return [(item.place.cell, item.place.line) for item in found]


@each(
    ("cell", "reported"),
    [
        ("loader = DataLoader(Data(), num_workers=2)", True),
        ("loader = DataLoader(Subset(Data(), [1]), num_workers=2)", True),
        ("loader = DataLoader(Data(), num_workers=8 if gpu else 2)", True),
        ("loader = DataLoader(Data(), num_workers=0 if mac else 4)", False),
        ("loader = DataLoader(Data(), num_workers=0)", False),
        ("loader = DataLoader(Data())", False),
        ("loader = DataLoader(Theirs(), num_workers=2)", False),
        ("def made(d, **k):\n    return DataLoader(d, num_workers=2, **k)\na = made(Data())", True),
    ],
)
def test_a_class_read_by_workers(cell: str, reported: bool) -> None:
    assert places(TORCH, cell) == ([(1, 2)] if reported else [])


def test_cells_out_of_order() -> None:
    assert places("loader = DataLoader(Data(), num_workers=2)", TORCH) == [(2, 2)]


def test_a_cell_that_writes_a_file_defines_nothing() -> None:
    assert (
        places(
            "%%writefile data.py\n" + TORCH,
            "from data import Data\nfrom torch.utils.data import DataLoader\nDataLoader(Data(), num_workers=2)",
        )
        == []
    )


@each(
    ("cell", "reported"),
    [
        ("model.fit(Data(), epochs=2, workers=4, use_multiprocessing=True)", True),
        ("model.fit(Data(workers=4, use_multiprocessing=True), epochs=2)", True),
        ("model.fit(Data(), epochs=2, workers=4)", False),
    ],
)
def test_keras(cell: str, reported: bool) -> None:
    assert places(KERAS, cell) == ([(1, 2)] if reported else [])


def test_a_class_at_the_top_of_a_script_is_fine() -> None:
    found, _ = lint_source(
        parse_source("a.py", (TORCH + "DataLoader(Data(), num_workers=2)\n").encode()), [load_rule("dataset-in-notebook")]
    )
    assert not found
