"""Waiting for the device on every step: cases beside the specimens; lines that are to be found end with `# here`."""

from __future__ import annotations

import pytest
from tests.linted import OneRule, each

HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
for epoch in range(3):
    for i, (x, y) in enumerate(loader):
        x = x.to(device)
        out = model(x)
        loss = F.cross_entropy(out, y.to(device))
        loss.backward()
        opt.step()
"""

FOUND = [
    pytest.param(
        """\
        total += loss.item()  # here
""",
        id="a sum",
    ),
    pytest.param(
        """\
        preds.append(out.detach().cpu().numpy())  # here
""",
        id="outputs collected",
    ),
    pytest.param(
        """\
        n += int((out.argmax(1) == y).sum())  # here
""",
        id="a count",
    ),
    pytest.param(
        """\
        _, best = torch.max(out.data, 1)
        hits += float((best == y).sum())  # here
""",
        id="through unpacking",
    ),
    pytest.param(
        """\
        parts = model(x, y)
        t += float(sum(part for part in parts.values()))  # here
""",
        id="a dict of losses",
    ),
    pytest.param(
        """\
        acc = accuracy(out, y)
        total += acc.item()  # here
""",
        id="an own metric",
    ),
    pytest.param(
        """\
        torch.cuda.empty_cache()  # here
""",
        id="the cache is emptied",
    ),
    pytest.param(
        """\
        if loss.item() > 9:  # here
            break
""",
        id="in a test on each step",
    ),
    pytest.param(
        """\
        if torch.isnan(loss):  # here
            raise ValueError
""",
        id="the truth of a tensor",
    ),
    pytest.param(
        """\
        assert out.max() < 10 and i >= 0  # here
""",
        id="an assertion about a tensor",
    ),
    pytest.param(
        """\
def run(x, y):
    loss = F.cross_entropy(model(x.to(device)), y)
    loss.backward()
    return loss.item()  # here
for x, y in loader:
    print(run(x, y))
""",
        id="in a function of the step",
    ),
]

SILENT = [
    pytest.param(
        """\
        names = y.tolist()
        n += float(y.sum())
        seen += y.numpy().sum()
""",
        id="labels of the loader",
    ),
    pytest.param(
        """\
        print(i)
        lr = float(opt.param_groups[0]["lr"])
        k = int(i / 2)
        print(x.shape, f"{x.size(0)}")
""",
        id="numbers",
    ),
    pytest.param(
        """\
        for name, p in model.named_parameters():
            print(name)
""",
        id="names of parameters",
    ),
    pytest.param(
        """\
        if i % 10 == 0:
            print(loss.item())
""",
        id="now and then",
    ),
    pytest.param(
        """\
        if bad:
            print(loss.item())
            raise ValueError(i)
""",
        id="when it went wrong",
    ),
    pytest.param(
        """\
        if i % 10 == 0 and torch.isnan(loss):
            raise ValueError(i)
""",
        id="asked now and then",
    ),
    pytest.param(
        """\
        if stop:
            print(loss.item())
            break
""",
        id="on leaving",
    ),
    pytest.param(
        """\
    model.eval()
    with torch.no_grad():
        for x, y in val:
            n += model(x).sum().item()
""",
        id="evaluation after it",
    ),
]


RULE = OneRule("host-sync", HEAD)


@each("body", FOUND)
def test_it_is_found(body: str) -> None:
    assert RULE.lines(body) == RULE.marked(body)


@each("body", SILENT)
def test_it_is_silent(body: str) -> None:
    assert RULE.lines(body) == []


@pytest.mark.parametrize("device", ['device = "cpu"', ""], ids=["stated", "no word of any"])
def test_nothing_waits_on_the_cpu(device: str) -> None:
    loop = "for x, y in loader:\n    loss = criterion(model(x), y)\n    loss.backward()\n    total += loss.item()\n"
    assert RULE.found(f"import torch\n{device}\n{loop}") == []


def test_the_fix_uses_the_names_of_the_author() -> None:
    [hit] = [item.hit for item in RULE.found(HEAD + "        total += loss.item() * len(x)\n")]
    assert "`total += loss.detach() * len(x)`" in hit.fix
    assert "`total.item()` once after the loop" in hit.fix


def _kinds(source: str) -> list[str]:
    return [item.kind for item in RULE.found(source)]


@each("over", ["itertools.product([1, 2], [3, 4])", "[1, 2]", "sizes"])
def test_a_loop_over_settings_is_no_step(over: str) -> None:
    source = f"""\
import itertools
import torch
sizes = [8, 16]
model = model.cuda()
for setting in {over}:
    for _ in range(6):
        model(x.cuda()).sum().backward()
    torch.cuda.synchronize()
"""
    assert RULE.found(source) == []


def test_a_list_that_is_filled_holds_batches() -> None:
    source = """\
import torch
model = model.cuda()
batches = []
for path in paths:
    batches.append(torch.load(path))
for x in batches:
    model(x.cuda()).sum().backward()
    torch.cuda.synchronize()
"""
    assert [item.place.line for item in RULE.found(source)] == [8]
