"""An engine on an accelerator has weights of its own, and halves what does not fit into its memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch

from errors import refused
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


@contextmanager
def room_for(num: int, network: torch.nn.Module) -> Iterator[None]:
    """Within the block a pass over more than `num` pictures runs out of memory."""

    def lack(_: torch.nn.Module, args: tuple[Any, ...]) -> None:
        if len(args[0]) > num:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    handle = network.register_forward_pre_hook(lack)
    try:
        yield
    finally:
        handle.remove()


def test_batch_that_does_not_fit_is_halved_from_then_on(tiny: Encoder) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (11, *tiny.input_shape), np.uint8)
    told: list[int] = []
    engine = TorchEngine(tiny, device=torch.device("cpu"), batch=8, on_halved=told.append)
    with room_for(3, tiny.module):
        found = engine.encode(pixels)
        again = engine.encode(pixels)
    assert told == [4, 2]
    assert (engine.batch, engine.at_once) == (8, 2)
    small = TorchEngine(tiny, device=torch.device("cpu"), batch=8, at_once=2)
    np.testing.assert_array_equal(found, small.encode(pixels))
    np.testing.assert_array_equal(found, again)


def test_one_picture_that_does_not_fit_is_refused(tiny: Encoder) -> None:
    engine = TorchEngine(tiny, device=torch.device("cpu"), batch=2)
    with room_for(0, tiny.module), refused("out-of-memory", "CUDA out of memory"):
        engine.encode(np.zeros((1, *tiny.input_shape), np.uint8))
