"""Do the jobs that are pending: any order, retries, a failure budget, progress, and a clean stop on request.

A queue, jobs and a body come in; records in the queue and a `RunSummary` go out. What a body does is its own business: it
writes the job's artefact atomically and hands back a `JobResult`.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from unchoke.core.errors import DataError, Interrupted, MachineError, UnchokeError, UsageError, list_some
from unchoke.core.events import Note, OnEvent, Progress, ignore
from unchoke.core.units import format_count
from unchoke.jobs.attempts import Outcome
from unchoke.jobs.job_engines import JobEngine
from unchoke.jobs.job_plan import Job
from unchoke.jobs.queue import JobQueue
from unchoke.jobs.records import JobResult
from unchoke.jobs.signals import StopRequests, stop_requests

OnResult = Callable[[Job, JobResult], None]
_TELL_EVERY_S = 0.2
_WINDOW_S = 20.0


@dataclass
class RunSummary:
    """What one call did. `failed` maps the jobs given up to the last reason."""

    num_jobs: int
    num_done: int = 0
    num_items: int = 0
    num_failed_items: int = 0
    seconds: float = 0.0
    failed: dict[str, str] = field(default_factory=dict)


def run_jobs(
    queue: JobQueue,
    jobs: Sequence[Job],
    body: Callable[[Job], JobResult],
    *,
    engine: JobEngine,
    info: Mapping[str, Any] | None = None,
    max_attempts: int = 3,
    max_failed_jobs: int | None = None,
    on_event: OnEvent = ignore,
    stage: str = "extract",
    unit: str = "items",
    on_result: OnResult | None = None,
    setup: Callable[..., None] | None = None,
    setup_args: tuple[Any, ...] = (),
    jobs_before: int = 0,
    items_before: int = 0,
    extra: Callable[[], Mapping[str, Any]] = dict,
) -> RunSummary:
    """Run `body` on every job and record how each went.

    A job that fails goes to the end, up to `max_attempts` times; when more than `max_failed_jobs` are given up, a `DataError`
    stops the run. `MachineError`, such as a full disk, stops it at once. On the first Ctrl-C or SIGTERM the jobs in flight
    finish and `Interrupted` is raised; on the second nothing is waited for. `on_result` is called after the record is in place.
    `jobs_before` and `items_before` were done earlier and count in the progress, which carries `extra` too.
    """
    meter = ProgressMeter(
        on_event,
        stage=stage,
        unit=unit,
        num_jobs=len(jobs),
        num_items=sum(len(job.items) for job in jobs),
        jobs_before=jobs_before,
        items_before=items_before,
        extra=extra,
    )
    summary, waiting, attempts, started = RunSummary(len(jobs)), list(jobs), Counter[str](), time.perf_counter()
    stop_error: UnchokeError | None = None

    def begin_waiting(requests: StopRequests) -> Iterator[Job]:
        """Hand out the jobs that wait now, each as it is begun, until someone asks to stop."""
        now = waiting[:]
        waiting.clear()
        for job in now:
            if requests.requested:
                return
            queue.begin(job)
            yield job

    def enter(outcome: Outcome[Job, JobResult]) -> UnchokeError | None:
        """Record how one attempt went; an error where the run must stop."""
        job, result, error = outcome.task, outcome.value, outcome.error
        if error is None and result is not None:
            queue.finish(job, result, info or {}, seconds=outcome.seconds)
            summary.num_done += 1
            summary.num_items += result.num_items
            summary.num_failed_items += len(result.failed_items)
            meter.count(len(job.items), failed=len(result.failed_items))
            if on_result is not None:
                on_result(job, result)
            return None
        if isinstance(error, MachineError | UsageError | Interrupted):  # another try would give the same
            return error
        error = error or TypeError("the job's body returned nothing instead of a JobResult")
        queue.fail(job, error, traceback_text=outcome.traceback_text)
        reason = f"{type(error).__name__}: {error}"
        attempts[job.job_id] += 1
        if attempts[job.job_id] < max_attempts:
            on_event(Note(f"job {job.job_id} failed and will be tried again: {reason}", level="warning"))
            waiting.append(job)
            return None
        summary.failed[job.job_id] = reason
        on_event(Note(f"job {job.job_id} was given up after {format_count(max_attempts, 'attempt')}: {reason}", level="warning"))
        meter.count(len(job.items), failed=len(job.items))
        if max_failed_jobs is None or len(summary.failed) <= max_failed_jobs:
            return None
        reasons = list_some([f"{job_id}: {reason}" for job_id, reason in summary.failed.items()], limit=3)
        return DataError(
            f"{format_count(len(summary.failed), 'job')} failed: {reasons}",
            code="jobs-failed",
            why=f"at most {max_failed_jobs} may fail; .failed files beside jobs_queue.csv hold their tracebacks",
            try_="remove the cause and run the same command again: only jobs that are not done are run",
        )

    try:
        with stop_requests(lambda: on_event(_STOPPING)) as requests:
            while waiting and not requests.requested and stop_error is None:  # every waiting job once in each round
                tasks = begin_waiting(requests)
                with closing(engine.map_unordered(body, tasks, setup=setup, setup_args=setup_args)) as outcomes:
                    try:
                        for outcome in outcomes:
                            found = enter(outcome)
                            stop_error = stop_error or found
                            if stop_error is not None:
                                engine.stop()
                    except KeyboardInterrupt:
                        engine.stop(now=True)
                        raise
    except KeyboardInterrupt:
        raise _interrupted(summary) from None
    if stop_error is not None:
        raise stop_error
    if requests.requested:
        raise _interrupted(summary)
    summary.seconds = time.perf_counter() - started
    return summary


_STOPPING = Note("stopping: the jobs in flight are being finished; press Ctrl-C again to stop at once", level="warning")


def _interrupted(summary: RunSummary) -> Interrupted:
    return Interrupted(
        f"stopped on request after {summary.num_done} of {format_count(summary.num_jobs, 'job')}",
        code="interrupted",
        why="Ctrl-C or SIGTERM asked for it; every finished job is kept",
        try_="run the same command again: it goes on from here",
    )


class ProgressMeter:
    """Counts jobs and items. The rate is that of the last 20 seconds, so it follows what the machine does now."""

    def __init__(
        self,
        on_event: OnEvent,
        *,
        stage: str,
        unit: str,
        num_jobs: int,
        num_items: int,
        jobs_before: int = 0,
        items_before: int = 0,
        extra: Callable[[], Mapping[str, Any]] = dict,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_event, self._stage, self._unit, self._extra, self._clock = on_event, stage, unit, extra, clock
        self._jobs_done, self._jobs_total = jobs_before, jobs_before + num_jobs
        self._items_done, self._items_total = items_before, items_before + num_items
        self._failed = 0
        self._recent: deque[tuple[float, int]] = deque([(clock(), 0)])
        self._told_at = float("-inf")

    def count(self, num_items: int, *, failed: int = 0) -> None:
        """One more job is over, with so many items, of which some failed."""
        now = self._clock()
        self._jobs_done += 1
        self._items_done += num_items
        self._failed += failed
        self._recent.append((now, num_items))
        while len(self._recent) > 2 and now - self._recent[0][0] > _WINDOW_S:
            self._recent.popleft()
        if now - self._told_at < _TELL_EVERY_S and self._jobs_done < self._jobs_total:
            return
        self._told_at = now
        began, first_items = self._recent[0]  # items counted at the oldest moment remembered came before it
        recent_items = sum(items for _, items in self._recent) - first_items
        rate_per_s = recent_items / (now - began) if recent_items and now > began else None
        left_items = self._items_total - self._items_done
        self._on_event(
            Progress(
                stage=self._stage,
                done=self._items_done,
                total=self._items_total,
                unit=self._unit,
                rate_per_s=rate_per_s,
                left_s=left_items / rate_per_s if rate_per_s else None,
                failed=self._failed,
                extra={"jobs_done": self._jobs_done, "jobs_total": self._jobs_total, **self._extra()},
            )
        )
