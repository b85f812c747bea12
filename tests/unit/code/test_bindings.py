"""Which bindings are in force at a place: branches, loops, `try`, early returns and closures are joined."""

from __future__ import annotations

from typing import Any

import pytest

from unchoke.code.constant_values import UNKNOWN
from unchoke.code.program import Program
from unchoke.code.source import parse_source


def script(text: str) -> Program:
    return Program(parse_source("a.py", text.encode()))


def values_at_use(text: str) -> set[Any]:
    """All that the first argument of `use(…)` may be."""
    program = script(text)
    return set(program.values(program.calls_to("use")[0].args[0]))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("x = 1\nx = 2\nuse(x)", {2}),
        ("if a:\n  x = 1\nelse:\n  x = 2\nuse(x)", {1, 2}),
        ("x = 0\nif a:\n  x = 1\nuse(x)", {0, 1}),
        ("if a:\n  x = 1\nelif b:\n  x = 2\nelse:\n  x = 2\nx = 3\nuse(x)", {3}),
        ("x = 1 if a else 2\nuse(x)", {1, 2}),
        ("try:\n  x = 1\nexcept OSError:\n  x = 2\nuse(x)", {1, 2}),
        ("try:\n  x = 1\nfinally:\n  x = 2\nuse(x)", {2}),
        ("match a:\n  case 1:\n    x = 1\n  case _:\n    x = 2\nuse(x)", {1, 2}),
        ("x = 0\nfor i in b:\n  x = 1\nuse(x)", {0, 1}),
        ("x = 0\nfor i in b:\n  use(x)\n  x = 1", {0, 1}),
        ("x = 0\nwhile True:\n  x = 1\n  if a:\n    break\n  x = 2\nuse(x)", {1, 2}),
        ("x = 0\nfor x in b:\n  use(x)", {UNKNOWN}),
        ("x = 1\nx += 1\nuse(x)", {1, UNKNOWN}),
        ("def f():\n  x = 1\n  if a:\n    x = 2\n    return x\n  use(x)", {1}),
        ("def f():\n  if a:\n    return 1\n  return 2\nuse(f())", {1, 2}),
        ("def f(x=3):\n  use(x)", {3}),
        ("def f(x=3):\n  use(x)\nf(4)\nf()", {3, 4}),
        ("def f(x=None):\n  if x is None:\n    x = 2\n  use(x)\nf(4)", {2, 4}),
        ("x = 1\ndef f():\n  use(x)\nif a:\n  x = 2", {1, 2}),
        ("x = 1\ndef f():\n  global x\n  x = 2\nuse(x)", {1, 2}),
        ("class C:\n  x = 1\n  if a:\n    x = 2\nuse(C.x)", {1, 2}),
        ("class C:\n  def __init__(self):\n    self.x = 1\n  def f(self):\n    use(self.x)\n", {1}),
        (
            "class C:\n  def __init__(self):\n    self.x = 1\n  def g(self):\n    self.x = 2\n  def f(self):\n    use(self.x)",
            {1, 2},
        ),
        ("class B:\n  x = 4\nclass C(B):\n  pass\nuse(C().x)", {4}),
        ("@dataclass\nclass C:\n  n: int = 4\nc = C(n=2)\nuse(c.n)", {2}),
        ("@dataclass\nclass C:\n  n: int = 4\nc = C()\nuse(c.n)", {4}),
        (
            "class T:\n  def __init__(self, cfg):\n    self.c = cfg\n  def f(self):\n    use(self.c.n)\nclass C:\n  n = 7\nT(C)",
            {7},
        ),
        ("d = {'n': 1}\nif a:\n  d['n'] = 2\nuse(d['n'])", {1, 2}),
        ("d = {'n': 1}\nd['n'] = 2\nuse(d['n'])", {2}),
        ("d = {'n': 1}\nd.update(n=3)\nuse(d['n'])", {3}),
        ("d = {'n': 1}\nd.update(other())\nuse(d['n'])", {UNKNOWN}),
        ("a = {'n': 1}\nd = {**a, 'm': 2}\nuse(d['n'])", {1}),
        ("p.add_argument('--n', default=3)\nargs = p.parse_args()\nif args.fast:\n  args.n = 1\nuse(args.n)", {1, 3}),
    ],
)
def test_all_values_that_can_be_in_force(text: str, values: set[Any]) -> None:
    assert values_at_use(text) == values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("kw = {}\nif a:\n  kw = {'n': 1}\nuse(**kw)", {0, 1}),
        ("kw = {}\nif a:\n  kw['n'] = 1\nuse(**kw)", {0, 1}),
        ("kw = {}\nkw['n'] = 1\nuse(**kw)", {1}),
        ("kw = dict(n=2)\nif a:\n  kw.update({'n': 1})\nuse(**kw)", {1, 2}),
        ("kw = {'n': 1} if a else {}\nuse(**kw)", {0, 1}),
        ("use(**other())", {UNKNOWN}),
        ("use(n=5)", {5}),
        ("use()", {0}),
    ],
)
def test_an_option_is_looked_for_in_all_that_may_be_spread(text: str, values: set[Any]) -> None:
    program = script(text)
    call = program.calls_to("use")[0]
    assert set(program.values_of(program.option(call, "n"), 0)) == values


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("import torch", False),
        ("from torch import *", False),
        ("from helpers import *", True),
        ("from . import *", True),
    ],
)
def test_what_was_not_read_counts_as_unknown(text: str, may: bool) -> None:
    assert script(text).could_be_elsewhere("save") is may


@pytest.mark.parametrize(
    ("cell", "may"), [("%run train.py", True), ("torch.save(", True), ("x = (", False), ("!pip list", False)]
)
def test_unread_cell_counts_if_it_names_the_variable(cell: str, may: bool) -> None:
    import json

    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": text} for text in ("import torch", cell)]
    program = Program(parse_source("a.ipynb", json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}).encode()))
    assert program.could_be_elsewhere("save") is may
