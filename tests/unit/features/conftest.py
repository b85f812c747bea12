"""A tiny encoder, built once, for the tests of this package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from unchoke.features.encoders import Encoder, load_encoder


@pytest.fixture(scope="session")
def tiny(tiny_weights: Path) -> Encoder:
    return load_encoder("test_resnet", weights=tiny_weights)


@pytest.fixture(autouse=True)
def one_torch_thread() -> Iterator[None]:
    """Tiny pictures gain nothing from more, and test processes share the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
