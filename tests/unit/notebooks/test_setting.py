"""What a whole notebook tells: its data, its epochs, what is frozen."""

from __future__ import annotations

import pytest

import books
from unchoke.code.program import Program
from unchoke.code.source import parse_source
from unchoke.notebooks.setting import NotebookContext, read_setting
from unchoke.notebooks.tasks import NotebookTask


def setting(*cells: str) -> NotebookContext:
    return read_setting(Program(parse_source("my book.ipynb", books.book(cells))), "my book.ipynb")


def test_epochs_are_told_by_cell_and_unknown_where_they_are() -> None:
    found = setting("EPOCHS = 12", "for epoch in range(EPOCHS):\n    step()", "for epoch in range(n):\n    step()")
    assert found.epochs == {2: 12, 3: None}


def test_commands_carry_the_data_and_what_trains() -> None:
    photos = NotebookTask("classes", "photos")
    assert NotebookContext("a.ipynb", photos).fit == "unchoke fit photos --cut none"
    assert NotebookContext("a.ipynb", photos, frozen=True).fit == "unchoke fit photos"
    assert NotebookContext("a.ipynb", NotebookTask("masks", "scenes")).fit == "unchoke segment train scenes"
    assert NotebookContext("a.ipynb", NotebookTask("masks", "scenes")).on_photos("check") == ""
    table = NotebookTask("numbers", "a.csv", " --path file --target price")
    assert NotebookContext("a.ipynb", table, frozen=True).fit == "unchoke fit a.csv --path file --target price"
    assert NotebookContext("my book.ipynb", torch=False).profile == ""
    assert NotebookContext("my book.ipynb").profile == "unchoke profile -- jupyter execute 'my book.ipynb'"


@pytest.mark.parametrize(
    "task", [NotebookTask(), NotebookTask("masks"), NotebookTask("classes"), NotebookTask(other="reads text")]
)
def test_without_known_data_there_is_no_command(task: NotebookTask) -> None:
    assert NotebookContext("a.ipynb", task).fit == ""
    assert NotebookContext("a.ipynb", task).on_photos("check") == ""


def test_what_is_thawed_again_is_not_frozen() -> None:
    frozen = "import torchvision\nnet = torchvision.models.resnet18()\nfor p in net.parameters():\n    p.requires_grad = False"
    assert setting(frozen).frozen
    assert not setting(frozen, "for p in net.parameters():\n    p.requires_grad = True").frozen


def test_torch_is_seen_where_it_is_imported() -> None:
    assert setting("a = 1", "from torch import nn").torch
    assert not setting("import tensorflow as tf").torch


def test_written_script_counts_for_notebook_and_cell() -> None:
    script = "%%writefile train.py\nfrom torchvision.datasets import ImageFolder\ndata = ImageFolder('hops/train')\n"
    found = setting(script + "for epoch in range(30):\n    step()", "!python train.py", "!python other.py")
    assert found.task == NotebookTask("classes", "hops")
    assert found.torch
    assert found.epochs == {2: 30}
