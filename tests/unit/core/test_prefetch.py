"""What was begun early is handed over once, its errors with it, and nothing of it is left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from unchoke.core.prefetch import Prefetch, Steps


def steps(*names: str) -> Steps[str]:
    yield from names
    return "loaded"


def test_the_result_is_handed_over_once() -> None:
    with Prefetch(steps("one", "two")) as start:
        assert start.take() == "loaded"
        assert start.take() is None
        assert start.is_over


def test_seconds_by_step_belong_to_no_wall_clock() -> None:
    with Prefetch(steps("one", "two")) as start:
        start.take()
    timeline = start.timeline()
    assert [row.stage for row in timeline.loading] == ["one", "two"]
    assert (timeline.wall_s, timeline.stages) == (0.0, ())


def test_error_of_a_step_reaches_who_takes_the_result() -> None:
    def failing() -> Steps[str]:
        yield "one"
        raise LookupError("no such network")

    with Prefetch(failing()) as start, pytest.raises(LookupError, match="no such network"):
        start.take()


def test_an_error_nobody_asks_for_stops_nobody() -> None:
    def failing() -> Steps[str]:
        yield "one"
        raise LookupError("no such network")

    with Prefetch(failing()):
        pass


def test_leaving_early_ends_it_after_the_step_it_is_in() -> None:
    entered, allowed, seen = threading.Event(), threading.Event(), []

    def long() -> Iterator[str]:
        entered.set()
        allowed.wait()
        yield "one"
        seen.append("two")
        yield "two"

    with pytest.raises(LookupError), Prefetch(long()) as start:  # type: ignore[arg-type, var-annotated]
        entered.wait()
        threading.Timer(0.05, allowed.set).start()
        raise LookupError
    assert start.is_over
    assert seen == []


def test_an_interrupt_does_not_wait_for_the_step_it_is_in() -> None:
    entered, allowed, seen = threading.Event(), threading.Event(), []

    def long() -> Iterator[str]:
        entered.set()
        allowed.wait()
        yield "one"
        seen.append("two")
        yield "two"

    with pytest.raises(KeyboardInterrupt), Prefetch(long()) as start:  # type: ignore[arg-type]
        entered.wait()
        raise KeyboardInterrupt
    assert not start.is_over, "it was waited for"
    allowed.set()
    start.wait()
    assert seen == [], "it went on after the step it was in"
