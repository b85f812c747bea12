from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unchoke.core.mixing import hash_ids, mix, mix_units

IDS = [f"photo {number}" for number in range(500)]


@given(st.lists(st.integers(0, 499), min_size=1, max_size=40), st.integers(), st.integers())
def test_a_samples_number_does_not_depend_on_its_neighbours(chosen: list[int], seed: int, epoch: int) -> None:
    hashes = hash_ids(IDS)
    assert np.array_equal(mix(hashes[chosen], seed, epoch), mix(hashes, seed, epoch)[chosen])
    assert np.array_equal(mix_units(hashes[chosen], seed, epoch), mix_units(hashes, seed, epoch)[chosen])


def test_other_key_other_numbers_same_key_same() -> None:
    hashes = hash_ids(IDS)
    assert np.array_equal(mix(hashes, 1, "order"), mix(hashes, 1, "order"))
    assert not np.intersect1d(mix(hashes, 1, "order"), mix(hashes, 2, "order")).size
    assert len(np.unique(mix(hashes, 1, "order"))) == len(IDS)


def test_units_fill_the_interval_evenly_and_stay_below_one() -> None:
    units = mix_units(hash_ids([str(number) for number in range(20_000)]), "a key")
    assert 0 <= units.min() < 0.001
    assert 0.999 < units.max() < 1
    assert np.abs(np.histogram(units, 10, (0, 1))[0] / 2000 - 1).max() < 0.1
    assert mix_units(np.array([], np.uint64), "a key").shape == (0,)
