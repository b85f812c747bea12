"""Evaluation with gradients on: cases beside the specimens; lines that are to be found end with `# here`."""

from __future__ import annotations

import pytest
from tests.linted import OneRule, each

from unchoke.code.source import parse_source
from unchoke.linting.fixing import apply_edits
from unchoke.linting.lint_engine import lint_source
from unchoke.linting.rules import load_rule

HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn
"""

FOUND = [
    pytest.param(
        """\
def accuracy(model, loader):
    model.eval()
    total = 0
    for x, y in loader:
        total += model(x)  # here
    return total
""",
        id="after eval in a function of another name",
    ),
    pytest.param(
        """\
def one(model, batch):
    return model(batch).sum()
def validate(model, loader):
    for batch in loader:
        total = one(model, batch)  # here
""",
        id="through a helper",
    ),
    pytest.param(
        """\
model.eval()
a = model(x)  # here
b = model(y)
""",
        id="once for two calls",
    ),
]

SILENT = [
    pytest.param(
        """\
def evaluate(model, loader):
    model.eval()
    total = 0
    for x, y in loader:
        x.requires_grad_(); total += model(x)
    return total
""",
        id="the input asks for gradients",
    ),
    pytest.param(
        """\
def evaluate(model, loader):
    model.eval()
    total = 0
    for x, y in loader:
        total += 1
        with torch.inference_mode():
            model(x)
    return total
""",
        id="a block round it",
    ),
    pytest.param(
        """\
def evaluate(model, loader):
    model.eval()
    total = 0
    for x, y in loader:
        total += model(x)
    return total
with torch.no_grad():
    evaluate(m, d)
""",
        id="only called where they are off",
    ),
    pytest.param(
        """\
teacher = build().eval()
for x in loader:
    loss = distance(student(x), teacher(x))
    loss.backward()
""",
        id="a teacher",
    ),
    pytest.param(
        """\
class Net(nn.Module):
    def predict(self, x):
        return self.net(x).softmax(1)
""",
        id="another way to call a network",
    ),
    pytest.param(
        """\
torch.set_grad_enabled(False)
model.eval()
y = model(x)
""",
        id="off for good",
    ),
    pytest.param(
        """\
def test_shapes():
    model = Net()
    out = model(torch.rand(2, 3))
    assert out.shape == (2, 5)
""",
        id="a unit test",
    ),
    pytest.param(
        """\
from transformers import pipeline
classifier = pipeline("image-classification")
def predict(x):
    return classifier(x)
""",
        id="a pipeline switches them off itself",
    ),
    pytest.param(
        """\
softmax = nn.Softmax(dim=1)
def predict(logits):
    return softmax(logits)
""",
        id="no weights",
    ),
    pytest.param(
        """\
import tensorflow as tf
def evaluate(model, ds):
    for x, y in ds:
        p = model(x, training=False)
""",
        id="Keras",
    ),
]


RULE = OneRule("no-inference-mode", HEAD)


@each("body", FOUND)
def test_it_is_found(body: str) -> None:
    assert RULE.lines(body) == RULE.marked(body)


@each("body", SILENT)
def test_it_is_silent(body: str) -> None:
    assert RULE.lines(body) == []


def test_suggestion_keeps_indentation_and_line_ends() -> None:
    source = (
        "import torch\r\nclass Run:\r\n\tdef __init__(self):\r\n\t\tself.model = torch.nn.Linear(2, 2)\r\n"
        "\tdef evaluate(self, x):\r\n\t\treturn self.model(x).argmax(1).tolist()\r\nRun().evaluate(x)\r\n"
    )
    (found,) = lint_source(parse_source("run.py", source.encode()), [load_rule("no-inference-mode")])[0]
    shown = apply_edits(source, found.hit.suggestion)
    assert shown == source.replace("\tdef evaluate", "\t@torch.no_grad()\r\n\tdef evaluate")
    assert RULE.fixed(source) == source


@each(("over", "switch", "found"), [("val_loader", "", 1), ("val_loader", "with torch.no_grad():", 0), ("shards", "", 0)])
def test_a_loop_over_validation_needs_no_eval_before_it(over: str, switch: str, found: int) -> None:
    source = f"""\
import torch
def scores(model, {over}):
    print(sum(p.numel() for p in model.parameters()))
    {switch or "if True:"}
        for x, y in {over}:
            total += criterion(model(x), y).item()
    return total
"""
    hits = OneRule("no-inference-mode").found(source)
    assert len(hits) == found
    assert all("in `scores`" in item.hit.message and "after" not in item.hit.message for item in hits)


@each(("base", "reported"), [("(Pipeline)", False), ("(Mine)", False), ("", True), ("(object)", True), ("(Plain)", True)])
def test_method_called_by_an_unseen_base_is_left_alone(base: str, reported: bool) -> None:
    source = f"""\
from elsewhere import Pipeline
class Mine(Pipeline): ...
class Plain: ...
class Tables{base}:
    def predict(self, inputs):
        return self.model(**inputs)
"""
    rule = OneRule("no-inference-mode", HEAD)
    assert bool(rule.lines(source)) is reported
    called = source + "    def all(self, batches):\n        return [self.predict(one) for one in batches]\n"
    assert bool(rule.lines(called))
    once = source + "    def _forward(self, given):\n        return self.predict(given)\n"
    assert bool(rule.lines(once)) is reported
    looped = source.replace("return self.model(**inputs)", "return [self.model(one) for one in inputs]")
    assert bool(rule.lines(looped)) is reported


def test_a_unit_test_that_asserts_by_a_method_is_left_alone() -> None:
    source = "import torch\nfrom torch import nn\nmodel = nn.Linear(2, 2)\n"
    source += "def test_forward(case):\n    for x in inputs:\n        case.assertEqual(model(x).shape, x.shape)\n"
    assert not OneRule("no-inference-mode").texts(source)
