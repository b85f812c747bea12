"""Counting that would cost too much is thinned out, and still adds up."""

from __future__ import annotations

import types
from typing import Any

from unchoke.chokes.watch.ration import Ration
from unchoke.chokes.watch.recorder import Recorder


def counting(ration: Ration, counted: list[int]) -> types.ModuleType:
    owner = types.ModuleType("owner")

    def plain() -> None:
        return None

    def count() -> None:
        ration.counted += 1
        counted.append(ration.times)

    count.__wrapped__ = plain  # type: ignore[attr-defined]
    owner.work = count  # type: ignore[attr-defined]
    ration.switch(owner, "work")
    return owner


def fetch(ration: Ration, owner: Any, calls: int) -> None:
    ration.begin()
    for _ in range(calls):
        owner.work()
    ration.end()


def test_few_calls_are_all_counted() -> None:
    counted: list[int] = []
    ration = Ration(Recorder())
    owner = counting(ration, counted)
    for _ in range(50):
        fetch(ration, owner, 20)
    assert counted == [1] * 1000


def test_many_calls_are_counted_in_some_fetches_that_stand_for_the_others() -> None:
    counted: list[int] = []
    recorder = Recorder()
    ration = Ration(recorder)
    owner = counting(ration, counted)
    for _ in range(400):
        fetch(ration, owner, 1500)
    assert len(counted) < 400 * 1500 / 4
    assert abs(sum(counted) - 400 * 1500) < 0.1 * 400 * 1500
    assert recorder.num_let_pass == sum(counted) - len(counted)
    assert hasattr(owner.work, "__wrapped__")


def test_calls_outside_of_fetches_always_count_one_by_one() -> None:
    counted: list[int] = []
    ration = Ration(Recorder())
    owner = counting(ration, counted)
    for _ in range(4):
        fetch(ration, owner, 1500)
    counted.clear()
    owner.work()
    assert counted == [1]
