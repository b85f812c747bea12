"""An engine on an accelerator leaves the network it was made from where it was."""

from __future__ import annotations

from itertools import chain

import pytest
import torch

from unchoke.features import engines
from unchoke.features.encoders import Encoder
from unchoke.features.engines import TorchEngine


def test_an_accelerator_is_given_weights_of_its_own(tiny: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[set[int]] = []
    monkeypatch.setattr(engines, "is_cpu", lambda device: False)
    monkeypatch.setattr(torch.nn.Module, "to", lambda self, *_, **__: moved.append(_places(self)) or self)
    TorchEngine(tiny, device=torch.device("cpu"), batch=4)
    assert moved
    assert not _places(tiny.module) & moved[0]


def _places(module: torch.nn.Module) -> set[int]:
    return {tensor.data_ptr() for tensor in chain(module.parameters(), module.buffers())}
