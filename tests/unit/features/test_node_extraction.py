"""What the driver sends to nodes, and what it makes of their answers. Real nodes are in tests/cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from unchoke.core.fingerprint import digest_bytes
from unchoke.features.node_extraction import ExtractionCourier
from unchoke.jobs.attempts import TaskFailed
from unchoke.jobs.cluster.node_work import NodeReady
from unchoke.jobs.job_plan import Job, plan_jobs
from unchoke.jobs.records import JobResult

READS = NodeReady("lab2", "lab2-1", reads=True, writes=True)


def planned(tmp_path: Path) -> tuple[Job, dict[str, str]]:
    paths = {name: str(tmp_path / name) for name in ("a.jpg", "b.jpg")}
    for name, path in paths.items():
        Path(path).write_bytes(f"content of {name}".encode())
    contents = [digest_bytes(Path(path).read_bytes()) for path in paths.values()]
    (job,) = plan_jobs(list(paths), contents, fingerprint="f" * 16, output_pattern="{first}-{last}.npz", previous=[])
    return job, paths


def test_photo_only_the_driver_sees_is_sent_next(tmp_path: Path) -> None:
    job, paths = planned(tmp_path)
    courier = ExtractionCourier(tmp_path, lambda *_: "", paths)
    assert courier.pack(job, READS).task.inputs == paths
    came = JobResult(2, (("b.jpg", "missing: the file is gone"),), info={"node": "lab2"})
    with pytest.raises(TaskFailed, match=r"lab2 cannot read b\.jpg"):
        courier.unpack(job, (came, {}))
    assert courier.pack(job, READS).task.inputs == {"a.jpg": b"content of a.jpg", "b.jpg": b"content of b.jpg"}
    assert courier.unpack(job, (came, {})) == came  # sent, and still not to be read: then it is so


def test_a_photo_that_is_gone_here_too_is_gone(tmp_path: Path) -> None:
    job, paths = planned(tmp_path)
    Path(paths["b.jpg"]).unlink()
    came = JobResult(2, (("b.jpg", "missing: the file is gone"),), info={"node": "lab2"})
    assert ExtractionCourier(tmp_path, lambda *_: "", paths).unpack(job, (came, {})) == came


def test_a_photo_that_does_not_decode_is_not_sent_again(tmp_path: Path) -> None:
    job, paths = planned(tmp_path)
    came = JobResult(2, (("b.jpg", "truncated: it ends early"),), info={"node": "lab2"})
    assert ExtractionCourier(tmp_path, lambda *_: "", paths).unpack(job, (came, {})) == came
