from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from unchoke.core.ahead import map_ahead


def slow_first(number: int) -> int:
    time.sleep(0.03 if number == 0 else 0)
    return number * 10


@pytest.mark.parametrize("threads", [0, 1, 4])
def test_results_come_in_the_order_of_the_items(threads: int) -> None:
    assert list(map_ahead(slow_first, range(20), threads=threads, ahead=8)) == [number * 10 for number in range(20)]


@pytest.mark.parametrize("threads", [0, 2])
def test_an_exception_appears_at_its_place(threads: int) -> None:
    results = map_ahead(lambda number: 10 // number, [1, 2, 0, 5], threads=threads, ahead=4)
    assert [next(results), next(results)] == [10, 5]
    with pytest.raises(ZeroDivisionError):
        next(results)


def broken() -> Iterator[int]:
    yield 1
    yield 2
    raise OSError("the list broke off")


@pytest.mark.parametrize("threads", [0, 2])
def test_failing_source_is_heard_after_earlier_results(threads: int) -> None:
    results = map_ahead(str, broken(), threads=threads, ahead=5)
    assert [next(results), next(results)] == ["1", "2"]
    with pytest.raises(OSError, match="broke off"):
        next(results)


def test_stopping_early_cancels_and_leaves_no_thread() -> None:
    before, begun = threading.active_count(), []
    results = map_ahead(lambda number: (begun.append(number), time.sleep(0.01)), range(1000), threads=2, ahead=50)
    next(results)
    results.close()
    count = len(begun)
    time.sleep(0.05)
    assert count == len(begun) < 20
    assert threading.active_count() == before


def test_nothing_is_taken_before_the_first_result() -> None:
    taken = iter(range(3))
    map_ahead(slow_first, taken, threads=2, ahead=2)
    assert next(taken) == 0
