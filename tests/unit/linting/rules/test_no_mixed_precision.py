"""no-mixed-precision beyond its specimens."""

from __future__ import annotations

from tests.linted import OneRule, each

HEAD = """import torch, timm
from torchvision import models, datasets
device = "cuda" if torch.cuda.is_available() else "cpu"
"""
TRAIN = """
net.to(device)
opt = torch.optim.AdamW(net.parameters())
for epoch in range({epochs}):
    for x, y in loader:
        loss = criterion(net(x.to(device)), y.to(device))
        loss.backward()
        opt.step()
"""
RULE = OneRule("no-mixed-precision", HEAD)


def kinds(made: str, epochs: int = 30, more: str = "") -> list[str]:
    return [item.kind for item in RULE.found(RULE.whole(made + TRAIN.format(epochs=epochs) + more))]


@each("made", ["net = models.resnet50()", "net = timm.create_model('swin_base_patch4_window7_224')"])
def test_large_networks_are_chokes_if_trained_long(made: str) -> None:
    assert kinds(made) == ["choke"]
    assert kinds(made, epochs=3) == ["nit"]


@each(
    ("made", "more"),
    [
        ("net = models.resnet18()", ""),
        ("net = torch.nn.Linear(8, 2)", ""),
        ("net = models.resnet50()", "scaler = torch.amp.GradScaler()"),
        ("from my_helpers import *\nnet = models.resnet50()", ""),
        ("net = models.resnet50()", "torch.set_float32_matmul_precision('high')"),
        ("net = models.resnet50()\nfor p in net.parameters():\n    p.requires_grad = False\nnet.fc = head", ""),
    ],
)
def test_small_frozen_or_mixed_networks_are_not_found(made: str, more: str) -> None:
    assert kinds(made, more=more) == []


def test_without_a_card_nothing_is_said() -> None:
    assert RULE.found("from torchvision import models\nimport torch\nnet = models.resnet50()" + TRAIN.format(epochs=30)) == []
