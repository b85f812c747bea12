"""Which samples have features on disk, and where: the queue's records read as an index into its shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unchoke.features.feature_store import Placement
from unchoke.jobs.queue import JobQueue
from unchoke.jobs.records import DoneRecord


@dataclass(frozen=True)
class Stored:
    """`present[i]`: whether sample i has a row; `placement` covers those that do; `failed` says why others were set aside."""

    sample_ids: Sequence[str]
    placement: Placement
    present: NDArray[np.bool_]
    failed: dict[str, str]

    def lost(self) -> list[str]:
        """Samples that are neither stored nor set aside with a reason."""
        missing = np.flatnonzero(~self.present).tolist()
        return [self.sample_ids[index] for index in missing if self.sample_ids[index] not in self.failed]


def open_stored(
    queue: JobQueue, fingerprint: str, sample_ids: Sequence[str], *, done: Mapping[str, DoneRecord] | None = None
) -> Stored:
    """Find each sample's row: its job's shard, at its place among the job's items that did not fail."""
    if done is None:
        done = queue.state(fingerprint, verify=False).done
    position = {sample_id: index for index, sample_id in enumerate(sample_ids)}
    shard_of = np.full(len(sample_ids), -1, np.int32)
    row_of = np.zeros(len(sample_ids), np.int32)
    finished = [job for job in queue.jobs(fingerprint) if job.job_id in done]
    failed: dict[str, str] = {}
    for number, job in enumerate(finished):
        reasons = dict(done[job.job_id].failed_items)
        failed.update(reasons)
        for row, item in enumerate(item for item in job.items if item not in reasons):
            if item in position:
                shard_of[position[item]], row_of[position[item]] = number, row
    present = shard_of >= 0
    shards = tuple(queue.artefact(job) for job in finished)
    return Stored(sample_ids, Placement(shards, shard_of[present], row_of[present]), present, failed)
