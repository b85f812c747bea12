"""Where the start method is set: cases beside the specimens."""

from __future__ import annotations

import textwrap

import pytest

from unchoke.code.source import parse_source
from unchoke.linting.lint_engine import lint_source
from unchoke.linting.rules import load_rule


def lines(source: str) -> list[int]:
    found, problems = lint_source(
        parse_source("train.py", textwrap.dedent(source).encode()), [load_rule("start-method-at-import")]
    )
    assert not problems
    return [item.place.line for item in found]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import multiprocessing as mp\nmp.set_start_method('spawn')", [2]),
        (
            "from torch.multiprocessing import set_start_method as s\ntry:\n    s('spawn')\nexcept RuntimeError:\n    pass",
            [3],
        ),
        ("import multiprocessing as mp\ndef main():\n    mp.set_start_method('spawn')", []),
        ("import multiprocessing as mp\nif '__main__' == __name__:\n    mp.set_start_method('spawn')", []),
        ("def set_start_method(name):\n    print(name)\nset_start_method('x')", []),
        ("import multiprocessing as mp\nmp.get_context('spawn')", []),
    ],
)
def test_where_it_is_reported(source: str, expected: list[int]) -> None:
    assert lines(source) == expected
