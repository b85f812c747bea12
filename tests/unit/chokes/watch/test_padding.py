"""How much of a batch of texts is padding that no row needs."""

from __future__ import annotations

import pytest
import torch

from unchoke.chokes.watch.loading import _padded_share


@pytest.mark.parametrize(
    ("texts", "share"),
    [
        ([[5, 7, 9, 0, 0, 0, 0, 0] * 2] * 2 + [[5, 7, 8, 0, 0, 0, 0, 0] * 2] * 2, 5 / 16),
        ([[number % 7 + row for number in range(16)] for row in range(4)], 0.0),
        ([[0] * 12 + [row + 1, 2, 3, 4] for row in range(4)], 12 / 16),
        ([[1] * 16] * 4, None),
        ([[1, 2, 3]] * 4, None),
    ],
)
def test_columns_that_hold_padding_in_every_row_are_counted(texts: list[list[int]], share: float | None) -> None:
    assert _padded_share([torch.tensor(texts), torch.rand(4, 3)]) == share
