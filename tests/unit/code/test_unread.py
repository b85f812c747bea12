"""What a program runs and nobody read is named, with its reason; libraries and pages are not."""

from __future__ import annotations

import pytest

from programs import book, script


@pytest.mark.parametrize(
    ("cell", "kind", "name", "names"),
    [
        ("def broken(:", "cell", "", ("*",)),
        ("%%R\nx <- 1", "language", "R", ("*",)),
        ("%%cython\ncdef int x", "language", "Cython", ("*",)),
        ("from helpers import *", "star", "helpers", ("*",)),
        ("from .data import Leaves, load as read", "module", ".data", ("Leaves", "read")),
        ("import my_utils.training as t", "module", "my_utils.training", ("t",)),
        ("%run setup.py", "run", "setup.py", ("*",)),
        ("!python train.py", "process", "train.py", ()),
        ("%%bash\npython train.py", "process", "train.py", ()),
    ],
)
def test_unread_code_is_named(cell: str, kind: str, name: str, names: tuple[str, ...]) -> None:
    (piece,) = book("x = 1", cell).unread
    assert (piece.kind, piece.name, piece.names, piece.cell) == (kind, name, names, 2)
    assert piece.reason


@pytest.mark.parametrize(
    "cell",
    [
        "import torch, numpy as np, os.path",
        "from torch.nn import *",
        "from tensorflow.keras.layers import *",
        "%%html\n<b>x</b>",
        "%%javascript\nalert(1)",
        "%%writefile train.py\nimport torch",
        "%%bash\nls",
        "!pip install x",
        "# only words",
        "",
    ],
)
def test_libraries_pages_and_comments_are_nothing_unread(cell: str) -> None:
    assert book(cell).unread == ()


def test_a_script_has_its_imports_too() -> None:
    (piece,) = script("import torch\n\ndef main():\n    from utils import train\n    train()\n").unread
    assert (piece.kind, piece.name, piece.line, piece.cell) == ("module", "utils", 4, None)
