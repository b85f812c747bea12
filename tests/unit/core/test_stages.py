"""Rows of a profile to stages, on a clock that only moves when a function says so."""

from __future__ import annotations

import cProfile
from collections.abc import Callable

import pytest

from unchoke.core.stages import OTHER, Marker, StageRow, profile_rows, self_seconds

HERE = "core/test_stages.py"
MARKERS = (Marker("read", HERE, "read_block"), Marker("write", HERE, "write_file"))


class Clock:
    """Seconds that pass by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


CLOCK = Clock()


def spend(seconds: float) -> None:
    CLOCK.now_s += seconds


def checksum(seconds: float) -> None:
    CLOCK.now_s += seconds


def deeper(seconds: float) -> None:
    checksum(seconds)


def read_block() -> None:
    spend(1.0)
    checksum(0.5)


def write_file() -> None:
    CLOCK.now_s += 0.25
    read_block()
    deeper(3.0)
    checksum(0.25)


def work() -> None:
    read_block()
    write_file()
    spend(2.0)


def countdown(rounds: int) -> None:
    CLOCK.now_s += 1.0
    if rounds > 1:
        countdown(rounds - 1)


def write_in_rounds() -> None:
    countdown(3)


def ping(rounds: int) -> None:
    CLOCK.now_s += 1.0
    if rounds:
        pong(rounds - 1)


def pong(rounds: int) -> None:
    CLOCK.now_s += 1.0
    if rounds:
        ping(rounds - 1)


def profiled(body: Callable[[], None]) -> cProfile.Profile:
    profile = cProfile.Profile(CLOCK)
    profile.runcall(body)
    return profile


def rows_of(body: Callable[[], None], markers: tuple[Marker, ...] = MARKERS) -> dict[str, StageRow]:
    return {row.stage: row for row in profile_rows(profiled(body), markers)}


def test_time_belongs_to_the_nearest_marker_above() -> None:
    rows = rows_of(work)
    assert rows["read"].seconds == pytest.approx(1.5 + 1.5)  # also the one that writing calls
    assert rows["write"].seconds == pytest.approx(0.25 + 3.0 + 0.25)
    assert rows[OTHER].seconds == pytest.approx(2.0)


def test_shares_add_up_to_the_whole() -> None:
    rows = rows_of(work).values()
    assert sum(row.share for row in rows) == pytest.approx(1.0)
    assert sum(row.seconds for row in rows) == pytest.approx(8.5)


def test_stages_in_the_order_of_the_markers() -> None:
    markers = (*MARKERS, Marker("mask", HERE, "nobody"))
    rows = profile_rows(profiled(work), markers)
    assert [row.stage for row in rows] == ["read", "write", "mask", OTHER]
    assert rows[2].to_dict() == {"stage": "mask", "seconds": 0.0, "share": 0.0, "calls": 0}


def test_only_counted_functions_make_calls() -> None:
    rows = rows_of(work, (Marker("read", HERE, "read_block"), Marker("read", HERE, "deeper", counted=False)))
    assert rows["read"].calls == 2
    assert rows["read"].seconds == pytest.approx(6.0)


def test_a_function_that_calls_itself_is_counted_once() -> None:
    rows = rows_of(write_in_rounds, (Marker("write", HERE, "write_in_rounds"),))
    assert rows["write"].seconds == pytest.approx(3.0)
    assert rows[OTHER].seconds == pytest.approx(0.0)


def test_mutual_calls_settle_where_they_were_entered() -> None:
    rows = rows_of(lambda: ping(5), (Marker("write", HERE, "<lambda>"),))
    assert rows["write"].share == pytest.approx(1.0, abs=1e-6)


def test_a_marker_of_another_file_does_not_match() -> None:
    rows = rows_of(work, (Marker("read", "elsewhere/test_stages.py", "read_block"),))
    assert rows[OTHER].share == pytest.approx(1.0)


def test_a_profile_in_which_no_time_passed_has_no_shares() -> None:
    assert {row.share for row in profile_rows(profiled(lambda: None), MARKERS)} == {0.0}


def test_self_time_is_found_by_words_of_the_name() -> None:
    assert self_seconds(profiled(work), ("checksum",)) == pytest.approx(0.5 + 0.5 + 3.0 + 0.25)
    assert self_seconds(profiled(work), ("nobody",)) == 0
