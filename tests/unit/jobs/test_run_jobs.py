"""Running jobs: retries, the failure budget, progress, and stopping on request."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from errors import refused
from unchoke.core import atomic
from unchoke.core.errors import MachineError
from unchoke.core.events import Event, Note, Progress
from unchoke.jobs.job_engines import InProcessEngine
from unchoke.jobs.job_plan import Job
from unchoke.jobs.queue import JobQueue
from unchoke.jobs.records import JobResult
from unchoke.jobs.run_jobs import ProgressMeter, run_jobs

FINGERPRINT = "1a2b3c4d"


@pytest.fixture
def queue(tmp_path: Path) -> JobQueue:
    """Six jobs of two items, none done."""
    queue = JobQueue.load(tmp_path)
    ids = [f"item_{number}" for number in range(12)]
    queue.plan(ids, ["c"] * len(ids), fingerprint=FINGERPRINT, output_pattern="e/{first}-{last}.txt", job_size=2)
    return queue


class Body:
    """Writes a job's artefact, after whatever a test wants to happen first."""

    def __init__(self, queue: JobQueue, before: Callable[[Job, int], None] = lambda job, attempt: None) -> None:
        self.queue, self.before, self.calls = queue, before, Counter[str]()

    def __call__(self, job: Job) -> JobResult:
        self.calls[job.job_id] += 1
        self.before(job, self.calls[job.job_id])
        atomic.write_text(self.queue.artefact(job), repr(job.items))
        return JobResult(num_items=len(job.items))


def pending(queue: JobQueue) -> list[Job]:
    return JobQueue.load(queue.folder).state(FINGERPRINT).pending


def number(job: Job) -> int:
    return int(job.job_id[-5:])


@pytest.mark.parametrize("slots", [1, 3])
def test_every_pending_job_is_done_and_recorded(queue: JobQueue, slots: int) -> None:
    results: list[str] = []
    summary = run_jobs(
        queue,
        queue.jobs(),
        Body(queue),
        engine=InProcessEngine(slots),
        info={"encoder": "x"},
        on_result=lambda job, result: results.append(job.job_id),
    )
    assert (summary.num_done, summary.num_items, summary.failed) == (6, 12, {})
    assert pending(queue) == []
    assert sorted(results) == [job.job_id for job in queue.jobs()]
    assert {record.info["encoder"] for record in queue.state(FINGERPRINT).done.values()} == {"x"}


def test_a_job_that_fails_is_tried_again_after_the_others(queue: JobQueue) -> None:
    order: list[int] = []

    def trouble(job: Job, attempt: int) -> None:
        order.append(number(job))
        if number(job) == 1 and attempt < 3:
            raise ValueError("not yet")

    summary = run_jobs(queue, queue.jobs(), Body(queue, trouble), engine=InProcessEngine())
    assert order == [0, 1, 2, 3, 4, 5, 1, 1]
    assert summary.num_done == 6
    assert queue.state(FINGERPRINT).done["1a2b3c4d-00001"].attempts == 3


def test_job_that_keeps_failing_is_given_up(queue: JobQueue) -> None:
    def trouble(job: Job, attempt: int) -> None:
        if number(job) == 1:
            raise ValueError("never")

    body, events = Body(queue, trouble), list[Event]()
    summary = run_jobs(queue, queue.jobs(), body, engine=InProcessEngine(), on_event=events.append)
    assert summary.failed == {"1a2b3c4d-00001": "ValueError: never"}
    assert body.calls["1a2b3c4d-00001"] == 3
    assert [job.job_id for job in pending(queue)] == ["1a2b3c4d-00001"]
    assert any(isinstance(event, Note) and "3 attempts: ValueError: never" in event.text for event in events)
    assert queue.state(FINGERPRINT).failed == {"1a2b3c4d-00001": 3}


def test_too_many_failures_stop_the_run(queue: JobQueue) -> None:
    def trouble(job: Job, attempt: int) -> None:
        raise ValueError(f"bad {number(job)}")

    body = Body(queue, trouble)
    with refused("jobs-failed", "2 jobs", "bad 0", "bad 1"):
        run_jobs(queue, queue.jobs(), body, engine=InProcessEngine(), max_attempts=1, max_failed_jobs=1)
    assert body.calls.total() == 2


