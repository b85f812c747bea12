"""The table that recorded steps are fed by: everything in which the steps of an epoch differ."""

from __future__ import annotations

import numpy as np
import pytest

from unchoke.core.mixing import hash_ids
from unchoke.pixels.augment_batch import SPECS, plan_batch
from unchoke.training.network.sources import DrawnSource, Draws
from unchoke.training.network.step_graph import plan_table

IDS = [f"photo {number}" for number in range(12)]
RATES = np.array([[1e-3, 3e-4], [2e-3, 6e-4]])


class Drawing:
    """What is asked of a source of augmented pictures before anything is shown."""

    sample_shape, sample_bytes = (1,), 1
    read = prepare = shown = None

    def draws(self, positions: np.ndarray, epoch: int | None) -> Draws:
        return np.asarray(plan_batch(SPECS["strong"], hash_ids(IDS)[positions], seed=5, epoch=epoch or 0).values)


@pytest.mark.parametrize("mixed", [False, True])
def test_epoch_draws_equal_batch_draws(mixed: bool) -> None:
    source: DrawnSource = Drawing()  # type: ignore[assignment]
    fed = [np.array([3, 7, 1, 0]), np.array([11, 2, 5, 4])]
    kept = [np.linspace(0.1, 0.4, 3, dtype=np.float32), np.linspace(0.5, 0.8, 3, dtype=np.float32)] if mixed else [None, None]
    size = 4 - mixed
    table = plan_table(source, fed, kept, epoch=2, rates=RATES, shares=[0.5, 0.25], batch_size=size, mixes=mixed)
    assert np.array_equal(table.numbers[:, :4], np.stack(fed))
    for row, positions, shares, rates, share in zip(table.values, fed, kept, RATES, (0.5, 0.25), strict=True):
        drawn = plan_batch(SPECS["strong"], hash_ids(IDS)[positions], seed=5, epoch=2).values
        parts = [np.ravel(drawn), *([] if shares is None else [shares]), np.ones(size), rates, [share, 1 / size]]
        assert np.array_equal(row, np.concatenate(parts).astype(np.float32))


def test_last_batch_padded_without_counting() -> None:
    source: DrawnSource = Drawing()  # type: ignore[assignment]
    fed, kept = [np.array([3, 7, 1, 0]), np.array([11, 2, 11])], [np.full(3, 0.3, np.float32), np.full(2, 0.6, np.float32)]
    table = plan_table(source, fed, kept, epoch=2, rates=RATES, shares=[0.5, 0.25], batch_size=3, mixes=True)
    assert table.numbers[1, :4].tolist() == [11, 2, 11, 11]
    assert (
        table.values[:, -10:].tolist()
        == np.float32(
            [
                [0.3, 0.3, 0.3, 1, 1, 1, 1e-3, 3e-4, 0.5, 1 / 3],
                [0.6, 0.6, 1.0, 1, 1, 0, 2e-3, 6e-4, 0.25, 1 / 2],
            ]
        ).tolist()
    )
