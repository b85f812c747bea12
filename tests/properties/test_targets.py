"""Sums of targets, however they refer to each other."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unchoke.data.targets import plan_targets


@st.composite
def declared(draw: st.DrawFn) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Targets of which each may be a sum of earlier ones, shuffled."""
    names = [f"t{number}" for number in range(draw(st.integers(1, 7)))]
    sums = {}
    for number in range(1, len(names)):
        parts = draw(st.lists(st.sampled_from(names[:number]), max_size=3))
        if parts:
            sums[names[number]] = tuple(parts)
    return tuple(draw(st.permutations(names))), sums


@given(declared(), st.integers(0, 1000))
def test_the_matrix_gives_every_sum_of_its_parts(case, seed):
    names, sums = case
    plan = plan_targets(names, sums=sums)
    learned = np.random.default_rng(seed).integers(0, 50, size=(4, len(plan.learned)))
    every = dict(zip(names, (learned @ plan.matrix.numpy()).T, strict=True))
    assert {*plan.learned, *sums} == {*names}
    for number, name in enumerate(plan.learned):
        assert (every[name] == learned[:, number]).all()
    for name, parts in sums.items():
        assert (every[name] == sum(every[part] for part in parts)).all()