def test_a_full_disk_stops_at_once_and_keeps_what_is_done(queue: JobQueue) -> None:
    def trouble(job: Job, attempt: int) -> None:
        if number(job) == 2:
            raise MachineError("no room left", code="of-a-test", why="the disk is full", try_="free some space")

    body = Body(queue, trouble)
    with refused("of-a-test", "no room left"):
        run_jobs(queue, queue.jobs(), body, engine=InProcessEngine())
    assert body.calls.total() == 3
    assert len(pending(queue)) == 4


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("slots", [1, 2])
def test_a_stop_request_finishes_what_is_in_flight(queue: JobQueue, slots: int, stop: signal.Signals) -> None:
    def trouble(job: Job, attempt: int) -> None:
        if number(job) == 1:
            os.kill(os.getpid(), stop)

    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    body = Body(queue, trouble)
    with refused("interrupted") as caught:
        run_jobs(queue, queue.jobs(), body, engine=InProcessEngine(slots))
    assert len(pending(queue)) == 6 - body.calls.total() > 0
    assert f"{body.calls.total()} of 6 jobs" in caught.value.what
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    run_jobs(queue, pending(queue), body, engine=InProcessEngine(slots))
    assert set(body.calls.values()) == {1}


@pytest.mark.parametrize("slots", [1, 2])
def test_a_second_stop_request_does_not_wait(queue: JobQueue, slots: int) -> None:
    held, told = threading.Event(), threading.Event()

    def listen(event: Event) -> None:
        if isinstance(event, Note):
            told.set()

    def trouble(job: Job, attempt: int) -> None:
        if number(job) == 1:
            os.kill(os.getpid(), signal.SIGINT)
            told.wait(30)
            os.kill(os.getpid(), signal.SIGINT)
            held.wait(30)

    try:
        with refused("interrupted"):
            run_jobs(queue, queue.jobs(), Body(queue, trouble), engine=InProcessEngine(slots), on_event=listen)
        assert "1a2b3c4d-00001" in [job.job_id for job in pending(queue)]
        assert not held.is_set()
    finally:
        held.set()


def test_the_person_is_told_that_a_stop_is_under_way(queue: JobQueue) -> None:
    told = threading.Event()

    def listen(event: Event) -> None:
        if isinstance(event, Note) and "press Ctrl-C again" in event.text:
            told.set()

    def trouble(job: Job, attempt: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with refused("interrupted"):
        run_jobs(queue, queue.jobs(), Body(queue, trouble), engine=InProcessEngine(), on_event=listen)
    assert told.wait(10)


def test_ignored_stop_signal_stays_ignored(queue: JobQueue) -> None:
    def trouble(job: Job, attempt: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert run_jobs(queue, queue.jobs(), Body(queue, trouble), engine=InProcessEngine()).num_done == 6
    finally:
        signal.signal(signal.SIGINT, before)


def test_it_runs_outside_the_main_thread(queue: JobQueue) -> None:
    thread = threading.Thread(target=lambda: run_jobs(queue, queue.jobs(), Body(queue), engine=InProcessEngine()))
    thread.start()
    thread.join()
    assert pending(queue) == []


def test_last_progress_counts_what_was_done_before(queue: JobQueue) -> None:
    events: list[Event] = []
    run_jobs(
        queue,
        queue.jobs()[2:],
        Body(queue),
        engine=InProcessEngine(),
        on_event=events.append,
        stage="tile",
        unit="images",
        jobs_before=2,
        items_before=4,
    )
    last = [event for event in events if isinstance(event, Progress)][-1]
    assert (last.stage, last.done, last.total, last.unit, last.failed) == ("tile", 12, 12, "images", 0)
    assert last.extra == {"jobs_done": 6, "jobs_total": 6}
    assert last.rate_per_s is not None
    assert last.left_s == 0


def test_body_that_returns_nothing_is_a_failure(queue: JobQueue) -> None:
    summary = run_jobs(queue, queue.jobs()[:1], lambda job: None, engine=InProcessEngine(), max_attempts=1)  # type: ignore[arg-type,return-value]
    assert summary.failed["1a2b3c4d-00000"]


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


def test_progress_speaks_seldom_and_at_the_end() -> None:
    clock, events = Clock(), list[Event]()
    meter = meter_of(clock, events)
    for _ in range(1000):
        clock.now_s += 0.001
        meter.count(10)
    assert 5 <= len(events) <= 7
    assert last(events).done == last(events).total == 10_000
