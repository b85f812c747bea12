"""Compiling again and again, and saving the wrapper: cases beside the specimens; what is to be found ends with `# here`."""

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
for epoch in range(5):
    compiled = torch.compile(model)  # here
""",
        id="in the loop over epochs",
    ),
    pytest.param(
        """\
class Net(nn.Module):
    def forward(self, x):
        return torch.compile(self.body)(x)  # here
""",
        id="in forward",
    ),
    pytest.param(
        """\
compiled = torch.compile(model)
torch.save(compiled.state_dict(), "a.pt")  # here
""",
        id="saved under another name",
    ),
    pytest.param(
        """\
def save(model):
    torch.save({"model": model.state_dict()}, "a.pt")  # here
model = torch.compile(Net())
save(model)
""",
        id="saved by a helper",
    ),
    pytest.param(
        """\
model = torch.compile(Net()).to(device)
state = model.state_dict()
torch.save(state, "a.pt")  # here
""",
        id="saved through a variable",
    ),
]

SILENT = [
    pytest.param(
        """\
for i, block in enumerate(model.blocks):
    model.blocks[i] = torch.compile(block)
""",
        id="each of many once",
    ),
    pytest.param(
        """\
for fold in range(5):
    model = Net()
    model = torch.compile(model)
""",
        id="a new network in each fold",
    ),
    pytest.param(
        """\
for epoch in range(5):
    if epoch == 0:
        model = torch.compile(model)
""",
        id="in the first epoch only",
    ),
    pytest.param(
        """\
class Net(nn.Module):
    def forward(self, x):
        if self.fast is None:
            self.fast = torch.compile(self.body)
        return self.fast(x)
""",
        id="once and kept",
    ),
    pytest.param(
        """\
def time_it(model, mode):
    return torch.compile(model, mode=mode)
for mode in modes:
    time_it(model, mode)
""",
        id="a comparison of settings",
    ),
    pytest.param(
        """\
def train(model):
    model = torch.compile(model)
train(model)
""",
        id="called once",
    ),
    pytest.param(
        """\
compiled = torch.compile(model)
torch.save(model.state_dict(), "a.pt")
""",
        id="the plain one is saved",
    ),
    pytest.param(
        """\
model = Net()
torch.save(model.state_dict(), "a.pt")
model = torch.compile(model)
""",
        id="saved before",
    ),
    pytest.param(
        """\
model = torch.compile(model)
opt = torch.optim.Adam(model.parameters())
torch.save(opt.state_dict(), "a.pt")
""",
        id="the optimizer",
    ),
]


RULE = OneRule("compile-unsafe", HEAD)


@each("body", FOUND)
def test_it_is_found(body: str) -> None:
    assert RULE.lines(body) == RULE.marked(body)


@each("body", SILENT)
def test_it_is_silent(body: str) -> None:
    assert RULE.lines(body) == []
