"""A tiny encoder, built once, for the tests of this package."""

from __future__ import annotations

from pathlib import Path

import pytest

from unchoke.features.encoders import Encoder, load_encoder


@pytest.fixture(scope="session")
def tiny(tiny_weights: Path) -> Encoder:
    return load_encoder("test_resnet", weights=tiny_weights)


@pytest.fixture(autouse=True)
def small_tensors(one_torch_thread: None) -> None:
    """All tests of this room, on one thread."""
