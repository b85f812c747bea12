"""The progress meter, by a clock of our own."""

from __future__ import annotations

from unchoke.core.events import Event, Progress
from unchoke.jobs.job_progress import ProgressMeter


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def meter_of(clock: Clock, events: list[Event], *, num_jobs: int = 1000) -> ProgressMeter:
    return ProgressMeter(events.append, stage="s", unit="u", num_jobs=num_jobs, num_items=num_jobs * 10, clock=clock)


def last(events: list[Event]) -> Progress:
    assert isinstance(events[-1], Progress)
    return events[-1]


def test_the_rate_follows_the_recent_past() -> None:
    clock, events = Clock(), list[Event]()
    meter = meter_of(clock, events)
    for _ in range(50):
        clock.now_s += 1.0
        meter.count(10)
    assert last(events).rate_per_s == 10.0
    for _ in range(120):
        clock.now_s += 0.25
        meter.count(10)
    assert last(events).rate_per_s == 40.0
    assert last(events).left_s == (10_000 - 1_700) / 40.0


def test_it_speaks_a_few_times_a_second_and_always_at_the_end() -> None:
    clock, events = Clock(), list[Event]()
    meter = meter_of(clock, events)
    for _ in range(1000):
        clock.now_s += 0.001
        meter.count(10)
    assert 5 <= len(events) <= 7
    assert last(events).done == last(events).total == 10_000


def test_failures_are_added_up() -> None:
    clock, events = Clock(), list[Event]()
    meter = meter_of(clock, events, num_jobs=2)
    meter.count(10, failed=1)
    clock.now_s += 1
    meter.count(10, failed=10)
    assert last(events).failed == 11


def test_whoever_runs_the_jobs_may_tell_more() -> None:
    events: list[Event] = []
    meter = ProgressMeter(events.append, stage="s", unit="u", num_jobs=1, num_items=5, extra=lambda: {"loading_share": 0.25})
    meter.count(5)
    assert last(events).extra == {"jobs_done": 1, "jobs_total": 1, "loading_share": 0.25}
