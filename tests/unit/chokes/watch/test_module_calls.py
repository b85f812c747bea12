"""What the calls of a network tell: whether inputs come again."""

from __future__ import annotations

import torch

from unchoke.chokes.watch.module_calls import Repeats


def test_a_first_epoch_does_not_count_against_repetition() -> None:
    samples = torch.rand(64, 3, 8, 8)
    same, augmented = Repeats(), Repeats()
    for _ in range(2):
        for batch in samples.split(16):
            same.add(batch.to(memory_format=torch.channels_last))
            augmented.add(batch + torch.rand_like(batch))
    assert same.to_dict() == {"inputs_seen": 128, "inputs_repeated": 64, "repeated_inputs_share": 1.0}
    assert augmented.to_dict()["repeated_inputs_share"] == 0.0
