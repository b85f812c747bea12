from __future__ import annotations

import numpy as np
import pytest

from unchoke.training.scoring.intervals import (
    difference_limits,
    effective_sizes,
    fewest_samples,
    half_widths,
    mean_limits,
    student_quantile,
    value_intervals,
    wilson,
)


@pytest.mark.parametrize(("hits", "total"), [(14, 14), (0, 9), (7, 30), (199, 200)])
def test_wilsons_interval_is_scipys(hits, total):
    from scipy import stats

    expected = stats.binomtest(hits, total).proportion_ci(method="wilson")
    assert [float(limit) for limit in wilson(hits / total, total)] == pytest.approx([expected.low, expected.high], abs=1e-9)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 13, 50, 1000])
def test_the_quantile_of_t_is_scipys(freedom):
    from scipy import stats

    assert student_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=2e-3)


def test_the_mean_of_one_share_has_its_own_limits():
    shares = np.array([0.9])
    low, high = wilson(shares, [20])
    assert mean_limits(shares, low, high) == pytest.approx((float(low[0]), float(high[0])))


def test_samples_that_stand_alone_are_worth_themselves():
    assert effective_sizes(np.array([1, 0, 1]), np.ones(3)) == 3


def test_effective_samples_of_copies_is_one():
    generator = np.random.default_rng(0)
    hits = (generator.random(200) < 0.8).astype(float)
    copied = effective_sizes(hits * 6, np.full(200, 6.0))
    independent = effective_sizes(generator.binomial(6, 0.8, size=200), np.full(200, 6.0))
    assert 180 < copied < 205
    assert 900 < independent <= 1200


def test_where_all_were_hits_a_group_counts_once():
    assert 6 < effective_sizes(np.full(10, 5.0), np.full(10, 5.0)) <= 10


def test_pair_difference_uncertain_even_if_all_agree():
    low, high = difference_limits(0, 0, 14)
    assert low == -high
    assert 0.1 < high < 0.3
    covered = 0
    generator = np.random.default_rng(0)
    for _ in range(300):
        better, worse, _same = generator.multinomial(40, [0.25, 0.1, 0.65])
        low, high = difference_limits(better, worse, 40)
        covered += low <= 0.15 <= high
    assert covered >= 276


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
