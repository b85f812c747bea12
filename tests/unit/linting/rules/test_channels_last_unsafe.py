"""channels_last before a view: cases that the specimens do not show. In code that is to be found, the lines end with `# here`."""

from __future__ import annotations

import pytest
from tests.linted import OneRule, each

HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn
"""

FOUND = [
    pytest.param(
        """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
    def forward(self, x):
        x = self.body(x)
        return x.view(x.size(0), -1)  # here
m = Net().to(memory_format=torch.channels_last)
""",
        id="rows by size",
    ),
    pytest.param(
        """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d((2, 2)))
    def forward(self, x):
        x = self.body(x)
        return x.view(-1, 32)  # here
m = Net().to(memory_format=torch.channels_last)
""",
        id="pooled to four pixels",
    ),
    pytest.param(
        """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
    def forward(self, x):
        x = self.body(x)
        return x.view(x.size(0), 8 * 7 * 7)  # here
m = Net().to(memory_format=torch.channels_last)
""",
        id="numbers only",
    ),
    pytest.param(
        """\
x = x.to(memory_format=torch.channels_last)
y = x.view(4, -1)  # here
""",
        id="a tensor laid out here",
    ),
]

SILENT = [
    pytest.param(
        """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    def forward(self, x):
        x = self.body(x)
        return x.view(x.size(0), -1)
m = Net().to(memory_format=torch.channels_last)
""",
        id="pooled to one pixel",
    ),
    pytest.param(
        """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
    def forward(self, x):
        x = self.body(x)
        return x.contiguous().view(x.size(0), -1)
m = Net().to(memory_format=torch.channels_last)
""",
        id="made contiguous",
    ),
    pytest.param(
        """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
    def forward(self, x):
        x = self.body(x)
        return x.view(x.size(0), 8, -1)
m = Net().to(memory_format=torch.channels_last)
""",
        id="only pixels are joined",
    ),
    pytest.param(
        """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3, 8))
    def forward(self, x):
        x = self.body(x)
        return x.view(x.size(0), -1)
m = Net().to(memory_format=torch.channels_last)
""",
        id="rows already",
    ),
    pytest.param(
        """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
    def forward(self, x):
        x = self.body(x)
        return x.mean((2, 3)).view(x.size(0), -1)
m = Net().to(memory_format=torch.channels_last)
""",
        id="pixels averaged",
    ),
    pytest.param(
        """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
    def forward(self, x):
        x = self.body(x)
        return x.view(x.size(0), -1)
m = Net()
""",
        id="the layout is not used",
    ),
]


RULE = OneRule("channels-last-unsafe", HEAD)


@each("body", FOUND)
def test_it_is_found(body: str) -> None:
    assert RULE.lines(body) == RULE.marked(body)


@each("body", SILENT)
def test_it_is_silent(body: str) -> None:
    assert RULE.lines(body) == []


def test_the_fix_writes_reshape_and_nothing_else() -> None:
    source = HEAD + "x = x.to(memory_format=torch.channels_last)\ny = (x\n     .view(4, -1))\n"
    assert RULE.fixed(source) == source.replace(".view(", ".reshape(")
