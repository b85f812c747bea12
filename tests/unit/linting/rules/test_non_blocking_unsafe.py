"""Copies that may not be done: cases that the specimens do not show. In code that is to be found, the lines end with `# here`."""

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
y = model(x).to("cpu", non_blocking=True)  # here
print(y.sum())
""",
        id="read by name",
    ),
    pytest.param(
        """\
cpu = torch.device("cpu")
y = model(x).to(cpu, non_blocking=True).numpy()  # here
""",
        id="read at once",
    ),
    pytest.param(
        """\
for x in loader:
    parts.append(model(x).to("cpu", non_blocking=True))  # here
all_parts = torch.cat(parts)
""",
        id="collected in a list",
    ),
    pytest.param(
        """\
buffer = torch.empty(8, pin_memory=True)
buffer[:4].copy_(y, non_blocking=True)  # here
print(buffer.sum())
""",
        id="into a pinned buffer",
    ),
    pytest.param(
        """\
device = "mps"
x = x.to(device, non_blocking=True)  # here
y = y.to(device, non_blocking=True)  # here
""",
        id="every copy on MPS",
    ),
]

SILENT = [
    pytest.param(
        """\
y = model(x).to("cpu", non_blocking=True)
torch.cuda.synchronize()
print(y.sum())
""",
        id="waited for",
    ),
    pytest.param(
        """\
y = model(x).to("cpu", non_blocking=True)
print(y.shape)
""",
        id="only its shape is asked",
    ),
    pytest.param(
        """\
def home(x):
    return x.to("cpu", non_blocking=True)
""",
        id="handed out to nobody here",
    ),
    pytest.param(
        """\
class Store:
    def fill(self, x):
        x = x.to("cpu", non_blocking=True)
        self.items.append(x)
    def drain(self):
        self.stream.synchronize()
        return self.items
""",
        id="waited for elsewhere in its class",
    ),
    pytest.param(
        """\
x = x.to(device, non_blocking=True)
print(x)
""",
        id="to the device",
    ),
    pytest.param(
        """\
if fast:
    place = torch.device("cuda")
else:
    place = torch.device("cpu")
x = x.to(place, non_blocking=True)
print(x)
""",
        id="to one device or the other",
    ),
    pytest.param(
        """\
y = model(x).to("cpu", non_blocking=False).numpy()
""",
        id="it waits",
    ),
]


RULE = OneRule("non-blocking-unsafe", HEAD)


@each("body", FOUND)
def test_it_is_found(body: str) -> None:
    assert RULE.lines(body) == RULE.marked(body)


@each("body", SILENT)
def test_it_is_silent(body: str) -> None:
    assert RULE.lines(body) == []
