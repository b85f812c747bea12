"""What a whole notebook tells: its data, its epochs, what is frozen."""

from __future__ import annotations

import pytest

import books
from unchoke.code.program import Program
from unchoke.code.source import parse_source
from unchoke.notebooks.setting import NotebookContext, read_setting

FOLDERS = "from torchvision.datasets import ImageFolder\n"
PANDAS = "import pandas as pd\nfrom pathlib import Path\nimport os\n"


def setting(*cells: str) -> NotebookContext:
    return read_setting(Program(parse_source("my book.ipynb", books.book(cells))), "my book.ipynb")


@pytest.mark.parametrize(
    ("source", "data"),
    [
        (FOLDERS + "ImageFolder('hops/train')", "hops"),
        (FOLDERS + "ROOT = 'leaf photos'\nImageFolder(ROOT)", "'leaf photos'"),
        (PANDAS + "ROOT = Path('beans')\npd.read_csv(ROOT / 'photos.csv')", "beans/photos.csv"),
        (PANDAS + "pd.read_csv(os.path.join('beans', 'photos.csv'))", "beans/photos.csv"),
        (PANDAS + "pd.read_csv('log.csv')", "DATA"),
        ("DATA_DIR = 'data/maize'", "data/maize"),
        ("x = 3", "DATA"),
    ],
)
def test_the_data_is_what_the_notebook_names(source: str, data: str) -> None:
    assert setting(source).data == data


def test_epochs_are_told_by_cell_and_unknown_where_they_are() -> None:
    found = setting("EPOCHS = 12", "for epoch in range(EPOCHS):\n    step()", "for epoch in range(n):\n    step()")
    assert found.epochs == {2: 12, 3: None}


def test_commands_carry_the_data_and_what_trains() -> None:
    assert NotebookContext("a.ipynb", "photos").fit == "unchoke fit photos --cut none"
    assert NotebookContext("a.ipynb", "photos", frozen=True).fit == "unchoke fit photos"
    assert NotebookContext("a.ipynb", "scenes", masks=True).fit == "unchoke segment train scenes"
    assert NotebookContext("my book.ipynb", torch=False).profile == ""
    assert NotebookContext("my book.ipynb").profile == "unchoke profile -- jupyter execute 'my book.ipynb'"


def test_what_is_thawed_again_is_not_frozen() -> None:
    frozen = "import torchvision\nnet = torchvision.models.resnet18()\nfor p in net.parameters():\n    p.requires_grad = False"
    assert setting(frozen).frozen
    assert not setting(frozen, "for p in net.parameters():\n    p.requires_grad = True").frozen


def test_torch_is_seen_where_it_is_imported() -> None:
    assert setting("a = 1", "from torch import nn").torch
    assert not setting("import tensorflow as tf").torch
