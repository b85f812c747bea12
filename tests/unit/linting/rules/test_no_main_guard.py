"""Processes started at module level: cases beside the specimens."""

from __future__ import annotations

from tests.linted import OneRule, each

lines = OneRule("no-main-guard").lines


@each(
    ("source", "expected"),
    [
        ("from multiprocessing import Pool\nwith Pool(4) as pool:\n    pool.map(f, x)", [2]),
        ("import multiprocessing as mp\npool = mp.get_context('spawn').Pool(4)", [2]),
        ("from multiprocessing.pool import ThreadPool\npool = ThreadPool(4)", []),
        ("from multiprocessing.dummy import Pool\npool = Pool(4)", []),
        ("from multiprocessing import Pool\nif __name__ == '__main__':\n    pool = Pool(4)", []),
        ("from multiprocessing import Pool\ndef main():\n    pool = Pool(4)\nmain()", [4]),
        ("from multiprocessing import Pool\ndef main():\n    pool = Pool(4)\nif __name__ == '__main__':\n    main()", []),
        ("from torch.utils.data import DataLoader\nloader = DataLoader(data, num_workers=0)\nfit(loader)", []),
        ("from torch.utils.data import DataLoader\nloader = DataLoader(data, num_workers=N)\nfit(loader)", []),
        (
            "import os\nfrom torch.utils.data import DataLoader\nloader = DataLoader(data, num_workers=os.cpu_count())\n"
            "for x in loader: f(x)",
            [3],
        ),
        ("from torch.utils.data import DataLoader\no = {'num_workers': 4}\nloader = DataLoader(data, **o)\nfit(loader)", [3]),
        (
            "from torch.utils.data import DataLoader as L\no = {'num_workers': 4} if gpu else {}\na = L(d, **o)\nb = L(d, **o)\n"
            "next(iter(a))",
            [3],
        ),
        (
            "from torch.utils.data import DataLoader\ndef made(d):\n    return DataLoader(d, num_workers=2)\n"
            "loader = made(data)\nfit(loader)",
            [4],
        ),
    ],
)
def test_which_scripts_lack_the_guard(source: str, expected: list[int]) -> None:
    assert lines(source) == expected


MADE = "from torch.utils.data import DataLoader\nloader = DataLoader(data, num_workers=2)\n"


@each(
    ("body", "expected"),
    [
        ("def train():\n    for x in loader: f(x)\nif __name__ == '__main__':\n    train()", []),
        ("def train():\n    for x in loader: f(x)\ntrain()", [2]),
        ("def train(loader):\n    for x in loader: f(x)\nprint(len(loader), loader.dataset)", []),
        ("def train(loader):\n    for x in loader: f(x)\ntrain(loader)", [2]),
        ("trainer.fit(model, loader)", [2]),
        ("if __name__ == '__main__':\n    trainer.fit(model, loader)", []),
    ],
)
def test_a_loader_counts_where_it_is_gone_through(body: str, expected: list[int]) -> None:
    assert lines(MADE + body) == expected


def test_returned_loader_counts_where_it_is_iterated() -> None:
    head = "from torch.utils.data import DataLoader\ndef made(d):\n    one = DataLoader(d, num_workers=2)\n    return one\n"
    assert lines(head + "loader = made(data)\nif __name__ == '__main__':\n    fit(loader)") == []
    assert lines(head + "loader = made(data)\nfit(loader)") == [5]


def test_iterating_function_counts_where_it_is_called() -> None:
    head = "from torch.utils.data import DataLoader\ndef peek(d):\n    return next(iter(DataLoader(d, num_workers=2)))\n"
    assert lines(head + "batch = peek(data)") == [4]
    assert lines(head + "if __name__ == '__main__':\n    batch = peek(data)") == []
