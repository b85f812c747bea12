"""Frozen encoders run in every epoch: cases beside the specimens."""

from __future__ import annotations

import textwrap

from tests.linted import OneRule, each

TORCH = """
import torch, timm, random
import torch.nn.functional as F
from torch import nn
from torchvision import models, transforms as T
from torchvision.datasets import ImageFolder
from torch.utils.data import DataLoader
"""
PLAIN = "T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor()])"


def lines(source: str, head: str = TORCH) -> list[str]:
    return OneRule("frozen-recomputed", head).texts(source)


def script(
    freezing: str,
    *,
    transform: str = PLAIN,
    epochs: str = "10",
    forward: str = "model(x)",
    trained: str = "model.fc.parameters()",
    more: str = "",
) -> str:
    return f"""
tf = {transform}
loader = DataLoader(ImageFolder("train", tf), batch_size=32, shuffle=True)
model = models.resnet50(weights="DEFAULT")
{freezing}
opt = torch.optim.Adam({trained})
for epoch in range({epochs}):
    for x, y in loader:
{textwrap.indent(more, "        ")}
        loss = F.cross_entropy({forward}, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
"""


LOOPED = "for p in model.parameters():\n    p.requires_grad = False\nmodel.fc = nn.Linear(2048, 5)"


@each(
    "freezing",
    [
        LOOPED,
        "model.requires_grad_(False)\nmodel.fc = nn.Linear(2048, 5)",
        "for p in model.parameters():\n    p.requires_grad_(False)\nfor p in model.fc.parameters():\n    p.requires_grad_(True)",
        "for name, p in model.named_parameters():\n    if 'fc' not in name:\n        p.requires_grad = False",
        "for name, p in model.named_parameters():\n    if not name.startswith('fc'):\n        p.requires_grad = False",
        "for p in list(model.parameters())[:-2]:\n    p.requires_grad = False",
        "def off(m):\n    for p in m.parameters():\n        p.requires_grad_(False)\noff(model)\nmodel.fc = nn.Linear(9, 5)",
    ],
)
def test_every_way_of_freezing_all_but_the_head_counts(freezing: str) -> None:
    assert len(lines(script(freezing))) == 1


def test_an_encoder_beside_the_head_counts() -> None:
    made = (
        "enc = timm.create_model('vit_small_patch16_224', num_classes=0).eval().requires_grad_(False)\nhead = nn.Linear(384, 5)"
    )
    assert len(lines(script(made, forward="head(enc(x))", trained="head.parameters()"))) == 1
    off = "enc = timm.create_model('vit_small_patch16_224', num_classes=0)\nhead = nn.Linear(384, 5)"
    run = "with torch.no_grad():\n    z = enc(x)"
    assert lines(script(off, forward="head(z)", trained="head.parameters()", more=run)) == ["z = enc(x)"]


@each(
    "changed",
    [
        {"transform": "T.Compose([T.Resize(256), T.RandomCrop(224), T.ToTensor()])"},
        {"transform": "T.Compose([T.Resize(224), T.RandomHorizontalFlip(), T.ToTensor()])"},
        {"transform": "timm.data.create_transform(224, is_training=True)"},
        {"epochs": "1"},
        {"more": "x = augment(x)"},
        {"more": "if random.random() < 0.5:\n    x = x.flip(-1)"},
    ],
)
def test_augmentation_and_a_single_epoch_do_not(changed: dict[str, str]) -> None:
    assert lines(script(LOOPED, **changed)) == []


@each(
    "freezing",
    [
        "for p in model.layer1.parameters():\n    p.requires_grad = False",
        "model.requires_grad_(False)\nfor p in model.layer4.parameters():\n    p.requires_grad = True",
        "for p in list(model.parameters())[:-20]:\n    p.requires_grad = False",
        "for name, p in model.named_parameters():\n    if 'bn' in name:\n        p.requires_grad = False",
        "model.requires_grad_(False)\nmodel.conv1 = nn.Conv2d(4, 64, 7)\nmodel.fc = nn.Linear(2048, 5)",
        "for p in model.parameters():\n    p.requires_grad = True",
        "",
    ],
)
def test_an_encoder_that_learns_in_part_does_not(freezing: str) -> None:
    assert lines(script(freezing)) == []


