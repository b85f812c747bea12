"""Clocks: exclusive stages that add up, in one thread; and an account of what several threads read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from unchoke.core.clock import Clock, Loading, StageTimers, during, sum_tallies


class Ticks:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds


def test_nested_stage_takes_its_time_from_the_outer() -> None:
    ticks = Ticks()
    clock = Clock(now=ticks)
    ticks.pass_s(1)
    with clock.stage("prepare"):
        ticks.pass_s(2)
        with clock.stage("copy"):
            ticks.pass_s(4)
        ticks.pass_s(8)
    ticks.pass_s(16)
    assert clock.tally() == {"prepare": (10, 1), "copy": (4, 1), "other": (17, 0)}
    assert sum(seconds for seconds, _ in clock.tally().values()) == clock.wall_s == 31


def test_a_stage_that_fails_is_left_and_counted() -> None:
    ticks = Ticks()
    clock = Clock(now=ticks)
    with pytest.raises(ValueError, match="no"), clock.stage("forward"), clock.stage("copy"):
        ticks.pass_s(3)
        raise ValueError("no")
    ticks.pass_s(5)
    assert clock.tally() == {"forward": (0, 1), "copy": (3, 1), "other": (5, 0)}


def test_waiting_is_counted_and_generators_are_closed() -> None:
    ticks = Ticks()
    clock, closed = Clock(now=ticks), list[bool]()

    def items() -> Iterator[int]:
        try:
            for number in range(3):
                ticks.pass_s(2)
                yield number
        finally:
            closed.append(True)

    for _ in clock.each("wait", items()):
        ticks.pass_s(5)
    assert clock.tally() == {"wait": (6, 4), "other": (15, 0)}
    assert clock.share("wait") == pytest.approx(6 / 21)
    begun = clock.each("wait", items())
    next(begun)
    begun.close()
    assert closed == [True, True]


def test_laps_hold_what_came_since_the_one_before() -> None:
    ticks = Ticks()
    clock = Clock(["wait"], now=ticks)
    for seconds in (1, 4):
        with clock.stage("forward"):
            ticks.pass_s(seconds)
        assert clock.lap() == {"wait": 0, "forward": seconds, "other": 0}


def test_a_mark_is_entered_and_left_with_each_stage() -> None:
    heard: list[str] = []

    @contextmanager
    def mark(name: str) -> Iterator[None]:
        heard.append(f"{name} begins")
        yield
        heard.append(f"{name} ends")

    clock = Clock(mark=mark)
    with clock.stage("prepare"), clock.stage("copy"):
        pass
    assert heard == ["prepare begins", "copy begins", "copy ends", "prepare ends"]


def test_reader_threads_count_for_their_account() -> None:
    loading, other = Loading(), Loading()
    together = threading.Barrier(3)

    def read() -> None:
        with loading.here():
            together.wait()
            for _ in range(50):
                with during("decode"), during("open"):
                    pass

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with loading.here(), other.here(), during("read"):
        pass
    loading.add_all({"hand over": (0.25, 1)})
    calls = {name: calls for name, (_, calls) in loading.tally().items()}
    assert calls == {"decode": 150, "open": 150, "hand over": 1}
    assert loading.tally()["hand over"][0] == 0.25
    assert set(other.tally()) == {"read"}
    assert (loading.num_threads, other.num_threads) == (3, 1)


def test_where_nobody_keeps_account_nothing_is_counted() -> None:
    with during("decode"):
        pass
    assert Loading().tally() == {}
    assert sum_tallies([{"read": (1.0, 2)}, {"open": (0.5, 1), "read": (1.0, 1)}]) == {"read": (2.0, 3), "open": (0.5, 1)}


def ticks(*times: float) -> StageTimers:
    moments: Iterator[float] = iter(times)
    return StageTimers(clock=lambda: next(moments))


def test_an_outer_stage_includes_the_inner_one() -> None:
    timers = ticks(0, 1, 4, 6)
    with timers.stage("fit"), timers.stage("train"):
        pass
    assert timers.seconds == {"train": 3, "fit": 6}
