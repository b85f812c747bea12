"""Processes started at module level: cases beside the specimens."""

from __future__ import annotations

import pytest
from tests.linted import OneRule

lines = OneRule("no-main-guard").lines


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from multiprocessing import Pool\nwith Pool(4) as pool:\n    pool.map(f, x)", [2]),
        ("import multiprocessing as mp\npool = mp.get_context('spawn').Pool(4)", [2]),
        ("from multiprocessing.pool import ThreadPool\npool = ThreadPool(4)", []),
        ("from multiprocessing.dummy import Pool\npool = Pool(4)", []),
        ("from multiprocessing import Pool\nif __name__ == '__main__':\n    pool = Pool(4)", []),
        ("from multiprocessing import Pool\ndef main():\n    pool = Pool(4)\nmain()", [4]),
        ("from multiprocessing import Pool\ndef main():\n    pool = Pool(4)\nif __name__ == '__main__':\n    main()", []),
        ("from torch.utils.data import DataLoader\nloader = DataLoader(data, num_workers=0)", []),
        ("from torch.utils.data import DataLoader\nloader = DataLoader(data, num_workers=N)", []),
        ("import os\nfrom torch.utils.data import DataLoader\nloader = DataLoader(data, num_workers=os.cpu_count())", [3]),
        ("from torch.utils.data import DataLoader\no = {'num_workers': 4}\nloader = DataLoader(data, **o)", [3]),
        (
            "from torch.utils.data import DataLoader as L\no = {'num_workers': 4} if gpu else {}\na = L(d, **o)\nb = L(d, **o)",
            [3],
        ),
        (
            "from torch.utils.data import DataLoader\ndef made(d):\n    return DataLoader(d, num_workers=2)\nloader = made(data)",
            [4],
        ),
    ],
)
def test_which_scripts_lack_the_guard(source: str, expected: list[int]) -> None:
    assert lines(source) == expected
