"""Tensors are counted while they live, and views of them are not."""

from __future__ import annotations

import torch

from unchoke.machine.memory.live_tensors import LiveTensors, tensor_bytes

KB = 1000


def test_the_peak_is_what_lives_at_once() -> None:
    with LiveTensors() as tensors:
        first = torch.zeros(KB, dtype=torch.uint8)
        second = first + 1
        del first
        third = second.view(10, 100) + 1
        del second
        kept = third[:2]
    assert (tensors.peak_bytes, tensors.held_bytes) == (2 * KB, KB)
    assert tensors.largest_bytes == 2 * KB
    assert tensor_bytes([kept]) == KB // 5


def test_tensors_kept_for_backward_count_until_then() -> None:
    weight = torch.ones(KB // 4, requires_grad=True)
    with LiveTensors() as tensors:
        loss = (weight * 2).exp().sum()
        assert tensors.held_bytes >= KB
        loss.backward()
        del loss
    assert tensors.held_bytes == KB  # the gradient
    assert tensors.peak_bytes >= 2 * KB
