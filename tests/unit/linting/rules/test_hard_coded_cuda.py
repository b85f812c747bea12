"""CUDA taken for granted: cases that the specimens do not show. In code that is to be found, the lines end with `# here`."""

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
device = "cuda"  # here
model.to(device)
""",
        id="a variable",
    ),
    pytest.param(
        """\
class CFG:
    device = "cuda:0"  # here
""",
        id="a setting of a class",
    ),
    pytest.param(
        """\
cfg = {"device": "cuda", "bs": 4}  # here
""",
        id="a table of settings",
    ),
    pytest.param(
        """\
mps = torch.backends.mps.is_available()
model.cuda()  # here
""",
        id="only another device is looked for",
    ),
    pytest.param(
        """\
def move(x, device="cuda"):  # here
    return x.to(device)
move(1)
""",
        id="a default that a call relies on",
    ),
    pytest.param(
        """\
x = torch.zeros(3, device="cuda")  # here
model.cuda()
""",
        id="once for many",
    ),
    pytest.param(
        """\
import torch as th
d = th.device("cuda", 0)  # here
""",
        id="an alias",
    ),
    pytest.param(
        """\
import pytorch_lightning as pl
trainer = pl.Trainer(gpus=1)  # here
""",
        id="the old argument of Lightning",
    ),
]

SILENT = [
    pytest.param(
        """\
parser.add_argument("--device", default="cuda")
""",
        id="an option",
    ),
    pytest.param(
        """\
if device.type == "cuda":
    model.cuda()
""",
        id="under a test of the device",
    ),
    pytest.param(
        """\
device = "cuda" if args.gpu else "cpu"
""",
        id="a choice",
    ),
    pytest.param(
        """\
assert torch.cuda.device_count() > 0
model.cuda()
""",
        id="it was counted",
    ),
    pytest.param(
        """\
def move(x, device="cuda"):
    return x.to(device)
""",
        id="a default nobody relies on",
    ),
    pytest.param(
        """\
with torch.autocast("cuda"):
    pass
""",
        id="autocast",
    ),
    pytest.param(
        """\
class Net(nn.Module):
    def cuda(self, device=None):
        return super().cuda(device)
""",
        id="an override",
    ),
    pytest.param(
        """\
CUDA, CPU = "cuda", "cpu"
""",
        id="a table of words",
    ),
    pytest.param(
        """\
try:
    model.cuda()
except RuntimeError:
    pass
""",
        id="a try",
    ),
    pytest.param(
        """\
import tensorflow as tf
print(tf.test.gpu_device_name())
with tf.device("/GPU:0"):
    pass
""",
        id="looked for by name",
    ),
]


RULE = OneRule("hard-coded-cuda", HEAD)


@each("body", FOUND)
def test_it_is_found(body: str) -> None:
    assert RULE.lines(body) == RULE.marked(body)


@each("body", SILENT)
def test_it_is_silent(body: str) -> None:
    assert RULE.lines(body) == []


@pytest.mark.parametrize(
    "mark",
    ["@requires_nccl()", "@skip_if_lt_x_gpu(2)", "@pytest.mark.skipif(not CUDA, reason='no card')", "@onlyCUDA",
     "@unittest.skipUnless(HAS_GPU, 'none')"],
)  # fmt: skip
def test_skip_without_gpu_looks_for_one(mark: str) -> None:
    rule = OneRule("hard-coded-cuda")
    assert rule.lines(f"import torch\n{mark}\ndef test_a(net):\n    net.cuda()\n") == []
    assert rule.lines("import torch\n@pytest.mark.slow\ndef test_a(net):\n    net.cuda()\n") == [4]
    assert rule.lines("import torch\nif not xp.backends.cuda.is_built(): stop()\nnet.cuda()\n") == []
