"""A part alone: warmed up, run for as long as it may take and no longer, and the device waited for before the clock is read."""

from __future__ import annotations

import pytest

from unchoke.core.clock import during
from unchoke.machine.measure_rate import LEAST_S, LoneReader, allowed_s, measure_rate, measure_readers


class Work:
    """Each run takes so many seconds of a clock of its own, the first takes longer; the device is done when it is waited for."""

    def __init__(self, each_s: float, first_s: float = 0.0) -> None:
        self.each_s, self.first_s, self.now_s, self.pending_s, self.calls = each_s, first_s, 0.0, 0.0, 0

    def run(self) -> int:
        self.calls += 1
        self.pending_s += self.each_s + (self.first_s if self.calls == 1 else 0.0)
        return 32

    def synchronize(self) -> None:
        self.now_s, self.pending_s = self.now_s + self.pending_s, 0.0

    def rate(self, limit_s: float) -> float:
        return measure_rate(self.run, limit_s=limit_s, synchronize=self.synchronize, now=lambda: self.now_s)


def test_the_first_run_does_not_count() -> None:
    work = Work(0.01, first_s=0.1)
    assert work.rate(0.5) == pytest.approx(3_200)
    assert work.now_s < 0.5


def test_quick_work_is_repeated_but_not_for_ever() -> None:
    work = Work(1e-6)
    assert work.rate(0.3) == pytest.approx(32e6)
    assert work.calls == 65


def test_long_first_run_is_the_measurement() -> None:
    work = Work(2.0)
    assert work.rate(0.3) == pytest.approx(16)
    assert work.calls == 1


def test_short_stages_are_not_measured() -> None:
    assert allowed_s(LEAST_S / 2) == 0.0
    assert allowed_s(LEAST_S) == 0.2
    assert allowed_s(100.0) == pytest.approx(1.0)


def test_one_reader_alone_keeps_account_of_what_it_read() -> None:
    asked: list[int] = []

    def read(item: int) -> str:
        asked.append(item)
        with during("decode"):
            return "broken" if item == 1 else "sound"

    reader = LoneReader(read, [0, 1, 2], count=lambda found: int(found == "sound"))
    assert [reader() for _ in range(5)] == [1, 0, 1, 1, 0]
    assert asked == [0, 1, 2, 0, 1]
    assert (list(reader.found), reader.seconds().keys()) == (["sound"] * 3, {"decode"})


def test_reading_stage_is_compared_with_its_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unchoke.machine.measure_rate.usable_cores", lambda: 4)
    found = measure_readers(lambda _: True, ["a", "b"], num_items=100, wall_s=10.0, readers=16)
    assert found is not None
    assert [(part.part, part.lanes) for part in found.parts] == [("reading", 4)], "no more than there are cores"
    assert measure_readers(lambda _: True, ["a"], num_items=100, wall_s=0.1, readers=16) is None
    assert measure_readers(lambda _: False, ["a"], num_items=100, wall_s=10.0, readers=16) is None
