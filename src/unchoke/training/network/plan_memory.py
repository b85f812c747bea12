"""What fits in memory: settled before a training begins, compared with what was used when it is over.

In: a session and a training as a value. Out: the job with sizes that fit its limit, and figures for the record. Steps are
measured in processes of their own where a limit was given (`--memory`) or where the device is an accelerator; on a CPU without a
limit nothing is planned, and that is said. The plan is kept in `memory.json` of the run and stands when the run goes on, unless
the limit, the device or the versions changed. The effective batch is never touched.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from unchoke import __version__
from unchoke.core import atomic
from unchoke.core.choices import Choice
from unchoke.core.events import Note
from unchoke.core.fingerprint import digest
from unchoke.core.settings import Settings
from unchoke.core.units import format_bytes
from unchoke.machine.backend import empty_cache, held_memory_bytes, is_cpu, torch_device, used_bytes
from unchoke.machine.memory.budget_text import render_outcome, render_parts
from unchoke.machine.memory.memory_plan import MemoryPlan, Room, Wanted
from unchoke.machine.memory.memory_watch import own_bytes, return_unused_memory
from unchoke.machine.memory.search import plan_memory as search_plan
from unchoke.runs.session import Session
from unchoke.training.network.feeding import num_ahead
from unchoke.training.network.finetune import most_evaluated
from unchoke.training.network.memory_trial import AnyTrial
from unchoke.training.network.probing import Limit, Prober, free_limit, given_limit
from unchoke.training.network.stored_pixels import StoredPixels
from unchoke.training.network.training_job import Job, TrainingJob, kept_peak

FILE = "memory.json"
J = TypeVar("J", bound=Job)


@dataclass(frozen=True)
class Planned:
    """A plan for one process of a training, and the limit it is kept to (None: nothing but what there is)."""

    plan: MemoryPlan
    limit_bytes: int | None
    seconds: float = 0.0

    def applied_to(self, job: J) -> J:
        plan = self.plan
        loop = replace(job.loop, sub_batch=plan.sub_batch, eval_batch=plan.eval_batch, grad_ckpt=plan.grad_ckpt)
        return replace(job, loop=loop, limit_bytes=self.limit_bytes)


def plan_memory(session: Session, job: Job, file: Path, *, trial: AnyTrial) -> Planned | None:
    """The plan this run began with, or one made now and written to `file`; None where nothing is planned."""
    started_s = time.monotonic()
    limit = _limit(session, job)
    if limit is None:
        return None
    trial = _share(session, job, trial)
    made_for = _made_for(trial, limit, session.settings)
    kept = _kept(file, made_for, limit, job)
    plan = kept or _search(session, job, trial, limit)
    if kept is None:
        atomic.write_json(file, {"made_for": made_for, "plan": plan.to_dict()})
    _tell(
        session, plan, why=f"as this run began, kept in {file.name}" if kept else "steps were measured, each in its own process"
    )
    return Planned(plan, limit.num_bytes if limit.given else None, time.monotonic() - started_s)


def _tell(session: Session, plan: MemoryPlan, *, why: str) -> None:
    """The plan as a table, and as choices for the record."""
    sizes = {"limit_bytes": plan.limit_bytes, "margin_bytes": plan.margin_bytes, "planned_bytes": plan.planned_bytes}
    session.chose(Choice("memory_plan", format_bytes(plan.planned_bytes), why, {**sizes, "parts": dict(plan.parts)}))
    for choice in plan.choices:
        if choice.name != "batch":
            session.chose(choice)
    session.on_event(Note(render_parts(plan)))


def remember_memory(session: Session, planned: Planned | None, job: Job) -> dict[str, Any]:
    """For the record: planned against measured. What was measured is one process's peak, on its device where it has memory."""
    measured = kept_peak(job.folder)
    kept: dict[str, Any] = {"planned_bytes": None, "measured_bytes": measured, "device": job.device}
    if planned is None:
        return {"memory": kept}
    if measured is not None:
        session.on_event(Note(render_outcome(planned.plan, measured)))
    return {"memory": {**kept, "planned_bytes": planned.plan.planned_bytes, "plan": planned.plan.to_dict()}}


def _limit(session: Session, job: Job) -> Limit | None:
    device, asked = torch_device(job.device), session.settings.memory_bytes
    if asked is None and is_cpu(device):
        reason = "not planned: on a CPU steps are measured beforehand only to keep to a limit, such as --memory 4GB"
        session.chose(Choice("memory", None, reason))
        return None
    limit = free_limit(device) if asked is None else given_limit(device, asked)
    session.chose(limit.choice)
    return _shared(session, limit, num=_num_sharing(session, job))


def _num_sharing(session: Session, job: Job) -> int:
    """Processes that train side by side in the same memory; cards have one each."""
    return _num_processes(session) if is_cpu(torch_device(job.device)) else 1


