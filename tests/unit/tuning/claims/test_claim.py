"""What an interval says of a reported range, and the small arithmetic around it."""

from __future__ import annotations

import math

import pytest

from unchoke.tuning.claims.claim import about, judge, possible_gain, spell_s

RANGE = (1.20, 1.40)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.25, 1.30, "as reported"),
        (1.10, 1.22, "as reported"),
        (1.35, 2.00, "as reported"),
        (1.05, 1.15, "less"),
        (0.95, 1.05, "less"),
        (1.50, 1.60, "more"),
        (0.80, 0.97, "opposite"),
        (0.80, 0.99, "less"),
        (0.90, 1.30, "unclear"),
        (0.0, math.inf, "unclear"),
    ],
)
def test_verdict_follows_from_the_interval(low: float, high: float, verdict: str) -> None:
    assert judge(RANGE, low=low, high=high) == verdict


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(1.01, 1.2, "as reported"), (0.97, 1.2, "less"), (5.0, 9.0, "as reported"), (0.7, 0.9, "opposite")],
)
def test_gain_without_a_figure_is_any_certain_gain(low: float, high: float, verdict: str) -> None:
    assert judge((1.0, None), low=low, high=high) == verdict


def test_single_figure_counts_within_a_quarter() -> None:
    assert about(1.4) == pytest.approx((1.3, 1.5))
    assert about(7.0) == pytest.approx((5.5, 8.5))


def test_faster_part_gains_no_more_than_its_share() -> None:
    assert possible_gain(0.5, 2.0) == pytest.approx(4 / 3)
    assert possible_gain(0.3, math.inf) == pytest.approx(1 / 0.7)
    assert possible_gain(0.0, 50.0) == 1.0


def test_seconds_have_three_digits_and_a_unit() -> None:
    assert [spell_s(seconds) for seconds in (1.234, 0.0123, 6.21e-6)] == ["1.23 s", "12.3 ms", "6.21 µs"]
