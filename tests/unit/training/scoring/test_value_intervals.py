from __future__ import annotations

import numpy as np
import pytest

from unchoke.training.scoring.intervals import fewest_samples, half_widths, value_intervals


def test_the_width_is_the_error_that_so_many_do_not_exceed():
    outputs, targets = np.zeros((9, 1)), np.arange(1, 10)[:, None]
    assert half_widths(outputs, targets, level=0.9).tolist() == [9]
    assert half_widths(outputs, targets, level=0.5).tolist() == [5]
    assert half_widths(outputs[:8], targets[:8], level=0.9) is None
    assert [fewest_samples(level) for level in (0.5, 0.8, 0.9, 0.95)] == [1, 4, 9, 19]


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_new_values_lie_within_as_often_as_asked_for(level):
    generator = np.random.default_rng(0)
    held = []
    for _ in range(300):
        errors = generator.standard_t(3, size=(40, 1))
        width = half_widths(errors[:20], np.zeros((20, 1)), level=level)
        held.append((np.abs(errors[20:]) <= width).mean())
    assert level - 0.02 < np.mean(held) < level + 0.06


def test_the_coverage_on_test_is_recorded_with_its_interval():
    generator = np.random.default_rng(1)
    val, test = (generator.normal(size=(count, 2)) * [1, 10] for count in (50, 80))
    record = value_intervals(("x", "y"), (val, np.zeros_like(val)), (test, np.zeros_like(test)))
    assert (record.level, record.num_val, record.num_test) == (0.9, 50, 80)
    assert 5 < record.half_widths["y"] / record.half_widths["x"] < 20
    assert 0.75 < record.coverage["x"].low < record.coverage["x"].value <= record.coverage["x"].high
    assert value_intervals(("x", "y"), None, (test, test)) is None
    assert value_intervals(("x", "y"), (val, val), None).coverage == {}
