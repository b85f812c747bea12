"""The doctor's commands as a person types them, in this process; and small training code to give them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SLOW = """\
import torch
from torch.utils.data import DataLoader
from torchvision import models, transforms
from torchvision.datasets import ImageFolder

data = ImageFolder("photos", transform=transforms.Compose([transforms.Resize(256), transforms.ToTensor()]))
loader = DataLoader(data, batch_size=32, shuffle=True)
model = models.resnet50().to("cuda")
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(50):
    for images, labels in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images.to("cuda")), labels.to("cuda"))
        loss.backward()
        optimizer.step()
"""
"""`no-workers` at line 7."""


@dataclass(frozen=True)
class Answer:
    code: int
    stdout: str
    stderr: str

    @property
    def last(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.stdout.splitlines()[-1])
        return found


Typed = Callable[..., Answer]


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Typed:
    from unchoke_doctor.__main__ import main

    def run(*words: object) -> Answer:
        capsys.readouterr()
        code = main([str(word) for word in words])
        return Answer(code, *capsys.readouterr())

    return run


def book_of(*cells: str) -> str:
    """A notebook; a cell that begins with `#:` is text."""
    made = [
        {"cell_type": "markdown", "metadata": {}, "source": text.removeprefix("#:")}
        if text.startswith("#:")
        else {"cell_type": "code", "metadata": {}, "source": text, "outputs": [], "execution_count": None}
        for text in cells
    ]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.fixture
def slow_script(tmp_path: Path) -> Path:
    file = tmp_path / "train.py"
    file.write_text(SLOW)
    return file
