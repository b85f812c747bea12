"""Pinned memory without CUDA: cases that the specimens do not show. In code that is to be found, the lines end with `# here`."""

from __future__ import annotations

import pytest
from tests.linted import OneRule, each

HEAD = """\
import torch
from torch.utils.data import DataLoader
"""

FOUND = [
    pytest.param(
        """\
device = "cpu"
loader = DataLoader(ds, 8, pin_memory=True)  # here
""",
        id="by position and keyword",
    ),
    pytest.param(
        """\
device = "mps" if torch.backends.mps.is_available() else "cpu"
loader = DataLoader(ds, pin_memory=True)  # here
""",
        id="MPS with the CPU to fall back on",
    ),
    pytest.param(
        """\
device = "cpu"
PIN = True
options = dict(num_workers=2, pin_memory=PIN)  # here
loader = DataLoader(ds, **options)
""",
        id="a constant among options",
    ),
    pytest.param(
        """\
device = "cpu"
options = {"pin_memory": True}  # here
""",
        id="a dict of options",
    ),
]

SILENT = [
    pytest.param(
        """\
loader = DataLoader(ds, pin_memory=True)
y = x.cpu()
state = torch.load("a.pt", map_location="cpu")
""",
        id="only results come home",
    ),
    pytest.param(
        """\
device = "cpu"
if args.cuda:
    device = "cuda"
loader = DataLoader(ds, pin_memory=True)
""",
        id="CUDA is possible",
    ),
    pytest.param(
        """\
device = "cpu"
loader = DataLoader(ds, pin_memory=False)
""",
        id="switched off",
    ),
    pytest.param(
        """\
device = "cpu"
buffer = torch.empty(3, pin_memory=True)
""",
        id="a tensor, not a loader",
    ),
]


RULE = OneRule("pin-without-cuda", HEAD)


@each("body", FOUND)
def test_it_is_found(body: str) -> None:
    assert RULE.lines(body) == RULE.marked(body)


@each("body", SILENT)
def test_it_is_silent(body: str) -> None:
    assert RULE.lines(body) == []


def test_the_fix_asks_by_the_name_torch_has_here() -> None:
    assert RULE.fixed(
        'import torch as th\nfrom torch.utils.data import DataLoader\ndevice = "cpu"\nDataLoader(ds, pin_memory=True)\n'
    ).endswith("pin_memory=th.cuda.is_available())\n")
    without = 'from torch.utils.data import DataLoader\ndevice = "cpu"\nDataLoader(ds, pin_memory=True)\n'
    assert RULE.fixed(without) == without


@each("line", ["settings = dict(pin_memory=True)", "settings = {'pin_memory': True}", "build_loader(ds, pin_memory=True)"])
def test_settings_of_other_code_are_left_alone(line: str) -> None:
    source = f'import torch\nfrom torch.utils.data import DataLoader\ndevice = "cpu"\n{line}\n'
    assert RULE.fixed(source) == source
