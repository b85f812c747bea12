"""Calls of code that nobody read are told from those of libraries and of the file itself."""

from __future__ import annotations

import ast

import pytest

from programs import book, script
from unchoke.code.facts.origins import hides_code, is_unseen, may_save
from unchoke.code.program import Program


def last_call(program: Program) -> ast.Call:
    return [node for node in program.nodes(ast.Call) if "finish" in program.text(node.func)][-1]


@pytest.mark.parametrize(
    "text",
    [
        "from my_helpers import finish\nfinish(model)",
        "from my_helpers import *\nfinish(model)",
        "import my_helpers as h\nh.finish(model)",
        "from .loop import finish\nfinish(model)",
        "from my_helpers import Saver\nsaver = Saver()\nsaver.finish(model)",
        "from my_helpers import callbacks\nfor callback in callbacks:\n    callback.finish(model)",
    ],
)
def test_what_comes_from_an_unread_module_is_unseen(text: str) -> None:
    program = script(text)
    assert is_unseen(program, last_call(program))


@pytest.mark.parametrize(
    "text",
    [
        "def finish(m):\n    pass\nfinish(model)",
        "from my_helpers import other\ndef finish(m):\n    pass\nfinish(model)",
        "from my_helpers import other\nimport torch\ntorch.finish(model)",
        "import torch\nfinish(model)",
        "from my_helpers import other\nimport torch\nfinisher = torch.nn.Linear(1, 1)\nfinisher.finish(model)",
        "from my_helpers import other\ndef go(finisher):\n    finisher.finish(model)",
    ],
)
def test_what_was_read_or_is_a_librarys_is_not(text: str) -> None:
    program = script(text)
    assert not is_unseen(program, last_call(program))


@pytest.mark.parametrize("cell", ["%run setup.py", "def finish(model:\n    pass"])
def test_unknown_name_may_come_from_unread_code(cell: str) -> None:
    program = book(cell, "finish(model)")
    assert is_unseen(program, last_call(program))


@pytest.mark.parametrize(
    ("call", "may"),
    [
        ("finish(model, epoch)", True),
        ("finish(network=model)", True),
        ("finish(epoch)", False),
        ("finish_train_epoch(model)", False),
        ("validate_finish(model)", False),
    ],
)
def test_unseen_code_may_save_its_arguments(call: str, may: bool) -> None:
    program = script(
        f"import torchvision\nfrom my_helpers import *\nmodel = torchvision.models.resnet18()\nout = model(x)\n{call}"
    )
    assert may_save(program, last_call(program)) is may


@pytest.mark.parametrize(
    ("cell", "hides"),
    [("from my_helpers import *", True), ("%run a.py", True), ("def f(:", True), ("from my_helpers import f", False)],
)
def test_unknown_code_differs_from_known_names(cell: str, hides: bool) -> None:
    assert hides_code(book(cell)) is hides
