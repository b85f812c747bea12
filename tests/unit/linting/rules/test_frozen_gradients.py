"""Gradients for what is not trained: cases beside the specimens."""

from __future__ import annotations

import textwrap

from tests.linted import OneRule, each

HEAD = """
import torch, timm
import torch.nn.functional as F
import lightning as L
from torch import nn
from torchvision import models
"""


lines = OneRule("frozen-gradients", HEAD).texts


def script(made: str, forward: str) -> str:
    inner = textwrap.indent(f"{forward}\nloss = F.cross_entropy(out, y)\nopt.zero_grad()\nloss.backward()\nopt.step()\n", " " * 8)
    return f"{made}\nfor epoch in range(5):\n    for x, y in loader:\n{inner}"


NET = "net = models.resnet50(weights='DEFAULT')\nnet.fc = nn.Linear(2048, 5)\n"
FC = "opt = torch.optim.Adam(net.fc.parameters())"
PAIR = "enc = timm.create_model('vit_small_patch16_224', num_classes=0)\nhead = nn.Linear(384, 5)\n"


@each(
    ("made", "forward"),
    [
        (NET + "opt = torch.optim.Adam(net.fc.parameters())", "out = net(x)"),
        (NET + "params = net.fc.parameters()\nopt = torch.optim.SGD(params, lr=0.1)", "out = net(x)"),
        (NET + "opt = torch.optim.Adam([p for n, p in net.named_parameters() if n.startswith('fc')])", "out = net(x)"),
        (NET + "net = nn.DataParallel(net)\nopt = torch.optim.Adam(net.module.fc.parameters())", "out = net(x)"),
        (
            NET + "net.eval()\nopt = torch.optim.Adam([{'params': net.layer4.parameters()}, {'params': net.fc.parameters()}])",
            "out = net(x)",
        ),
        (PAIR + "opt = torch.optim.AdamW(head.parameters())", "out = head(enc(x))"),
        (PAIR + "opt = torch.optim.AdamW(head.parameters())", "z = enc(x)\nz = F.normalize(z)\nout = head(z)"),
        (
            NET + "net.classifier = nn.Sequential(nn.Linear(9, 5))\nopt = torch.optim.Adam(net.classifier[-1].parameters())",
            "out = net(x)",
        ),
        (PAIR + "model = nn.Sequential(enc, head)\nopt = torch.optim.AdamW(head.parameters())", "out = model(x)"),
    ],
)
def test_encoder_without_optimizer_is_found_once(made: str, forward: str) -> None:
    found = lines(script(made, forward))
    assert len(found) == 1
    assert "torch.optim" in found[0]


@each(
    ("made", "forward"),
    [
        (NET + "opt = torch.optim.Adam(net.parameters())", "out = net(x)"),
        (NET + "opt = torch.optim.Adam(filter(lambda p: p.requires_grad, net.parameters()))", "out = net(x)"),
        (
            NET + "net.requires_grad_(False)\nnet.fc.requires_grad_(True)\nopt = torch.optim.Adam(net.fc.parameters())",
            "out = net(x)",
        ),
        (
            NET + "for p in net.parameters():\n    p.requires_grad = False\nnet.fc = nn.Linear(9, 5)\n" + FC,
            "out = net(x)",
        ),
        (NET + "freeze_all_but_head(net)\nopt = torch.optim.Adam(net.fc.parameters())", "out = net(x)"),
        (
            NET + "opt = torch.optim.Adam(net.fc.parameters())\nopt.add_param_group({'params': net.layer4.parameters()})",
            "out = net(x)",
        ),
        (NET + "opt = torch.optim.Adam(net.fc.parameters())\nslow = torch.optim.SGD(net.parameters(), lr=1e-5)", "out = net(x)"),
        (PAIR + "opt = torch.optim.AdamW(head.parameters())", "with torch.no_grad():\n    z = enc(x)\nout = head(z)"),
        (PAIR + "opt = torch.optim.AdamW(head.parameters())", "out = head(enc(x).detach())"),
        (PAIR + "opt = torch.optim.AdamW(head.parameters())", "z = enc(x)\nout = head(z.detach())"),
        (PAIR + "enc.requires_grad_(False)\nopt = torch.optim.AdamW(head.parameters())", "out = head(enc(x))"),
        (PAIR + "enc = enc.eval().requires_grad_(False)\nopt = torch.optim.AdamW(head.parameters())", "out = head(enc(x))"),
        (PAIR + "opt = torch.optim.AdamW(list(enc.parameters()) + list(head.parameters()))", "out = head(enc(x))"),
        (PAIR + "opt = torch.optim.AdamW(head.parameters())", "out = head(x)"),
        (
            "gen, disc = nn.Sequential(nn.Linear(3, 3)), nn.Sequential(nn.Flatten())\nopt = torch.optim.Adam(gen.parameters())",
            "out = disc(gen(x))",
        ),
        ("from mine import Net\nnet = Net()\nopt = torch.optim.Adam(net.head.parameters())", "out = net(x)"),
    ],
)
def test_one_that_is_trained_frozen_or_needed_is_not(made: str, forward: str) -> None:
    assert lines(script(made, forward)) == []


@each(("freezing", "reported"), [("pass", True), ("model.requires_grad_(False)", False)])
def test_network_is_followed_from_build_to_training(freezing: str, reported: bool) -> None:
    source = f"""
        def build():
            model = models.resnet50(weights="DEFAULT")
            {freezing}
            model.fc = nn.Linear(2048, 5)
            return model

        def epoch(network, loader, opt):
            for x, y in loader:
                loss = F.cross_entropy(network(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()

        def main():
            net = build().to("cpu")
            opt = torch.optim.Adam(net.fc.parameters())
            for _ in range(5):
                epoch(net, loader, opt)
    """
    assert bool(lines(source)) is reported


@each(("frozen", "reported"), [("", True), ("self.backbone.requires_grad_(False)", False), ("self.freeze_backbone()", False)])
def test_lightning(frozen: str, reported: bool) -> None:
    source = f"""
        class Net(L.LightningModule):
            def __init__(self):
                super().__init__()
                self.backbone = timm.create_model("resnet50", num_classes=0)
                {frozen}
                self.head = nn.Linear(2048, 5)
            def forward(self, x):
                return self.head(self.backbone(x))
            def training_step(self, batch, _):
                return F.cross_entropy(self(batch[0]), batch[1])
            def configure_optimizers(self):
                return torch.optim.AdamW(self.head.parameters())
    """
    assert bool(lines(source)) is reported
