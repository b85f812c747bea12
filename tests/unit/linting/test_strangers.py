"""What code of strangers showed to be useless or wrong: each case is said by default once its deciding fact is there."""

from __future__ import annotations

from tests.linted import OneRule, each

EVALUATE = """
import torch
{head}
{mark}
def evaluate(model, loader):
    model.eval()
    for x in loader:
        print(model(x).item())
"""
TRAIN = """
import time, torch
def {name}(model, loader, opt, env):
    model.cuda()
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        opt.step()
        {line}
"""
CASES = [
    ("no-inference-mode", EVALUATE.format(head="", mark=""), "nit"),
    ("no-inference-mode", EVALUATE.format(head="from leaf.tools import quietly", mark="@quietly()"), ""),
    ("no-inference-mode", EVALUATE.format(head="import functools", mark="@functools.cache"), "nit"),
    ("no-inference-mode", "import torch\ndef predict(net, x):\n    net.eval()\n    return net(x)\n", "nit"),
    ("no-inference-mode", "import torch\ndef test(net):\n    for _ in range(3):\n        net(torch.randn(1, 3, 8, 8))\n", ""),
    ("host-sync", TRAIN.format(name="fit", line="torch.cuda.synchronize()"), "nit"),
    ("host-sync", TRAIN.format(name="fit", line="torch.cuda.synchronize(); print(time.time())"), ""),
    ("hard-coded-cuda", "import torch\nnet = torch.nn.Linear(1, 1).cuda()\n", "nit"),
    ("hard-coded-cuda", "import torch\ndef f(x, device=torch.device('cuda')):\n    return x.to(device)\n", ""),
    ("hard-coded-cuda", "import apex, torch\nnet = torch.nn.Linear(1, 1).cuda()\n", "nit"),
    ("hard-coded-cuda", "num_epochs = 3\ndevice = 'cuda'\n", "nit"),
    ("unsafe-load", "import numpy as np\nx = np.load('results/a.npy', allow_pickle=True)\n", "nit"),
    ("unsafe-load", "import torch\ndef load(path):\n    return torch.load(path, weights_only=False)\n", "nit"),
    ("unsafe-load", "import torch\ndef load(n, path):\n    n.load_state_dict(torch.load(path, weights_only=False))\n", "nit"),
    (
        "unsafe-load",
        "import torch\ndef load(path):\n    '''Only files you trust.'''\n    return torch.load(path, weights_only=False)\n",
        "nit",
    ),
    (
        "blank-on-error",
        "from PIL import Image\ndef read(path: str) -> Image.Image | None:\n"
        "    try:\n        return Image.open(path)\n    except OSError:\n        return None\n",
        "",
    ),
    (
        "bgr-rgb",
        "import cv2\ndef write(name, x):\n    x = cv2.cvtColor(x, cv2.COLOR_BGR2RGB)\n    cv2.imwrite(name, x)\n",
        "",
    ),
    (
        "graph-kept",
        "import torch\ndef fit(net, loader, opt):\n    total = 0\n    for x in loader:\n        loss = net(x).mean()\n"
        "        loss.backward()\n        opt.step()\n        loss = loss.detach().cpu()\n        total += loss\n",
        "",
    ),
]


@each(("code", "source", "expected"), CASES)
def test_the_deciding_fact_decides(code: str, source: str, expected: str) -> None:
    assert {item.kind for item in OneRule(code).found(source)} == ({expected} if expected else set())
