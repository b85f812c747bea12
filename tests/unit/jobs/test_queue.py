"""The queue: what counts as done, what makes a job pending again, and what is said about it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from errors import refused
from unchoke.core.fingerprint import digest_file
from unchoke.jobs.job_plan import Job, plan_jobs
from unchoke.jobs.queue import JobQueue, QueueState
from unchoke.jobs.records import JobResult

FINGERPRINT = "1a2b3c4d5e6f"
ITEMS = {"a": "1", "b": "2", "c": "3", "d": "4"}


def plan(queue: JobQueue, items: dict[str, str], *, fingerprint: str = FINGERPRINT) -> QueueState:
    pattern = f"e-{fingerprint[:8]}/img_{{first:06d}}-{{last:06d}}.npz"
    return queue.plan(list(items), list(items.values()), fingerprint=fingerprint, output_pattern=pattern, job_size=2)


def do(queue: JobQueue, job: Job) -> None:
    artefact = queue.artefact(job)
    artefact.parent.mkdir(parents=True, exist_ok=True)
    artefact.write_text(f"{job.items} {job.contents}")
    queue.begin(job)
    queue.finish(job, JobResult(num_items=len(job.items)), {"encoder": "x"}, seconds=0.5)


@pytest.fixture
def queue(tmp_path: Path) -> JobQueue:
    """Two jobs, both done."""
    queue = JobQueue.load(tmp_path / "features")
    for job in plan(queue, ITEMS).pending:
        do(queue, job)
    return queue


def pending(queue: JobQueue, *, verify: bool = True) -> list[str]:
    return [job.job_id for job in JobQueue.load(queue.folder).state(FINGERPRINT, verify=verify).pending]


def records(queue: JobQueue, kind: str) -> list[Path]:
    return sorted(queue.folder.glob(f"job_*.{kind}"))


def test_everything_is_done_after_every_job_was_finished(queue: JobQueue) -> None:
    state = JobQueue.load(queue.folder).state(FINGERPRINT)
    assert not state.pending
    assert list(state.done) == ["1a2b3c4d-00000", "1a2b3c4d-00001"]
    assert not state.problems


def test_the_done_record_says_what_a_person_wants_to_know(queue: JobQueue) -> None:
    record = json.loads(records(queue, "done")[0].read_text())
    artefact = queue.folder / record["output"]
    assert record["sha256"] == digest_file(artefact)
    assert record["size_bytes"] == artefact.stat().st_size
    assert (record["num_items"], record["num_failed"], record["seconds"], record["attempts"]) == (2, 0, 0.5, 1)
    assert record["info"] == {"encoder": "x"}
    assert records(queue, "done")[0].name.startswith("job_1a2b3c4d-00000_2")
    assert record["finished_at"].endswith("+00:00")


def test_one_changed_item_makes_one_job_pending(queue: JobQueue) -> None:
    state = plan(queue, ITEMS | {"c": "changed"})
    assert [job.items for job in state.pending] == [("c", "d")]
    assert pending(queue) == ["1a2b3c4d-00001"]
    do(queue, state.pending[0])
    assert pending(queue) == []
    assert len(records(queue, "done")) == 2


def test_content_that_changes_back_costs_nothing(queue: JobQueue) -> None:
    plan(queue, ITEMS | {"c": "changed"})
    assert not plan(queue, ITEMS).pending


def test_job_begun_anew_is_pending_though_content_is_back(queue: JobQueue) -> None:
    job = plan(queue, ITEMS | {"c": "changed"}).pending[0]
    queue.begin(job)
    size = queue.artefact(job).stat().st_size
    queue.artefact(job).write_bytes(b"x" * size)
    plan(queue, ITEMS)
    assert pending(queue, verify=False) == [job.job_id]


def test_added_items_leave_finished_jobs_alone(queue: JobQueue) -> None:
    assert [job.items for job in plan(queue, {"new": "9"} | ITEMS).pending] == [("new",)]


def test_vanished_items_leave_nothing_to_do(queue: JobQueue) -> None:
    assert not plan(queue, {"a": "1"}).pending


def test_job_without_members_is_not_run(tmp_path: Path) -> None:
    queue = JobQueue.load(tmp_path)
    plan(queue, ITEMS)
    assert not plan(queue, {}).pending
    assert not queue.state(FINGERPRINT).pending
    assert len(queue.jobs()) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:]),
        lambda path: path.unlink(),
    ],
    ids=["truncated", "one bit", "gone"],
)
def test_a_damaged_artefact_is_noticed_and_said(queue: JobQueue, damage: object) -> None:
    job = queue.jobs()[0]
    damage(queue.artefact(job))  # type: ignore[operator]
    state = queue.state(FINGERPRINT)
    assert [job.job_id for job in state.pending] == [job.job_id]
    assert len(state.problems) == 1
    assert job.output in state.problems[0]
    assert plan(queue, ITEMS).problems == state.problems


def test_an_unreadable_record_is_said_and_its_job_redone(queue: JobQueue) -> None:
    file = records(queue, "done")[0]
    file.write_text("{")
    state = queue.state(FINGERPRINT)
    assert len(state.pending) == 1
    assert file.name in state.problems[0]


def test_failures_are_counted_and_vanish_with_success(queue: JobQueue) -> None:
    job = plan(queue, ITEMS | {"c": "changed"}).pending[0]
    assert [queue.fail(job, ValueError("odd <name>")), queue.fail(job, ValueError("again"))] == [1, 2]
    assert JobQueue.load(queue.folder).state(FINGERPRINT).failed == {job.job_id: 2}
    first = json.loads(records(queue, "failed")[0].read_text())
    assert (first["error_type"], first["message"], first["attempt"]) == ("ValueError", "odd <name>", 1)
    do(queue, job)
    assert not records(queue, "failed")
    assert queue.state(FINGERPRINT).done[job.job_id].attempts == 3


def test_failed_items_are_kept_in_the_record(queue: JobQueue) -> None:
    job = queue.jobs()[0]
    queue.finish(job, JobResult(num_items=1, failed_items=(("\udcff,b", "truncated"),)))
    record = JobQueue.load(queue.folder).state(FINGERPRINT).done[job.job_id]
    assert record.failed_items == (("\udcff,b", "truncated"),)
    assert record.num_failed == 1


def test_two_fingerprints_share_one_queue(queue: JobQueue) -> None:
    other = "ffffffff0000"
    for job in plan(queue, ITEMS, fingerprint=other).pending:
        do(queue, job)
    loaded = JobQueue.load(queue.folder)
    assert len(loaded.jobs()) == 4
    assert len(loaded.state(other).done) == len(loaded.state(FINGERPRINT).done) == 2


def test_two_fingerprints_that_begin_alike_are_refused(queue: JobQueue) -> None:
    with refused("fingerprint-collision", FINGERPRINT):
        plan(queue, ITEMS, fingerprint=FINGERPRINT[:8] + "other")


def test_a_copied_folder_works(queue: JobQueue, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(queue.folder, copy)
    shutil.rmtree(queue.folder)
    assert not JobQueue.load(copy).state(FINGERPRINT).pending
    assert not any(str(tmp_path) in path.read_text() for path in copy.glob("job*"))


def test_sweeping_removes_what_a_kill_left_and_nothing_else(queue: JobQueue) -> None:
    strays = [queue.folder / ".unchoke-1.tmp", queue.artefact(queue.jobs()[0]).parent / ".unchoke-2.tmp"]
    for stray in strays:
        stray.touch()
    assert queue.sweep() == 2
    assert not any(stray.exists() for stray in strays)
    assert pending(queue) == []


def test_no_job_ever_leaves_the_plan(queue: JobQueue) -> None:
    queue.save_plan([])
    queue.save_plan(plan_jobs(["z"], ["1"], fingerprint="99999999", output_pattern="z/{first}", previous=[]))
    assert len(JobQueue.load(queue.folder).jobs()) == 3


def test_an_unknown_job_is_answered_with_those_there_are(queue: JobQueue) -> None:
    assert queue.job("1a2b3c4d-00001").items == ("c", "d")
    with refused("no-such-job") as caught:
        queue.job("nope")
    assert "1a2b3c4d-00000" in caught.value.why


def test_changed_record_is_told_and_its_job_redone(queue: JobQueue) -> None:
    file = records(queue, "done")[0]
    file.write_text(file.read_text().replace('"num_failed": 0', '"num_failed": 1'))
    state = JobQueue.load(queue.folder).state(FINGERPRINT)
    assert len(state.pending) == 1
    assert file.name in state.problems[0]


def test_a_record_from_before_there_were_seals_counts(queue: JobQueue) -> None:
    for file in records(queue, "done"):
        plain = json.loads(file.read_text())
        del plain["seal"]
        file.write_text(json.dumps(plain))
    assert pending(queue) == []


def test_damaged_plan_is_refused_with_the_way_on(queue: JobQueue) -> None:
    queue.file.write_bytes(queue.file.read_bytes().replace(b"0", b"1", 1))
    with refused("damaged-file", "jobs_queue.csv") as caught:
        JobQueue.load(queue.folder)
    assert caught.value.try_.startswith("delete jobs_queue.csv")
    queue.file.unlink()
    assert plan(JobQueue.load(queue.folder), ITEMS).pending == []


def test_among_many_jobs_only_touched_artefacts_are_read_again(queue: JobQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unchoke.jobs.queue.TRUST_FROM", 2)
    read: list[Path] = []
    monkeypatch.setattr("unchoke.jobs.queue.digest_file", lambda file: read.append(file) or digest_file(file))
    assert not pending(queue)
    assert not read
    touched, damaged = (queue.artefact(job) for job in queue.jobs())
    found = damaged.stat()
    os.utime(touched)
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"#")
    os.utime(damaged, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert pending(queue) == ["1a2b3c4d-00001"]
    assert read == [touched, damaged]
