"""Where the start method is set: cases beside the specimens."""

from __future__ import annotations

from tests.linted import OneRule, each

lines = OneRule("start-method-at-import").lines


@each(
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