def test_other_networks_and_other_files_do_not_count() -> None:
    made = "vgg = models.vgg16(weights='DEFAULT').features\nvgg.requires_grad_(False)\nnet = nn.Sequential(nn.Conv2d(3, 3, 3))"
    assert lines(script(made, forward="vgg(net(x)).flatten(1)", trained="net.parameters()")) == []
    source = (
        script(LOOPED)
        .replace('ImageFolder("train", tf)', 'Leaves("train", tf)')
        .replace("tf = ", "from leaves import Leaves\ntf = ")
    )
    assert lines(source) == []


def test_network_is_followed_from_build_to_training() -> None:
    assert lines("""
        def build():
            base = models.resnet50(weights="DEFAULT")
            for p in base.parameters():
                p.requires_grad = False
            base.fc = nn.Linear(2048, 5)
            return base

        def epoch(network, loader, opt):
            for x, y in loader:
                loss = F.cross_entropy(network(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()

        def main():
            loader = DataLoader(ImageFolder("train", T.ToTensor()), batch_size=32)
            net = build()
            net = nn.DataParallel(net).cuda()
            opt = torch.optim.Adam(net.module.fc.parameters())
            for _ in range(5):
                epoch(net, loader, opt)
    """) == ["p.requires_grad = False"]


def test_encoder_given_or_put_in_front_counts() -> None:
    made = "enc = models.resnet18()\nenc.requires_grad_(False)\nhead = nn.Linear(512, 5)\nboth = nn.Sequential(enc, head)"
    assert len(lines(script(made, forward="both(x)", trained="head.parameters()"))) == 1
    wrapped = """
class Net(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(512, 5)
    def forward(self, x):
        return self.head(self.encoder(x))
enc = models.resnet18()
enc.requires_grad_(False)
net = Net(enc)
"""
    assert len(lines(script(wrapped, forward="net(x)", trained="net.head.parameters()"))) == 1


def test_the_encoder_of_a_trainer_counts() -> None:
    source = """
        from transformers import AutoModelForImageClassification, Trainer, TrainingArguments
        from torch.utils.data import Dataset
        class Leaves(Dataset):
            def __getitem__(self, i):
                return {"pixel_values": self.x[i], "labels": self.y[i]}
        model = AutoModelForImageClassification.from_pretrained("vit")
        for p in model.vit.parameters():
            p.requires_grad = False
        Trainer(model=model, args=TrainingArguments("out", num_train_epochs=%d), train_dataset=Leaves()).train()
    """
    assert lines(source % 6) == ["p.requires_grad = False"]
    assert lines(source % 1) == []


def test_two_stages_count_if_first_is_frozen_for_epochs() -> None:
    keras = """
        base = keras.applications.ResNet50(include_top=False, pooling="avg")
        base.trainable = False
        model = keras.Sequential([base, keras.layers.Dense(5)])
        model.compile("adam", "mse")
        model.fit(train, epochs={first})
        base.trainable = True
        model.fit(train, epochs=10)
    """
    head = "from tensorflow import keras\ntrain = keras.utils.image_dataset_from_directory('a')\n"
    assert lines(keras.format(first=5), head) == ["base.trainable = False"]
    assert lines(keras.format(first=1), head) == []


FIT = "\nmodel.fit(train, epochs=5)"
MODEL = "\nmodel = keras.Sequential([base])" + FIT


@each(
    ("source", "reported"),
    [
        ("base.trainable = False\nmodel = keras.Model(base.input, keras.layers.Dense(3)(base.output))" + FIT, True),
        ("for layer in base.layers:\n    layer.trainable = False" + MODEL, True),
        ("for layer in base.layers[:-4]:\n    layer.trainable = False" + MODEL, False),
        ("base.trainable = False\nz = base.predict(train)\nhead = keras.Sequential([dense])\nhead.fit(z, y, epochs=9)", False),
        ("base.trainable = False\nmodel = keras.Sequential([keras.layers.RandomFlip(), base])" + FIT, False),
        ("discriminator = base\ndiscriminator.trainable = False\nmodel = keras.Sequential([gen, discriminator])" + FIT, False),
    ],
)
def test_keras(source: str, reported: bool) -> None:
    head = """
from tensorflow import keras
train = keras.utils.image_dataset_from_directory("a")
base = keras.applications.VGG16(include_top=False)
"""
    assert bool(lines(source, head)) is reported
