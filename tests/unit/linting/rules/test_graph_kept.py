"""Losses and outputs kept with their graphs: cases beside the specimens, and what the mechanical fix writes."""

from __future__ import annotations

import textwrap

from tests.linted import OneRule, each

from unchoke.code.source import parse_source
from unchoke.linting.lint_engine import lint_source
from unchoke.linting.rules import load_rule

HEAD = """
import torch, numpy as np
import torch.nn.functional as F
from torch import nn
criterion = nn.CrossEntropyLoss()
"""


RULE = OneRule("graph-kept", HEAD)
lines = RULE.texts


def fixed(source: str) -> str:
    return RULE.fixed(RULE.whole(source))


def loop(
    body: str, *, before: str = "total, losses, history = 0, [], {'loss': []}", after: str = "print(total, losses, history)"
) -> str:
    inner = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    return (
        f"{before}\nfor epoch in range(3):\n    for x, y in loader:\n        out = model(x)\n        loss = criterion(out, y)\n"
        f"        optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()\n{inner}\n{after}\n"
    )


@each(
    "body",
    [
        "total += loss",
        "total = total + loss",
        "total = loss + total",
        "total += loss * x.size(0)",
        "total += loss / len(loader)",
        "total += loss.cpu()",
        "losses.append(loss)",
        "losses += [loss]",
        "history['loss'].append(loss)",
        "losses.append(out)",
        "losses.append(out.softmax(1))",
        "losses.append((loss, out))",
        "losses = torch.cat([losses, out])",
        "losses.append({'loss': loss})",
        "losses.append(F.mse_loss(out, y))",
    ],
)
def test_what_keeps_its_graph_is_reported(body: str) -> None:
    assert lines(loop(body)) == [body]


@each(
    "body",
    [
        "total += loss.item()",
        "total += float(loss)",
        "total += loss.detach()",
        "total += loss.data",
        "total += loss.detach().cpu() * len(x)",
        "total += len(x)",
        "total += (out.argmax(1) == y).sum()",
        "total += out.max(1)[1].eq(y).sum()",
        "losses.append(out.argmax(1))",
        "losses.append(y)",
        "losses.append(loss.item() * len(x))",
        "_, picked = torch.max(out, 1)\nlosses.append(picked)",
        "loss = loss.item()\ntotal += loss",
        "value = loss.detach()\nlosses.append(value)",
        "with torch.no_grad():\n    total += loss",
        "parts = []\nparts.append(loss)",
        "step_loss = 0\nfor k in range(3):\n    step_loss += criterion(model(x), y)",
        "losses.append(loss)\nlosses.clear()",
        "losses.append(np.mean(out))",
        "losses.append(f'{loss}')",
        "losses.append(accuracy_score(y, out))",
    ],
)
def test_what_keeps_only_numbers_is_not(body: str) -> None:
    assert lines(loop(body)) == []


def test_a_sum_that_backward_is_called_on_is_not() -> None:
    assert (
        lines("""
        def train(model, loader, optimizer):
            for epoch in range(3):
                total = 0
                for x, y in loader:
                    total += criterion(model(x), y)
                (total / len(loader)).backward()
                optimizer.step()
    """)
        == []
    )
    assert (
        lines("""
        def train(model, loader, optimizer):
            losses = []
            for step, (x, y) in enumerate(loader):
                losses.append(criterion(model(x), y))
                if step % 4 == 3:
                    loss = torch.stack(losses).mean()
                    loss.backward()
                    optimizer.step()
                    losses = []
    """)
        == []
    )


def test_a_sum_that_is_returned_to_a_backward_is_not() -> None:
    assert (
        lines("""
        def episode_loss(model, loader):
            total = 0
            for x, y in loader:
                total = total + criterion(model(x), y)
            return total

        for episode in range(100):
            loss = episode_loss(model, loader)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """)
        == []
    )


def test_evaluation_counts_only_with_gradients() -> None:
    source = """
        {mark}
        def evaluate(model, loader):
            model.eval()
            total, outs = 0, []
            for x, y in loader:
                out = model(x)
                total += criterion(out, y)
                outs.append(out)
            return total.item() / len(loader), torch.cat(outs)
    """
    assert lines(source.format(mark="")) == ["total += criterion(out, y)", "outs.append(out)"]
    assert lines(source.format(mark="@torch.no_grad()")) == []
    assert lines(source.format(mark="@torch.inference_mode()")) == []


def test_views_of_one_picture_in_evaluation_are_few() -> None:
    assert (
        lines("""
        def predict(model, x):
            out = 0
            for dims in ([2], [3], [2, 3]):
                out += model(torch.flip(x, dims))
            return out
    """)
        == []
    )


def test_a_phase_switch_leaves_gradients_on_for_training() -> None:
    assert lines("""
        for epoch in range(25):
            for phase in ["train", "val"]:
                running_loss = 0.0
                for inputs, labels in dataloaders[phase]:
                    optimizer.zero_grad()
                    with torch.set_grad_enabled(phase == "train"):
                        outputs = model(inputs)
                        loss = criterion(outputs, labels)
                        if phase == "train":
                            loss.backward()
                            optimizer.step()
                    running_loss += loss * inputs.size(0)
    """) == ["running_loss += loss * inputs.size(0)"]


