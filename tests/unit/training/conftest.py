"""Small problems with a known answer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from unchoke.core.events import Event, ignore
from unchoke.training.data import ArraySource, Problem
from unchoke.training.heads.heads import HeadConfig
from unchoke.training.heads.train_heads import TrainResult, train_heads

Made = tuple[ArraySource, Problem]


def split_positions(count: int) -> dict[str, np.ndarray]:
    order = np.random.default_rng(1).permutation(count)
    return {"train": order[: count * 6 // 10], "val": order[count * 6 // 10 : count * 8 // 10], "test": order[count * 8 // 10 :]}


@pytest.fixture(autouse=True)
def small_tensors(one_torch_thread: None) -> None:
    """All tests of this room, on one thread."""


@pytest.fixture
def mixture() -> Callable[..., Made]:
    """Gaussian classes that a line tells apart, mostly."""

    def make(*, count: int = 300, dim: int = 24, num_classes: int = 3, num_views: int = 1, spread: float = 2.0) -> Made:
        generator = np.random.default_rng(0)
        targets = generator.integers(0, num_classes, size=count)
        centres = generator.normal(size=(num_classes, dim))
        feats = centres[targets][:, None] * 3 + generator.normal(size=(count, num_views, dim)) * spread + 5
        names = tuple(f"class {number}" for number in range(num_classes))
        ids = [f"id-{number}" for number in range(count)]
        return ArraySource(feats), Problem("classification", names, targets, split_positions(count), ids)

    return make


@pytest.fixture
def plane() -> Made:
    """Two targets of very different size that are linear in the features."""
    generator = np.random.default_rng(0)
    feats = generator.normal(size=(400, 10)).astype(np.float16)
    values = feats.astype(np.float32) @ generator.normal(size=(10, 2)) * [1.0, 1000.0] + [3.0, -5000.0]
    ids = [f"id-{number}" for number in range(400)]
    return ArraySource(feats), Problem("regression", ("small", "large"), values.astype(np.float32), split_positions(400), ids)


@pytest.fixture
def train() -> Callable[..., TrainResult]:
    """`train_heads` on the CPU, quiet unless told otherwise."""

    def run(
        made: Made, configs: list[HeadConfig], *, on_event: Callable[[Event], None] = ignore, **options: object
    ) -> TrainResult:
        return train_heads(*made, configs, device=torch.device("cpu"), on_event=on_event, **options)

    return run
