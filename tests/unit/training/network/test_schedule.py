from __future__ import annotations

import itertools
import math

import pytest

from unchoke.training.network.schedule import lr_factor


def test_the_warm_up_is_a_line_that_moves_in_the_first_step_and_would_reach_the_full_rate_after_the_last():
    factors = [lr_factor(step, num_steps=100, warmup_steps=9) for step in range(10)]
    assert factors == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])


def test_after_the_warm_up_the_rate_falls_along_half_a_cosine():
    factors = [lr_factor(step, num_steps=100, warmup_steps=20) for step in range(20, 100)]
    assert factors[0] == 1.0
    assert factors[40] == pytest.approx(0.5)
    assert factors == [pytest.approx(0.5 * (1 + math.cos(math.pi * place / 80))) for place in range(80)]
    assert all(earlier > later > 0 for earlier, later in itertools.pairwise(factors))


def test_the_last_step_hardly_moves_but_does():
    assert 0 < lr_factor(999, num_steps=1000, warmup_steps=10) < 1e-5


def test_beyond_the_end_nothing_moves():
    assert lr_factor(100, num_steps=100, warmup_steps=0) == 0.0
    assert lr_factor(10_000, num_steps=100, warmup_steps=0) == 0.0


@pytest.mark.parametrize("warmup_steps", [0, 1, 5, 10, 30])
def test_every_step_of_any_plan_has_a_rate_between_nothing_and_the_full_one(warmup_steps):
    factors = [lr_factor(step, num_steps=10, warmup_steps=warmup_steps) for step in range(10)]
    assert all(0 < factor <= 1 for factor in factors)


def test_a_single_step_is_taken_at_the_full_rate():
    assert lr_factor(0, num_steps=1, warmup_steps=0) == 1.0


def test_the_rate_depends_on_the_step_alone_not_on_the_steps_before():
    forward = [lr_factor(step, num_steps=30, warmup_steps=5) for step in range(30)]
    backward = [lr_factor(step, num_steps=30, warmup_steps=5) for step in reversed(range(30))]
    assert forward == backward[::-1]
