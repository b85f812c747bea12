"""Forward calls, frozen parts, optimizers and augmentation."""

from __future__ import annotations

import pytest

from programs import script
from unchoke.code.facts.freezing import freezes

HEAD = """
import timm
import torch
import torch.nn as nn
import torchvision.transforms as T
from torchvision import models
from tensorflow import keras
"""


@pytest.mark.parametrize(
    "text",
    [
        "model(x)",
        "self.backbone(x)",
        "net.forward(x)",
        "enc = models.resnet18()\nenc(x)",
        "q = timm.create_model('a')\nq(x)",
        "class Net(nn.Module): pass\nq = Net().to(d)\nq(x)",
        "model.predict(x)",
        "net.encoder(x)",
        "q = torch.compile(models.vgg16())\nq(x)",
        "class Net(nn.Module):\n  def f(self, x):\n    self(x)",
    ],
)
def test_calls_that_run_a_network(text: str) -> None:
    program = script(HEAD + text)
    assert len(program.facts.forwards) == 1


@pytest.mark.parametrize(
    "text",
    [
        "models.resnet18(pretrained=True)",
        "timm.create_model('a')",
        "crit = nn.CrossEntropyLoss()\ncrit(a, b)",
        "load_model(p)",
        "def build_model(n): pass\nbuild_model(3)",
        "torch.save(model, p)",
        "model.eval()",
        "keras.Model(a, b)",
        "trainer.save_model(p)",
        "class Net(nn.Module): pass\nNet(3)",
        "model.fit(x)",
    ],
)
def test_calls_that_do_not(text: str) -> None:
    assert script(HEAD + text).facts.forwards == []


@pytest.mark.parametrize(
    ("text", "name", "whole"),
    [
        ("for p in model.parameters():\n  p.requires_grad = False", "model", True),
        ("for p in self.enc.parameters():\n  p.requires_grad_(False)", "self.enc", True),
        ("model.backbone.requires_grad_(False)", "model.backbone", True),
        ("enc.eval().requires_grad_(False)", "enc", True),
        ("for n, p in net.named_parameters():\n  if 'fc' not in n:\n    p.requires_grad = False", "net", False),
        ("for p in list(net.parameters())[:-2]:\n  p.requires_grad = False", "net", False),
        ("def freeze(m):\n  for p in m.parameters():\n    p.requires_grad = False\nfreeze(model.encoder)", "model.encoder", True),
        ("base = keras.applications.VGG16()\nbase.trainable = False", "base", True),
        ("for layer in base.layers:\n  layer.trainable = False", "base", True),
        ("for layer in base.layers[:-4]:\n  layer.trainable = False", "base", False),
        ("for x in dl:\n  with torch.no_grad():\n    f = encoder(x)\n  head(f).backward()", "encoder", True),
        (
            "class N(nn.Module):\n  def forward(self, x):\n    with torch.no_grad():\n      f = self.enc(x)\n    return head(f)",
            "self.enc",
            True,
        ),
    ],
)
def test_frozen_parts_are_found(text: str, name: str, whole: bool) -> None:
    (found,) = script(HEAD + text).facts.frozen
    assert (found.name, found.whole) == (name, whole)


@pytest.mark.parametrize(
    "text",
    [
        "for p in model.parameters():\n  p.requires_grad = True",
        "base.trainable = True",
        "v = tf.Variable(0, trainable=False)",
        "for x in dl:\n  loss = model(x)\n  loss.backward()\n  with torch.no_grad():\n    acc = model(x)",
    ],
)
def test_what_is_not_frozen(text: str) -> None:
    assert script(HEAD + text).facts.frozen == []


def test_a_part_that_is_made_trainable_again_says_where() -> None:
    program = script(HEAD + "base.trainable = False\nmodel.fit(x, epochs=3)\nbase.trainable = True")
    (found,) = freezes(program)
    assert found.thawed is not None and program.line(found.thawed) > program.line(found.node)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("torch.optim.Adam(model.parameters(), lr=1)", ("model",)),
        ("torch.optim.SGD(model.fc.parameters(), lr=1)", ("model.fc",)),
        ("torch.optim.AdamW([{'params': enc.parameters()}, {'params': head.parameters(), 'lr': 3}])", ("enc", "head")),
        ("torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()))", ("model",)),
        ("ps = [p for p in model.parameters() if p.requires_grad]\ntorch.optim.Adam(ps)", ("model",)),
        ("ps = list(head.parameters())\ntorch.optim.Adam(params=ps)", ("head",)),
        ("Lion(net.parameters(), lr=3)", ("net",)),
    ],
)
def test_an_optimizer_knows_whose_parameters_it_has(text: str, names: tuple[str, ...]) -> None:
    (found,) = script(HEAD + text).facts.optimizers
    assert found.names == names


def test_a_schedule_is_no_optimizer() -> None:
    assert script(HEAD + "torch.optim.lr_scheduler.StepLR(opt, 3)").facts.optimizers == []


@pytest.mark.parametrize(
    ("text", "augments"),
    [
        ("T.Compose([T.Resize(3), T.RandomHorizontalFlip()])", True),
        ("T.Compose([T.Resize(3), T.ToTensor()])", False),
        ("keras.layers.RandomFlip()(x)", True),
        ("keras.preprocessing.image.ImageDataGenerator(rotation_range=20)", True),
        ("keras.preprocessing.image.ImageDataGenerator(rescale=1)", False),
        (
            "class D(torch.utils.data.Dataset):\n  def __getitem__(self, i):\n    if torch.rand(()) < .5:\n      x = x.flip(-1)",
            True,
        ),
        ("x = torch.rand(3)", False),
    ],
)
def test_random_augmentation_is_seen(text: str, augments: bool) -> None:
    assert script(HEAD + text).facts.augments is augments