def _num_processes(session: Session) -> int:
    return max(session.settings.devices, session.part.ranks.world if session.part else 1)


def _shared(session: Session, limit: Limit, *, num: int) -> Limit:
    """The limit of one process among `num`; those we start have this one waiting beside them, whose memory counts too."""
    if num == 1:
        return limit
    waiting = own_bytes() if session.settings.devices > 1 else 0
    each = max(1, (limit.num_bytes - waiting) // num)
    beside = f", less {format_bytes(waiting)} of the process that waits for them" if waiting else ""
    reason = f"{format_bytes(limit.num_bytes)} shared by {num} processes{beside}"
    session.chose(Choice("memory_of_each", format_bytes(each), reason, {"limit_bytes": each}))
    return replace(limit, num_bytes=each)


def _share(session: Session, job: Job, trial: AnyTrial) -> AnyTrial:
    """What a process of this training does: its share of each batch, with its share of the threads."""
    num = _num_processes(session)
    share, threads = math.ceil(job.loop.batch_size / num), max(1, job.loop.threads // _num_sharing(session, job))
    return replace(trial, loop=replace(job.loop, batch_size=share, sub_batch=share, threads=threads))


def _made_for(trial: AnyTrial, limit: Limit, settings: Settings) -> dict[str, Any]:
    """What a plan holds for. What happens to be free is not part of it: a plan is kept as long as it fits."""
    return {
        "limit_bytes": limit.num_bytes if limit.given else None,
        "device": trial.device,
        "trial": digest(repr(trial)),
        "wanted": [settings.sub_batch, settings.eval_batch, settings.grad_ckpt],
        "versions": {"unchoke": __version__, **{name: version(name) for name in ("torch", "timm")}},
    }


def _kept(file: Path, made_for: dict[str, Any], limit: Limit, job: Job) -> MemoryPlan | None:
    """The plan in `file`, if it still holds. Where batch statistics are trained, results depend on it, so it always does."""
    if not file.exists():
        return None
    kept = json.loads(file.read_text(encoding="utf-8"))
    plan = MemoryPlan.from_dict(kept["plan"])
    holds = kept["made_for"] == made_for and plan.planned_bytes <= limit.num_bytes
    return plan if holds or job.loop.batch_norm == "train" else None


def _search(session: Session, job: Job, trial: AnyTrial, limit: Limit) -> MemoryPlan:
    settings, device = session.settings, torch_device(job.device)
    return_unused_memory()
    empty_cache(device)
    judged = max(len(job.problem.positions(split)) for split in ("val", "test"))
    most = most_evaluated(math.ceil(judged / _num_processes(session)))
    wanted = Wanted(trial.loop.batch_size, settings.sub_batch, settings.eval_batch, settings.grad_ckpt, most)
    prober = Prober(replace(trial, others_bytes=used_bytes(device)), limit=limit, on_event=session.on_event)
    can = trial.can_checkpoint()
    room = _room(session, job, prober, limit, checkpointed=can and bool(wanted.grad_ckpt))
    num_train = len(job.problem.positions("train"))
    plan = search_plan(prober, room, wanted, num_samples=num_train, can_checkpoint=can, with_evaluation=judged > 0)
    prober.finish()
    return plan


def _room(session: Session, job: Job, prober: Prober, limit: Limit, *, checkpointed: bool) -> Room:
    """The limit, less what this run holds and a probe does not. The first probe tells what a bare process takes."""
    device = torch_device(job.device)
    if not is_cpu(device):
        return Room(limit.num_bytes, beside_bytes=held_memory_bytes(device) or 0)
    cache_bytes, cached_already = _cache_bytes(job, started_by_us=session.settings.devices > 1)
    room = Room(limit.num_bytes, cache_bytes=cache_bytes)
    if session.settings.devices > 1:
        return room
    (first,) = prober("train_ckpt" if checkpointed else "train", [1])
    bare_bytes = first.measured.parts["baseline"] if first.measured else 0
    return replace(room, beside_bytes=max(0, own_bytes() - cached_already - bare_bytes)) if bare_bytes else room


def _cache_bytes(job: Job, *, started_by_us: bool) -> tuple[int, int]:
    """Decoded pictures and batches read ahead, in ordinary memory; and how much of it this process holds already."""
    source = job.source if isinstance(job, TrainingJob) else None
    pictures = source.ram_bytes if isinstance(source, StoredPixels) else 0
    filled = pictures if isinstance(source, StoredPixels) and source.filled is not None and not started_by_us else 0
    batch_bytes = job.sample_bytes * job.loop.batch_size
    return pictures + (num_ahead(batch_bytes, job.workers) + 1) * batch_bytes, filled
