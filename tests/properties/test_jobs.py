"""No interleaving of plan changes, begin, crash and finish loses a job, repeats a finished one, or serves stale content."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from unchoke.core import atomic
from unchoke.jobs.job_plan import Job, plan_jobs
from unchoke.jobs.queue import JobQueue
from unchoke.jobs.records import JobResult

FINGERPRINT = "1a2b3c4d"
PATTERN = "e/img_{first:06d}-{last:06d}.txt"
IDS = st.sampled_from([f"item,{number}" for number in range(12)])


def plan(items: dict[str, str], previous: list[Job], *, job_size: int = 3) -> list[Job]:
    ids, contents = list(items), list(items.values())
    return plan_jobs(ids, contents, fingerprint=FINGERPRINT, output_pattern=PATTERN, previous=previous, job_size=job_size)


@given(
    st.lists(st.dictionaries(st.text(max_size=3), st.sampled_from("xyz"), max_size=12), min_size=1, max_size=6), st.integers(1, 5)
)
def test_every_wanted_item_has_one_place(history: list[dict[str, str]], job_size: int) -> None:
    jobs: list[Job] = []
    for items in history:
        before, jobs = jobs, plan(items, jobs, job_size=job_size)
        members = [item for job in jobs for item in job.items]
        assert len(members) == len(set(members))
        assert set(items) <= set(members)
        assert [(job.job_id, job.first, job.last, job.output) for job in jobs[: len(before)]] == [
            (job.job_id, job.first, job.last, job.output) for job in before
        ]
        spans = [range(job.first, job.last + 1) for job in jobs]
        assert [ordinal for span in spans for ordinal in span] == list(range(sum(len(span) for span in spans)))
        held = {item: content for job in jobs for item, content in zip(job.items, job.contents, strict=True)}
        assert all(held[item] == content for item, content in items.items())


@given(st.dictionaries(st.text(max_size=3), st.text(max_size=2)), st.dictionaries(st.text(max_size=3), st.text(max_size=2)))
def test_adding_items_never_changes_an_old_job(old: dict[str, str], new: dict[str, str]) -> None:
    before = plan(old, [])
    assert plan(new | old, before)[: len(before)] == before


class _Killed(BaseException):
    """Stands for SIGKILL: nobody catches it."""


class QueueUnderFire(RuleBasedStateMachine):
    """A driver that may be killed between any two of its steps, against a model that knows what every artefact should hold."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.items: dict[str, str] = {}
        self.queue = JobQueue.load(self.folder)
        self.in_flight: Job | None = None
        self.written = False
        self.finished: dict[str, str] = {}

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def _replan(self) -> None:
        ids, contents = list(self.items), list(self.items.values())
        self.queue.plan(ids, contents, fingerprint=FINGERPRINT, output_pattern=PATTERN, job_size=3)

    @precondition(lambda self: self.in_flight is None)
    @rule(changes=st.dictionaries(IDS, st.sampled_from("xyz"), max_size=6), gone=st.sets(IDS, max_size=2))
    def data_changes(self, changes: dict[str, str], gone: set[str]) -> None:
        self.items = {item: content for item, content in (self.items | changes).items() if item not in gone}
        self._replan()

    @precondition(lambda self: self.in_flight is None)
    @rule(data=st.data())
    def a_job_is_begun(self, data: st.DataObject) -> None:
        pending = self.queue.state(FINGERPRINT).pending
        if pending:
            self.in_flight = data.draw(st.sampled_from(pending))
            self.queue.begin(self.in_flight)
            self.finished.pop(self.in_flight.job_id, None)

    @precondition(lambda self: self.in_flight is not None and not self.written)
    @rule()
    def its_artefact_is_written(self) -> None:
        assert self.in_flight is not None
        text = repr(list(zip(self.in_flight.items, self.in_flight.contents, strict=True)))
        atomic.write_text(self.queue.artefact(self.in_flight), text)
        self.written = True

    @precondition(lambda self: self.written)
    @rule()
    def it_is_finished(self) -> None:
        assert self.in_flight is not None
        self.queue.finish(self.in_flight, JobResult(num_items=len(self.in_flight.items)))
        self.finished[self.in_flight.job_id] = self.in_flight.inputs
        self.in_flight, self.written = None, False

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def it_fails(self) -> None:
        assert self.in_flight is not None
        self.queue.fail(self.in_flight, ValueError("chance"))
        self.in_flight, self.written = None, False

    @rule()
    def the_driver_is_killed(self) -> None:
        self.queue = JobQueue.load(self.folder)
        self.in_flight, self.written = None, False

    @precondition(lambda self: self.in_flight is None)
    @rule(data=st.data(), cut=st.booleans())
    def an_artefact_is_damaged(self, data: st.DataObject, cut: bool) -> None:
        done = [self.queue.job(job_id) for job_id in self.queue.state(FINGERPRINT).done]
        if done:
            job = data.draw(st.sampled_from(done))
            path = self.queue.artefact(job)
            path.write_bytes(path.read_bytes()[:-1] + (b"" if cut else b"#"))
            del self.finished[job.job_id]
            assert job.job_id in [pending.job_id for pending in self.queue.state(FINGERPRINT).pending]

    @invariant()
    def no_item_is_lost_and_what_is_done_is_right(self) -> None:
        state = JobQueue.load(self.folder).state(FINGERPRINT)
        places = {item: job for job in JobQueue.load(self.folder).jobs() for item in job.items}
        pending = {job.job_id for job in state.pending}
        assert not pending & set(state.done)
        for item, content in self.items.items():
            job = places[item]
            assert (job.job_id in pending) != (job.job_id in state.done)
            if job.job_id in state.done:
                assert repr((item, content)) in (self.folder / job.output).read_text()

    @invariant()
    def no_finished_job_is_to_be_done_again(self) -> None:
        queue = JobQueue.load(self.folder)
        expected = {job_id for job_id, inputs in self.finished.items() if queue.job(job_id).inputs == inputs}
        assert set(queue.state(FINGERPRINT).done) == expected

    @precondition(lambda self: self.written)
    @rule(at=st.integers(0, 12), afterwards=st.booleans())
    def it_is_finished_by_a_driver_that_is_killed(self, at: int, afterwards: bool) -> None:
        assert self.in_flight is not None
        job, result = self.in_flight, JobResult(num_items=len(self.in_flight.items))
        self._killed_at(at, lambda: self.queue.finish(job, result), afterwards=afterwards)
        self.the_driver_is_killed()
        if any(self.folder.glob(f"job_{job.job_id}_*.done")):
            self.finished[job.job_id] = job.inputs

    @precondition(lambda self: self.in_flight is None)
    @rule(at=st.integers(0, 12), afterwards=st.booleans())
    def the_driver_is_killed_while_it_plans(self, at: int, afterwards: bool) -> None:
        self._killed_at(at, self._replan, afterwards=afterwards)
        self.the_driver_is_killed()

    def _killed_at(self, at: int, act: Callable[[], object], *, afterwards: bool) -> None:
        """Do it until the file system is asked to rename or remove something for the `at`th time."""
        left = [at]

        def lethal(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **options: Any) -> Any:
                left[0] -= 1
                if left[0] < 0 and not (afterwards and left[0] == -1):
                    raise _Killed
                found = real(*args, **options)
                if left[0] < 0:
                    raise _Killed
                return found

            return call

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "replace", lethal(Path.replace))
            patch.setattr(Path, "unlink", lethal(Path.unlink))
            with suppress(_Killed):
                act()
        atomic.sweep_temporaries(self.folder)


TestQueueUnderFire = QueueUnderFire.TestCase
TestQueueUnderFire.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
