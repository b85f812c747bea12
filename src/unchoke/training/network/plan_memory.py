"""What fits in memory: settled before a training begins, compared with what was used when it is over.

In: a session and a training as a value. Out: the job with sizes that fit its limit, and figures for the record. Where a limit was
given (`--memory`), or where the device is an accelerator, what a step can take at most is counted first
(`estimate_memory.py`); only where that is not far below the limit are steps measured, in processes of their own. On a CPU without
a limit nothing is planned, and that is said. The plan is kept in `memory.json` of the run and stands when the run goes on, unless
the limit, the device or the versions changed. The effective batch is never touched.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from unchoke import __version__
from unchoke.core import checksums
from unchoke.core.choices import Choice
from unchoke.core.events import Note
from unchoke.core.fingerprint import digest
from unchoke.core.settings import Settings
from unchoke.core.units import format_bytes
from unchoke.machine.backend import (
    device_free_bytes,
    empty_cache,
    expected_context_bytes,
    has_own_memory,
    held_memory_bytes,
    is_cpu,
    torch_device,
    used_bytes,
)
from unchoke.machine.detect import usable_cores
from unchoke.machine.memory.budget_text import render_outcome, render_parts
from unchoke.machine.memory.memory_limit import MemoryLimit, free_limit, given_limit
from unchoke.machine.memory.memory_plan import MemoryPlan, MemoryRequest, MemoryRoom, Probes, choose_counted
from unchoke.machine.memory.memory_watch import own_bytes, return_unused_memory
from unchoke.machine.memory.search import Way, first_sizes
from unchoke.machine.memory.search import plan_memory as search_plan
from unchoke.runs.session import Session
from unchoke.training.network.estimate_memory import MemoryEstimate, estimate_memory
from unchoke.training.network.feeding import num_ahead
from unchoke.training.network.finetune import most_evaluated
from unchoke.training.network.memory_trial import MemoryTrial
from unchoke.training.network.prober import Prober
from unchoke.training.network.training_job import TrainingJob, kept_peak

FILE = "memory.json"
_MOST_SIDE_BY_SIDE = 5


@dataclass(frozen=True)
class ProcessPlan:
    """A plan for one process of a training, and the limit it is kept to (None: nothing but what there is)."""

    plan: MemoryPlan
    limit_bytes: int | None
    seconds: float = 0.0

    def applied_to(self, job: TrainingJob) -> TrainingJob:
        plan = self.plan
        loop = replace(job.loop, sub_batch=plan.sub_batch, eval_batch=plan.eval_batch, grad_ckpt=plan.grad_ckpt)
        return replace(job, loop=loop, limit_bytes=self.limit_bytes, planned_bytes=plan.planned_bytes)


def plan_memory(session: Session, job: TrainingJob, file: Path) -> ProcessPlan | None:
    """The plan this run began with, or one made now and written to `file`; None where nothing is planned."""
    started_s = time.monotonic()
    limit = _limit(session, job)
    if limit is None:
        return None
    trial = _share(session, job)
    made_for = _made_for(trial, limit, session.settings)
    kept = _kept(file, made_for, limit, job)
    plan = kept or _search(session, job, trial, limit)
    if kept is None:
        checksums.save_checked_json(file, {"made_for": made_for, "plan": plan.to_dict()})
    _tell(session, plan, why=f"as this run began, kept in {file.name}" if kept else _how_found(plan))
    return ProcessPlan(plan, limit.num_bytes if limit.given else None, time.monotonic() - started_s)


def _how_found(plan: MemoryPlan) -> str:
    if not plan.counted:
        return "steps were measured, each in its own process"
    least, limit = format_bytes(plan.planned_bytes), format_bytes(plan.limit_bytes)
    return f"at most {least} by counting weights, optimizer and activations, far below {limit}: nothing had to be measured"


def _tell(session: Session, plan: MemoryPlan, *, why: str) -> None:
    """The plan as a table, and as choices for the record."""
    sizes = {"limit_bytes": plan.limit_bytes, "margin_bytes": plan.margin_bytes, "planned_bytes": plan.planned_bytes}
    session.chose(Choice("memory_plan", format_bytes(plan.planned_bytes), why, {**sizes, "parts": dict(plan.parts)}))
    for choice in plan.choices:
        if choice.name != "batch":
            session.chose(choice)
    session.on_event(Note(render_parts(plan)))


def remember_memory(session: Session, planned: ProcessPlan | None, job: TrainingJob, *, beside_bytes: int = 0) -> dict[str, Any]:
    """For the record: planned against measured. What was measured is one process's peak, on its device where it has memory.

    `beside_bytes` of what the plan left free were taken on purpose, by rows on the card and a recorded step.
    """
    measured = kept_peak(job.folder)
    kept: dict[str, Any] = {"planned_bytes": None, "measured_bytes": measured, "device": job.device}
    if planned is None:
        return {"memory": kept}
    if measured is not None:
        session.on_event(Note(render_outcome(planned.plan, measured, beside_bytes=beside_bytes)))
    return {"memory": {**kept, "planned_bytes": planned.plan.planned_bytes + beside_bytes, "plan": planned.plan.to_dict()}}


def _limit(session: Session, job: TrainingJob) -> MemoryLimit | None:
    device, asked = torch_device(job.device), session.settings.memory_bytes
    if asked is None and is_cpu(device):
        reason = "not planned: on a CPU steps are measured beforehand only to keep to a limit, such as --memory 4GB"
        session.chose(Choice("memory", None, reason))
        return None
    limit = free_limit(device) if asked is None else given_limit(device, asked)
    session.chose(limit.choice)
    return _shared(session, limit, num=_num_sharing(session, job))


def _num_sharing(session: Session, job: TrainingJob) -> int:
    """Processes that train side by side in the same memory; cards have one each."""
    if not is_cpu(torch_device(job.device)):
        return 1
    return max(session.num_started, session.part.neighbours if session.part else 1)


def _num_processes(session: Session) -> int:
    """Processes that share a batch; on nodes of a cluster, which may be lost, one must be able to take all of it."""
    return max(session.num_started, session.part.world if session.part else 1)


def _shared(session: Session, limit: MemoryLimit, *, num: int) -> MemoryLimit:
    """The limit of one process among `num`; those we start have this one waiting beside them, whose memory counts too."""
    if num == 1:
        return limit
    waiting = own_bytes() if session.num_started > 1 else 0
    each = max(1, (limit.num_bytes - waiting) // num)
    beside = f", less {format_bytes(waiting)} of the process that waits for them" if waiting else ""
    reason = f"{format_bytes(limit.num_bytes)} shared by {num} processes{beside}"
    session.chose(Choice("memory_of_each", format_bytes(each), reason, {"limit_bytes": each}))
    return replace(limit, num_bytes=each)


def _share(session: Session, job: TrainingJob) -> MemoryTrial:
    """What a process of this training does: its share of each batch, with its share of the threads."""
    num = _num_processes(session)
    share, threads = math.ceil(job.loop.batch_size / num), max(1, job.loop.threads // _num_sharing(session, job))
    return replace(MemoryTrial.of(job), loop=replace(job.loop, batch_size=share, sub_batch=share, threads=threads))


def _made_for(trial: MemoryTrial, limit: MemoryLimit, settings: Settings) -> dict[str, Any]:
    """What a plan holds for. What happens to be free is not part of it: a plan is kept as long as it fits."""
    return {
        "limit_bytes": limit.num_bytes if limit.given else None,
        "device": trial.device,
        "trial": digest(repr(trial)),
        "wanted": [settings.sub_batch, settings.eval_batch, settings.grad_ckpt],
        "versions": {"unchoke": __version__, **{name: version(name) for name in ("torch", "timm")}},
    }


def _kept(file: Path, made_for: dict[str, Any], limit: MemoryLimit, job: TrainingJob) -> MemoryPlan | None:
    """The plan in `file`, if it still holds. Where batch statistics are trained, results depend on it, so it always does."""
    if not file.exists():
        return None
    again = f"delete {file}: memory is planned anew"
    with checksums.making_sense(file, try_=again):
        kept = checksums.load_checked_json(file, try_=again)
        plan = MemoryPlan.from_dict(kept["plan"])
    holds = kept["made_for"] == made_for and plan.planned_bytes <= limit.num_bytes
    return plan if holds or job.loop.batch_norm == "train" else None


def _search(session: Session, job: TrainingJob, trial: MemoryTrial, limit: MemoryLimit) -> MemoryPlan:
    return_unused_memory()
    empty_cache(torch_device(job.device))
    inquiry = _PlanSearch.of(session, job, trial, limit)
    estimate = inquiry.count()
    counted = None if estimate is None else inquiry.plan_far(estimate)
    return counted or inquiry.plan_near(estimate)


@dataclass(frozen=True)
class _PlanSearch:
    """What is to be planned, and the two ways to: by counting, and by measuring."""

    session: Session
    job: TrainingJob
    trial: MemoryTrial
    limit: MemoryLimit
    wanted: MemoryRequest
    judged: int

    @classmethod
    def of(cls, session: Session, job: TrainingJob, trial: MemoryTrial, limit: MemoryLimit) -> _PlanSearch:
        settings = session.settings
        judged = max(len(job.problem.positions(split)) for split in ("val", "test"))
        most = most_evaluated(math.ceil(judged / _num_processes(session)))
        wanted = MemoryRequest(trial.loop.batch_size, settings.sub_batch, settings.eval_batch, settings.grad_ckpt, most)
        return cls(session, job, trial, limit, wanted, judged)

    def count(self) -> MemoryEstimate | None:
        """What a step and an evaluation can take at most; None where the network cannot be followed without its numbers."""
        batch = self.trial.loop.batch_size
        eval_batch = self.wanted.eval_batch or self.wanted.max_eval_batch(batch)
        try:
            return estimate_memory(self.trial, batch=batch, eval_batch=eval_batch, base_bytes=self._base_bytes())
        except Exception as error:  # any code of a network may ask for numbers that are not there
            said = (str(error).strip() or type(error).__name__).splitlines()[0]
            self.session.chose(Choice("memory_count", None, f"measured instead of counted: {said}"))
            return None

    def _base_bytes(self) -> int:
        """What a process that trains has before the network: no more than this one holds, or CUDA's context."""
        device = torch_device(self.job.device)
        if not is_cpu(device):
            return expected_context_bytes(device)
        return max(0, own_bytes() - self._cache_bytes()[1])

    def plan_far(self, estimate: MemoryEstimate) -> MemoryPlan | None:
        """The plan that needs no measuring, if the limit is far away."""
        wanted, batch = self.wanted, self.trial.loop.batch_size
        train = tuple(estimate.result("train", size) for size in sorted({min(wanted.sub_batch or batch, batch), batch}))
        shown = sorted({1, estimate.eval_batch}) if self.judged else []
        evaluation = tuple(estimate.result("evaluation", size) for size in shown)
        counted = Probes((), train, evaluation) if wanted.grad_ckpt else Probes(train, (), evaluation)
        device = torch_device(self.job.device)
        beside = 0 if is_cpu(device) else held_memory_bytes(device) or 0
        room = MemoryRoom(self.limit.num_bytes, cache_bytes=self._cache_bytes()[0] if is_cpu(device) else 0, beside_bytes=beside)
        if not (has_own_memory(device) and shown and wanted.eval_batch is None):
            return choose_counted(counted, room, wanted, num_samples=self._num_train)
        # a card is handed a small batch more slowly than it computes one, and memory for a larger one is there
        plan = choose_counted(counted, room, replace(wanted, eval_batch=estimate.eval_batch), num_samples=self._num_train)
        why = {"eval_batch": "no gradients are kept, and the limit is far away"}
        return None if plan is None else replace(plan, reasons={**plan.reasons, **why})

    def plan_near(self, estimate: MemoryEstimate | None) -> MemoryPlan:
        """Steps measured on the way to a plan; the first ones side by side, if it is known what they take together."""
        device, can = torch_device(self.job.device), self.trial.blueprint.can_checkpoint()
        trial = replace(self.trial, others_bytes=used_bytes(device))
        prober = Prober.of_training(trial, limit=self.limit, on_event=self.session.on_event)
        if estimate is not None:
            self._measure_ahead(prober, estimate, can_checkpoint=can)
        room = self._room(prober, checkpointed=can and bool(self.wanted.grad_ckpt))
        plan = search_plan(
            prober, room, self.wanted, num_samples=self._num_train, can_checkpoint=can, with_evaluation=self.judged > 0
        )
        prober.finish()
        return plan

    def _measure_ahead(self, prober: Prober, estimate: MemoryEstimate, *, can_checkpoint: bool) -> None:
        """Measure side by side what the search begins with, and the whole step if that may well fit."""
        device, limit_bytes = torch_device(self.job.device), self.limit.num_bytes
        sizes = first_sizes(self.wanted, can_checkpoint=can_checkpoint, with_evaluation=self.judged > 0)
        whole = sizes[0][0], self.trial.loop.batch_size
        if estimate.cost(*whole).peak_bytes <= limit_bytes:
            sizes = [*sizes, whole]
        most = max(1, usable_cores() // 2) if is_cpu(device) else _MOST_SIDE_BY_SIDE

        def bound_bytes(way: Way, batch: int) -> int:
            return min(estimate.cost(way, batch).peak_bytes, limit_bytes)

        prober.ahead(sizes, bound_bytes=bound_bytes, free_bytes=device_free_bytes(device), most=most)

    @property
    def _num_train(self) -> int:
        return len(self.job.problem.positions("train"))

    def _room(self, prober: Prober, *, checkpointed: bool) -> MemoryRoom:
        """The limit, less what this run holds and a probe does not. The first probe tells what a bare process takes."""
        device = torch_device(self.job.device)
        if not is_cpu(device):
            return MemoryRoom(self.limit.num_bytes, beside_bytes=held_memory_bytes(device) or 0)
        cache_bytes, cached_already = self._cache_bytes()
        room = MemoryRoom(self.limit.num_bytes, cache_bytes=cache_bytes)
        if self.session.num_started > 1:
            return room
        (first,) = prober("train_ckpt" if checkpointed else "train", [1])
        bare_bytes = first.measured.parts["baseline"] if first.measured else 0
        return replace(room, beside_bytes=max(0, own_bytes() - cached_already - bare_bytes)) if bare_bytes else room

    def _cache_bytes(self) -> tuple[int, int]:
        """Decoded pictures and batches read ahead, in ordinary memory; and how much of it this process holds already."""
        blueprint, job = self.job.blueprint, self.job
        batch_bytes = blueprint.sample_bytes * job.loop.batch_size
        read_ahead = (num_ahead(batch_bytes, job.workers) + 1) * batch_bytes
        return blueprint.ram_bytes + read_ahead, 0 if self.session.num_started > 1 else blueprint.held_bytes
