"""What runs on a node that takes part in a training: one process of a team, its part of every global batch.

In: the job when the process is set up, then errands: to keep the meeting place, to train, to tell what happened so far. Out:
where the leader's time went. The leader writes checkpoints to the folder that all of them share; nobody writes anything else.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from typing import Any

from unchoke.core.events import Event, ignore
from unchoke.jobs.cluster.hosts import NodeRefused
from unchoke.machine.backend import is_cpu, torch_device
from unchoke.machine.detect import detect_machine
from unchoke.machine.policy import choose_policy
from unchoke.runs.report.json import dump_event
from unchoke.training.network.distributed import MeetingPlace, why_unfit
from unchoke.training.network.parallel import Meeting, joined
from unchoke.training.network.training_job import TrainingJob, run_job

_DRIVER_SILENT_S = 120.0
"""After so long without a question the driver is taken for dead: the training stops, and its state is saved."""


@dataclass(frozen=True)
class Meet:
    """Keep the place where the team meets, at this node's address; the answer is the port."""

    address: str
    world: int


@dataclass(frozen=True)
class TrainTogether:
    """Train as number `rank` of `world`; the answer is the timeline, as a dictionary."""

    rank: int
    world: int
    address: str
    port: int
    threads: int


@dataclass(frozen=True)
class Listen:
    """Hand over what happened since the last time, as lines; and `stop` after the next step, if so."""

    stop: bool


@dataclass
class _TrainingSeat:
    job: TrainingJob
    meeting: Meeting | None = None
    stopping: bool = False
    heard_s: float = field(default_factory=time.monotonic)
    lines: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


_member: _TrainingSeat | None = None


def set_up_member(job: TrainingJob, place: MeetingPlace, on_gpu: bool) -> None:
    """Find out whether this node can take part, and hold the job."""
    global _member
    if why := why_unfit(job, place, writes=True):
        raise NodeRefused(
            "it cannot train this", code="node-cannot-train", why=why, try_="put the workspace on a folder that all nodes share"
        )
    device = choose_policy(detect_machine()).device if on_gpu else "cpu"
    if on_gpu and is_cpu(torch_device(device)):
        raise NodeRefused(
            "no GPU",
            code="node-without-gpu",
            why="the cluster counts one there that torch does not see",
            try_="unchoke doctor there",
        )
    _member = _TrainingSeat(replace(job, device=device))


def run_errand(errand: Meet | TrainTogether | Listen) -> Any:
    """What the driver asks of this process."""
    member = _member
    if member is None:
        raise RuntimeError("set_up_member did not run in this process")
    member.heard_s = time.monotonic()
    if isinstance(errand, Meet):
        member.meeting = Meeting.at(errand.address, 0, rank=0, world=errand.world)
        return member.meeting.port
    if isinstance(errand, Listen):
        member.stopping = member.stopping or errand.stop
        with member.lock:
            lines, member.lines = member.lines, []
        return lines
    return _train(member, errand)


def _train(member: _TrainingSeat, errand: TrainTogether) -> dict[str, Any]:
    where = member.meeting or Meeting.at(errand.address, errand.port, rank=errand.rank, world=errand.world)
    job = replace(member.job, loop=replace(member.job.loop, threads=errand.threads))

    def tell(event: Event) -> None:
        with member.lock:
            member.lines.append(dump_event(event))

    def stop() -> bool:
        silent = errand.rank == 0 and time.monotonic() - member.heard_s > _DRIVER_SILENT_S
        return member.stopping or silent

    with joined(where) as ranks:
        done = run_job(job, on_event=tell if ranks.leads else ignore, stop=stop, ranks=ranks)
    return done.timeline.to_dict()
