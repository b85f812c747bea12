from __future__ import annotations

from collections.abc import Iterator

import pytest

from unchoke.core.timers import StageTimers


def ticks(*times: float) -> StageTimers:
    moments: Iterator[float] = iter(times)
    return StageTimers(clock=lambda: next(moments))


def test_a_stage_entered_twice_adds_up() -> None:
    timers = ticks(0, 2, 10, 13)
    for _ in range(2):
        with timers.stage("extract"):
            pass
    assert timers.seconds == {"extract": 5}


def test_an_outer_stage_includes_the_inner_one() -> None:
    timers = ticks(0, 1, 4, 6)
    with timers.stage("fit"), timers.stage("train"):
        pass
    assert timers.seconds == {"train": 3, "fit": 6}


def test_a_stage_that_fails_is_counted_all_the_same() -> None:
    timers = ticks(0, 7)
    with pytest.raises(ValueError, match="no"), timers.stage("check"):
        raise ValueError("no")
    assert timers.seconds == {"check": 7}


def test_time_measured_elsewhere_can_be_added() -> None:
    timers = StageTimers()
    timers.add("decode", 1.5)
    timers.add("decode", 0.5)
    assert timers.seconds == {"decode": 2.0}
