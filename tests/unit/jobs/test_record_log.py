"""Logs of records: when `.done` files become one, what still counts afterwards, and what is said of damage."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from unchoke.jobs.job_plan import Job
from unchoke.jobs.queue import JobQueue, QueueState
from unchoke.jobs.record_log import load_log
from unchoke.jobs.records import JobResult

FINGERPRINT = "1a2b3c4d5e6f"
ITEMS = {name: name for name in "abcdefgh"}


def plan(queue: JobQueue, items: dict[str, str] = ITEMS) -> QueueState:
    return queue.plan(list(items.items()), fingerprint=FINGERPRINT, output_pattern="e/{first:06d}.npz", job_size=2)


def do(queue: JobQueue, job: Job, *, failed: tuple[tuple[str, str], ...] = ()) -> None:
    queue.begin(job)
    artefact = queue.artefact(job)
    artefact.parent.mkdir(parents=True, exist_ok=True)
    artefact.write_text(f"{list(job.items)} {list(job.contents)} {failed}")
    queue.finish(job, JobResult(num_items=len(job.items), failed_items=failed), {"encoder": "x"})


@pytest.fixture
def queue(tmp_path: Path) -> JobQueue:
    """Four jobs, all done, their records in one log."""
    queue = JobQueue.load(tmp_path / "features", log_from=4)
    for job in plan(queue).pending:
        do(queue, job)
    return queue


def reopened(queue: JobQueue) -> JobQueue:
    return JobQueue.load(queue.folder, log_from=4)


def names(queue: JobQueue) -> list[str]:
    return sorted(file.name for file in queue.folder.glob("job*") if file.name != "jobs_queue.csv")


def test_many_records_become_one_file_and_still_count(queue: JobQueue) -> None:
    assert names(queue) == ["jobs_done_00001.jsonl"]
    state = reopened(queue).state(FINGERPRINT)
    assert (len(state.done), state.pending, state.problems) == (4, [], [])
    assert state.done["1a2b3c4d-00002"].info == {"encoder": "x"}
    assert state == queue.state(FINGERPRINT)


def test_few_records_stay_as_they_are(tmp_path: Path) -> None:
    queue = JobQueue.load(tmp_path, log_from=5)
    for job in plan(queue).pending:
        do(queue, job)
    plan(queue)
    assert len(list(tmp_path.glob("job_*.done"))) == 4
    assert not list(tmp_path.glob("jobs_done_*"))


def test_records_of_an_earlier_version_become_a_log(tmp_path: Path) -> None:
    queue = JobQueue.load(tmp_path)
    for job in plan(queue).pending:
        do(queue, job)
    again = JobQueue.load(tmp_path, log_from=2)
    assert not plan(again).pending
    assert names(again) == ["jobs_done_00001.jsonl", "jobs_done_00002.jsonl"]
    assert not reopened(again).state(FINGERPRINT).pending


def test_asking_for_the_state_writes_nothing(queue: JobQueue) -> None:
    before = {file: file.stat().st_mtime_ns for file in queue.folder.rglob("*")}
    reopened(queue).state(FINGERPRINT)
    assert {file: file.stat().st_mtime_ns for file in queue.folder.rglob("*")} == before


def test_job_begun_again_is_pending(queue: JobQueue) -> None:
    job = queue.jobs()[1]
    queue.begin(job)
    for verify in (True, False):
        assert [one.job_id for one in reopened(queue).state(FINGERPRINT, verify=verify).pending] == [job.job_id]
    do(queue, job)
    assert names(queue) == [f"job_{job.job_id}_{names(queue)[0].split('_')[2]}", "jobs_done_00001.jsonl"]
    assert not reopened(queue).state(FINGERPRINT).pending


def test_record_made_again_replaces_the_earlier_one(queue: JobQueue) -> None:
    for job in queue.jobs():
        do(queue, job, failed=((job.items[0], "truncated"),))
    assert names(queue) == ["jobs_done_00001.jsonl"]
    assert {record.num_failed for record in reopened(queue).state(FINGERPRINT).done.values()} == {1}


def test_damaged_artefact_is_noticed_a_touched_one_reread(queue: JobQueue) -> None:
    first, second = (queue.artefact(job) for job in queue.jobs()[:2])
    first.write_bytes(first.read_bytes()[:-1] + b"#")
    os.utime(second, ns=(1, 1))
    state = plan(reopened(queue))
    assert [job.job_id for job in state.pending] == ["1a2b3c4d-00000"]
    assert queue.jobs()[0].output in state.problems[0]
    stamps = {job_id: one.stamp for job_id, one in load_log(queue.folder, "jobs_done_00001.jsonl").records.items()}
    assert stamps["1a2b3c4d-00001"][0] == 1


def test_an_artefact_changed_behind_an_old_time_is_noticed(queue: JobQueue) -> None:
    artefact = queue.artefact(queue.jobs()[0])
    found = artefact.stat()
    artefact.write_bytes(artefact.read_bytes()[:-1] + b"#")
    os.utime(artefact, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert len(reopened(queue).state(FINGERPRINT).pending) == 1


def test_a_copied_folder_is_read_in_full_once(queue: JobQueue, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(queue.folder, copy)
    first = JobQueue.load(copy, log_from=4)
    assert not plan(first).problems
    artefact = first.artefact(first.jobs()[0])
    stamp = load_log(copy, "jobs_done_00001.jsonl").records["1a2b3c4d-00000"].stamp
    assert stamp == (artefact.stat().st_mtime_ns, artefact.stat().st_ctime_ns)


@pytest.mark.parametrize(
    ("damage", "num_lost"),
    [
        (lambda data: data.replace(b'"num_items": 2', b'"num_items": 3', 1), 1),
        (lambda data: data[: data.rindex(b"\n", 0, -1) + 1], 1),
        (lambda data: data[:-40], 1),
        (lambda data: data[data.index(b"\n") + 1 :], 1),
        (lambda _: b"", 4),
        (lambda data: b"\xff" * len(data), 4),
    ],
    ids=["one figure", "a line lost", "cut off", "no first line", "empty", "nonsense"],
)
def test_damaged_log_is_named_and_its_jobs_redone(queue: JobQueue, damage: object, num_lost: int) -> None:
    log = queue.folder / "jobs_done_00001.jsonl"
    log.write_bytes(damage(log.read_bytes()))  # type: ignore[operator]
    state = plan(reopened(queue))
    assert len(state.pending) == num_lost
    assert len(state.problems) == 1
    assert state.problems[0].startswith("jobs_done_00001.jsonl ")
    again = reopened(queue).state(FINGERPRINT)
    assert (len(again.pending), again.problems) == (num_lost, [])


def test_a_log_that_is_gone_costs_its_jobs_and_nothing_else(queue: JobQueue) -> None:
    (queue.folder / "jobs_done_00001.jsonl").unlink()
    assert len(queue.state(FINGERPRINT).pending) == 4
    assert len(reopened(queue).state(FINGERPRINT).pending) == 4


def test_a_folder_in_the_place_of_a_log_is_named(queue: JobQueue) -> None:
    (queue.folder / "jobs_done_00002.jsonl").mkdir()
    state = plan(reopened(queue))
    assert not state.pending
    assert "jobs_done_00002.jsonl" in state.problems[0]
