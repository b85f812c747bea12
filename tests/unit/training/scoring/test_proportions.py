from __future__ import annotations

import numpy as np
import pytest

from unchoke.training.scoring.intervals import difference_limits, effective_sizes, mean_limits, student_quantile, wilson


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
