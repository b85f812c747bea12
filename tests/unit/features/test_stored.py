"""The queue's records as an index: every sample's row is found, every loss is noticed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from unchoke.features.feature_store import FeatureStore, save_shard
from unchoke.features.stored import open_stored
from unchoke.jobs.queue import JobQueue
from unchoke.jobs.records import JobResult

PRINT = "abcdef0123456789"
PATTERN = "encoder_x/img_{first:06d}-{last:06d}.npz"
IDS = [f"s{number}" for number in range(10)]


def value_of(sample_id: str) -> float:
    return float(sample_id[1:])


@pytest.fixture
def queue(tmp_path: Path) -> JobQueue:
    """Ten samples in jobs of four; s5 failed, and the last job was never done."""
    queue = JobQueue.load(tmp_path)
    state = queue.plan([(name, "c") for name in IDS], fingerprint=PRINT, output_pattern=PATTERN, job_size=4)
    for job in state.pending[:2]:
        kept = [name for name in job.items if name != "s5"]
        rows = np.array([[value_of(name)] * 3 for name in kept], np.float16)
        sha256, size = save_shard(queue.artefact(job), {"global_pool": rows}, kept)
        failed = tuple((name, "truncated: ends early") for name in job.items if name == "s5")
        queue.finish(job, JobResult(len(job.items), failed, sha256, size, {}))
    return queue


def test_rows_are_found_in_the_order_asked_for(queue: JobQueue) -> None:
    wanted = ["s7", "s0", "s6", "s3"]
    stored = open_stored(queue, PRINT, wanted)
    assert stored.present.all()
    rows = FeatureStore(stored.placement, dim=3).rows(np.arange(4))
    assert rows[:, 0].tolist() == [value_of(name) for name in wanted]


def test_failed_and_lost_samples_are_told_apart(queue: JobQueue) -> None:
    stored = open_stored(queue, PRINT, IDS)
    assert stored.failed == {"s5": "truncated: ends early"}
    assert stored.lost() == ["s8", "s9"]
    assert stored.present.tolist() == [True] * 5 + [False] + [True] * 2 + [False] * 2
    store = FeatureStore(stored.placement, dim=3)
    assert store.num_samples == 7
    assert store.rows(np.arange(7))[:, 1].tolist() == [0, 1, 2, 3, 4, 6, 7]


def test_another_fingerprint_has_nothing(queue: JobQueue) -> None:
    stored = open_stored(queue, "0" * 16, IDS)
    assert not stored.present.any()
    assert stored.lost() == IDS


def test_a_shard_of_another_size_does_not_count(queue: JobQueue) -> None:
    job = queue.jobs(PRINT)[0]
    queue.artefact(job).write_bytes(queue.artefact(job).read_bytes()[:-1])
    assert open_stored(queue, PRINT, IDS).lost() == ["s0", "s1", "s2", "s3", "s8", "s9"]
