"""A driver for tests: plain jobs in a queue, run on a cluster, their artefacts brought home. Run as a script on a node.

`python jobs_on_cluster.py ADDRESS FOLDER --jobs 200 [--seconds 0.2] [--killer ITEM] [--eater ITEM --larder CGROUP]` writes a
line for each thing that happens, and last a JSON object.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

from unchoke.core.errors import UnchokeError
from unchoke.core.events import Event, Note
from unchoke.jobs.cluster.connection import connect
from unchoke.jobs.cluster.file_transfer import SentFile, SharedFolder, marked, put_in_place, writing_for
from unchoke.jobs.cluster.hosts import HostPlan
from unchoke.jobs.cluster.ray_engine import RayEngine
from unchoke.jobs.job_plan import Job
from unchoke.jobs.queue import JobQueue
from unchoke.jobs.records import JobResult
from unchoke.jobs.run_jobs import run_jobs

_shared: SharedFolder | None = None
_seconds = 0.0
_killer = ""
_eater = ""
_larder = ""


def set_up(shared: SharedFolder, seconds: float, killer: str, eater: str, larder: str) -> bool:
    global _shared, _seconds, _killer, _eater, _larder
    _shared, _seconds, _killer, _eater, _larder = shared, seconds, killer, eater, larder
    return shared.is_here()


def eat() -> None:
    """Take memory until the kernel ends this process, as it ends one in a container that holds no more."""
    (Path(_larder) / "cgroup.procs").write_text("0")
    eaten = []
    while len(eaten) < 100:
        eaten.append(b"x" * 50_000_000)


def content_of(job: Job) -> bytes:
    return b"".join(
        hashlib.sha256(f"{item} {content}".encode()).digest() for item, content in zip(job.items, job.contents, strict=True)
    )


def make(job: Job) -> tuple[JobResult, dict[str, SentFile]]:
    assert _shared is not None
    time.sleep(_seconds)
    if _killer and _killer in job.items:
        os.kill(os.getpid(), signal.SIGKILL)
    if _eater and _eater in job.items:
        eat()
    with writing_for(_shared, shares=False) as (folder, files):
        file = folder / job.output
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content_of(job))
    return JobResult(len(job.items), info={"node": socket.gethostname()}), files


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--killer", default="")
    parser.add_argument("--eater", default="")
    parser.add_argument("--larder", default="")
    parser.add_argument("--only", default="", help="the one node to use")
    asked = parser.parse_args()

    def tell(event: Event) -> None:
        if isinstance(event, Note):
            say(event.text)

    queue = JobQueue.load(asked.folder)
    queue.sweep()
    ids, contents = zip(*((f"item{number:05d}", f"content{number}") for number in range(4 * asked.jobs)), strict=True)
    state = queue.plan(ids, contents, fingerprint="f" * 16, output_pattern="out/img_{first:06d}-{last:06d}.bin", job_size=4)
    cluster = connect(asked.address)
    say(f"begun with {len(state.pending)} pending on {len(cluster.nodes())} nodes")
    result: dict[str, object] = {}
    started_s = time.monotonic()
    try:
        with marked(asked.folder) as shared:
            engine = RayEngine(
                cluster,
                plan=lambda node: [HostPlan(1.0, 0.0, asked.slots)] * node.cpus if asked.only in ("", node.name) else [],
                unpack=lambda job, came: _home(asked.folder, job, came),
                on_event=tell,
            )
            done_at: list[float] = []
            summary = run_jobs(
                queue,
                state.pending,
                make,
                engine=engine,
                setup=set_up,
                setup_args=(shared, asked.seconds, asked.killer, asked.eater, asked.larder),
                on_event=tell,
                on_result=lambda _job, _result: done_at.append(time.monotonic()),
            )
        result = {"done": summary.num_done, "failed": summary.failed, "work_s": done_at[-1] - done_at[0] if done_at else 0.0}
    except UnchokeError as error:
        result = {"error": [error.code, error.what, error.why]}
    finally:
        cluster.close()
    say(json.dumps({**result, "seconds": time.monotonic() - started_s}))
    return 0 if "done" in result else 1


def _home(folder: Path, job: Job, came: tuple[JobResult, dict[str, SentFile]]) -> JobResult:
    put_in_place(folder, came[1], artefact=job.output)
    return came[0]


if __name__ == "__main__":
    if __package__ is None:  # the functions that travel must have a name that nodes can import
        import jobs_on_cluster

        sys.exit(jobs_on_cluster.main())