def test_lightning_counts_in_the_training_step_only() -> None:
    assert lines("""
        import lightning as L
        class Net(L.LightningModule):
            def training_step(self, batch, _):
                loss = F.cross_entropy(self.net(batch[0]), batch[1])
                self.kept.append(loss)
                return loss
            def validation_step(self, batch, _):
                loss = F.cross_entropy(self.net(batch[0]), batch[1])
                self.val_kept.append(loss)
    """) == ["self.kept.append(loss)"]


def test_a_meter_of_this_file_is_followed() -> None:
    meter = """
        class Meter:
            def __init__(self):
                self.sum, self.count = 0, 0
            def update(self, value, n=1):
                self.sum += value * n
                self.count += n
        meter = Meter()
        for x, y in loader:
            loss = criterion(model(x), y)
            loss.backward()
            meter.update({given}, x.size(0))
    """
    assert lines(meter.format(given="loss")) == ["meter.update(loss, x.size(0))"]
    assert lines(meter.format(given="loss.item()")) == []


def test_a_step_function_that_returns_a_number_is_read() -> None:
    step = """
        def step(model, x, y):
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            return {returned}
        total = 0
        for x, y in loader:
            total += step(model, x, y)
    """
    assert lines(step.format(returned="loss.item()")) == []
    assert lines(step.format(returned="loss")) == ["total += step(model, x, y)"]


def test_skips_of_a_forward_and_tensorflow_are_left_alone() -> None:
    assert (
        lines("""
        class Net(nn.Module):
            def forward(self, x):
                skips, total = [], 0
                for layer in self.layers:
                    x = layer(x)
                    skips.append(x)
                    total += x.mean()
                return x, skips, total
        net = Net()
        for x, y in loader:
            out, skips, total = net(x)
            (criterion(out, y) + total).backward()
    """)
        == []
    )
    source = """
        import tensorflow as tf
        def evaluate(model, data):
            total = 0
            for x, y in data:
                total += loss_fn(y, model(x, training=False))
            return total
        for x, y in data:
            with tf.GradientTape() as tape:
                loss = loss_fn(y, model(x, training=True))
            losses.append(loss)
    """
    found, _ = lint_source(parse_source("train.py", textwrap.dedent(source).encode()), [load_rule("graph-kept")])
    assert found == []


@each(
    ("body", "after"),
    [
        ("total += loss", "total += loss.detach()"),
        ("total = total + loss", "total = total + loss.detach()"),
        ("total += loss * x.size(0)", "total += loss.detach() * x.size(0)"),
        ("losses.append(loss)", "losses.append(loss.detach())"),
        ("history['loss'].append(loss)", "history['loss'].append(loss.detach())"),
        ("losses.append(out)", "losses.append(out.detach())"),
        ("losses.append(F.mse_loss(out, y))", "losses.append(F.mse_loss(out, y).detach())"),
    ],
)
def test_the_fix_detaches_where_all_ends_in_numbers(body: str, after: str) -> None:
    end = "print(float(total), f'{total:.3f}', sum(losses).item(), len(history['loss']))"
    assert fixed(loop(body, after=end)) == HEAD + loop(after, after=end)


@each(
    "after",
    [
        "other(total, losses)",
        "keep = [l for l in losses]\nprint(sum(keep), other(total))",
        "state.total = total\nstate.losses = losses",
        "print(total, losses)",
        "print(f'{total} {losses}')",
        "print(total.requires_grad, np.mean(losses))",
    ],
)
def test_no_fix_where_the_sum_goes_somewhere_unknown(after: str) -> None:
    for body in ("total += loss", "losses.append(loss)"):
        source = loop(body, after=after)
        assert lines(source) == [body]
        assert fixed(source) == RULE.whole(source)


def test_no_fix_for_what_may_be_no_tensor() -> None:
    source = """
        def evaluate(model, loader):
            outs = []
            for x in loader:
                outs.append(model(x))
            print(len(outs))
    """
    assert lines(source) == ["outs.append(model(x))"]
    assert fixed(source) == RULE.whole(source)


@each(
    ("kept", "fix"),
    [
        ("loss", "write `loss.detach()`"),
        ("(loss, 3)", "write `loss.detach()` in it"),
        ("(loss / 2, [out, len(x)])", "write `(loss / 2).detach()` and `out.detach()` in it"),
        ("{'loss': loss}", "write `loss.detach()` in it"),
        ("[part for part in out]", "write `.detach()` behind each tensor in `[part for part in out]`"),
    ],
)
def test_only_tensors_are_to_be_detached(kept: str, fix: str) -> None:
    (found,) = RULE.found(RULE.whole(loop(f"losses.append({kept})")))
    assert found.hit.fix == fix
    assert "in every step" in found.hit.message


def test_what_is_kept_once_an_epoch_is_said_to_be() -> None:
    source = """
        model, means = nn.Linear(3, 3), []
        for e in range(30):
            model.train()
            total = 0
            for x, y in loader:
                optimizer.zero_grad()
                loss = criterion(model(x), y)
                loss.backward()
                optimizer.step()
                total += loss
            model.eval()
            means.append((total / len(loader), e))
        """
    per_step, per_epoch = RULE.found(RULE.whole(source))
    assert "in every step" in per_step.hit.message
    assert "in every epoch" in per_epoch.hit.message
    assert per_epoch.hit.fix == "write `(total / len(loader)).detach()` in it"
