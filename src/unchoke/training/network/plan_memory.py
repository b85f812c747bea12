"""What fits in memory: settled before a training begins, compared with what was used when it is over.

In: a session and a training as a value. Out: the job with sizes that fit its limit, and figures for the record. Where a limit was
given (`--memory`), or where the device is an accelerator, what a step can take at most is counted (`estimate_memory.py`); only
where that is not far below the limit are steps measured, in one process of their own (`memory_trial.py`). On a CPU without a
limit nothing is planned, and that is said. The plan is kept in `memory.json` of the run and stands when the run goes on, unless
the limit, the device or the versions changed. The effective batch is never touched, and what does not fit after all is halved
(`step.py`).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unchoke import __version__
from unchoke.core import checksums
from unchoke.core.choices import Choice
from unchoke.core.events import Note, OnEvent, Progress
from unchoke.core.fingerprint import digest
from unchoke.core.settings import Settings
from unchoke.core.units import format_bytes, format_count
from unchoke.machine.backend import (
    empty_cache,
    expected_context_bytes,
    has_own_memory,
    held_memory_bytes,
    is_cpu,
    torch_device,
    used_bytes,
)
from unchoke.machine.memory import memory_plan
from unchoke.machine.memory.memory_plan import (
    FEW_SHARE,
    MemoryLimit,
    MemoryPlan,
    MemoryRoom,
    StepCost,
    choose_limit,
    does_not_fit,
    largest_fitting,
    make_plan,
    micro_batches,
    render_outcome,
    render_parts,
    training_does_not_fit,
)
from unchoke.machine.memory.memory_watch import own_bytes, return_unused_memory
from unchoke.machine.memory.probe import Probe, probe
from unchoke.runs.session import Session
from unchoke.training.network.estimate_memory import MemoryEstimate, estimate_memory
from unchoke.training.network.feeding import num_ahead
from unchoke.training.network.finetune import most_evaluated
from unchoke.training.network.memory_trial import TARGET, MemoryTrial, Way
from unchoke.training.network.training_job import TrainingJob, kept_peak

if TYPE_CHECKING:
    import torch

FILE = "memory.json"
_TIMEOUT_S = 900.0
_LARGEST_EVAL_BATCH = 256
WAYS: dict[Way, str] = {"train": "training", "train_ckpt": "with checkpointing", "evaluation": "evaluation"}


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
    settings, device = session.settings, torch_device(job.device)
    if settings.memory_bytes is None and is_cpu(device):
        reason = "not planned: on a CPU steps are measured beforehand only to keep to a limit, such as --memory 4GB"
        session.chose(Choice("memory", None, reason))
        return None
    limit = choose_limit(device, settings.memory_bytes)
    session.chose(limit.choice)
    sharing, among = _num_sharing(session, job), _num_processes(session)
    limit = _share_of_limit(session, limit, num=sharing)
    share, threads = math.ceil(job.loop.batch_size / among), max(1, job.loop.threads // sharing)
    noise = replace(job.over_noise(1), loop=replace(job.loop, batch_size=share, sub_batch=share, threads=threads))
    trial = MemoryTrial(noise)
    made_for = {
        "limit_bytes": limit.num_bytes if limit.given else None,  # what happens to be free may change
        "device": job.device,
        "trial": digest(repr(trial)),
        "wanted": [settings.sub_batch, settings.eval_batch, settings.grad_ckpt],
        "versions": {"unchoke": __version__, **{name: version(name) for name in ("torch", "timm")}},
    }
    plan = _kept(file, made_for, limit, job)
    how = f"as this run began, kept in {file.name}"
    if plan is None:
        return_unused_memory()
        empty_cache(device)
        plan, how = _make(session, job, trial, limit)
        checksums.save_checked_json(file, {"made_for": made_for, "plan": plan.to_dict()})
    sizes = {"limit_bytes": plan.limit_bytes, "margin_bytes": plan.margin_bytes, "planned_bytes": plan.planned_bytes}
    session.chose(Choice("memory_plan", format_bytes(plan.planned_bytes), how, {**sizes, "parts": dict(plan.parts)}))
    for choice in plan.choices:
        session.chose(choice)
    session.on_event(Note(render_parts(plan)))
    return ProcessPlan(plan, limit.num_bytes if limit.given else None, time.monotonic() - started_s)


def remember_memory(session: Session, planned: ProcessPlan | None, job: TrainingJob, *, beside_bytes: int = 0) -> dict[str, Any]:
    """For the record: planned against measured. What was measured is one process's peak, on its device where it has memory.

    `beside_bytes` of what the plan left free were taken on purpose, by rows on the GPU and a CUDA graph.
    """
    measured = kept_peak(job.folder)
    kept: dict[str, Any] = {"planned_bytes": None, "measured_bytes": measured, "device": job.device}
    if planned is None:
        return {"memory": kept}
    if measured is not None:
        session.on_event(Note(render_outcome(planned.plan, measured, beside_bytes=beside_bytes)))
    return {"memory": {**kept, "planned_bytes": planned.plan.planned_bytes + beside_bytes, "plan": planned.plan.to_dict()}}


def _num_sharing(session: Session, job: TrainingJob) -> int:
    """Processes that train side by side in the same memory; GPUs have one each."""
    if not is_cpu(torch_device(job.device)):
        return 1
    return max(session.num_started, session.part.neighbours if session.part else 1)


def _num_processes(session: Session) -> int:
    """Processes that share a batch; on nodes of a cluster, which may be lost, one must be able to take all of it."""
    return max(session.num_started, session.part.world if session.part else 1)


def _share_of_limit(session: Session, limit: MemoryLimit, *, num: int) -> MemoryLimit:
    """The limit of one process among `num`; those we start have this one waiting beside them, whose memory counts too."""
    if num == 1:
        return limit
    waiting = own_bytes() if session.num_started > 1 else 0
    each = max(1, (limit.num_bytes - waiting) // num)
    beside = f", less {format_bytes(waiting)} of the process that waits for them" if waiting else ""
    reason = f"{format_bytes(limit.num_bytes)} shared by {num} processes{beside}"
    session.chose(Choice("memory_of_each", format_bytes(each), reason, {"limit_bytes": each}))
    return replace(limit, num_bytes=each)


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


def _make(session: Session, job: TrainingJob, trial: MemoryTrial, limit: MemoryLimit) -> tuple[MemoryPlan, str]:
    """Count, and where the limit is near measure; the plan, and how it was found."""
    settings, device, batch = session.settings, torch_device(job.device), trial.job.loop.batch_size
    batch_bytes = job.sample_bytes * job.loop.batch_size
    cache_bytes = job.ram_bytes + (num_ahead(batch_bytes, job.workers) + 1) * batch_bytes
    held = own_bytes() - (0 if session.num_started > 1 else job.held_bytes)
    room = MemoryRoom(limit.num_bytes, beside_bytes=held_memory_bytes(device) or 0)
    if is_cpu(device):
        room = MemoryRoom(limit.num_bytes, cache_bytes, process_bytes=0 if session.num_started > 1 else held)
    judged = max(len(job.problem.positions(split)) for split in ("val", "test"))
    most = min(most_evaluated(math.ceil(judged / _num_processes(session))), max(batch, min(4 * batch, _LARGEST_EVAL_BATCH)))
    eval_batch = settings.eval_batch or most
    try:
        base_bytes = max(0, held) if is_cpu(device) else expected_context_bytes(device)
        estimate = estimate_memory(trial.job, batch=batch, eval_batch=eval_batch, base_bytes=base_bytes)
    except Exception as error:  # any code of a network may ask for numbers that are not there
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        session.chose(Choice("memory_count", None, f"measured instead of counted: {said}"))
    else:
        counted = _plan_far(settings, estimate, replace(room, process_bytes=0), device, batch=batch, judged=judged > 0)
        if counted is not None:
            shown = format_bytes(counted.planned_bytes), format_bytes(limit.num_bytes)
            return counted, (
                f"at most {shown[0]} by counting weights, optimizer and activations, far below {shown[1]}: nothing was measured"
            )
    near = replace(
        trial,
        others_bytes=used_bytes(device),
        most_evaluated=most if judged else 0,
        eval_batch=settings.eval_batch,
    )
    can_checkpoint = job.can_checkpoint()
    plan = plan_near(
        near, limit, room, sub_batch=settings.sub_batch, grad_ckpt=settings.grad_ckpt, can_checkpoint=can_checkpoint,
        on_event=session.on_event,
    )  # fmt: skip
    return plan, "steps were measured, in a process of their own"


def _plan_far(
    settings: Settings, estimate: MemoryEstimate, room: MemoryRoom, device: torch.device, *, batch: int, judged: bool
) -> MemoryPlan | None:
    """The plan that needs no measuring; None unless its bound is far below the limit."""
    sub_batch = min(settings.sub_batch or batch, batch)
    step = estimate.train(sub_batch)
    eval_batch, why_eval = settings.eval_batch or sub_batch, "given" if settings.eval_batch else "as in training"
    if judged and settings.eval_batch is None:
        # a GPU is handed a small batch more slowly than it computes one, and memory for a larger one is there
        eval_batch, why_eval = estimate.eval_batch, "no gradients are kept, and the limit is far away"
        if not has_own_memory(device) and estimate.evaluation(eval_batch).peak_bytes > step.peak_bytes:
            eval_batch, why_eval = sub_batch, "as in training: more would take more memory"
    peak = max(step.peak_bytes, estimate.evaluation(eval_batch).peak_bytes if judged else 0)
    if peak + room.cache_bytes + room.beside_bytes > memory_plan.FAR_SHARE * room.limit_bytes:
        return None
    reasons = {
        "sub_batch": "given" if settings.sub_batch else "the whole step fits at once",
        "grad_ckpt": "given" if settings.grad_ckpt is not None else "not needed: activations fit",
        "eval_batch": why_eval,
    }
    cost = replace(step, peak_bytes=peak)
    return make_plan(
        cost, room, batch=batch, eval_batch=eval_batch, grad_ckpt=bool(settings.grad_ckpt), reasons=reasons, counted=True
    )


def plan_near(
    trial: MemoryTrial, limit: MemoryLimit, room: MemoryRoom, *, sub_batch: int | None, grad_ckpt: bool | None,
    can_checkpoint: bool, on_event: OnEvent, target: str = TARGET,
) -> MemoryPlan:  # fmt: skip
    """The largest micro-batch that fits, as measured; with gradient checkpointing where little fits without, or it is faster."""
    batch, found = trial.job.loop.batch_size, dict[Way, Probe]()
    wanted = min(sub_batch or batch, batch)

    def measure(way: Way) -> StepCost | None:
        sizes = (*(size for size in micro_batches(batch) if size < wanted), wanted)
        found[way] = measure_sizes(replace(trial, way=way, sizes=sizes, room=room), limit, on_event, target)
        return largest_fitting(found[way].values, room)

    plain = None if grad_ckpt else measure("train")
    again: StepCost | None = None
    if can_checkpoint and grad_ckpt is not False and (plain is None or plain.batch * FEW_SHARE < wanted):
        again = measure("train_ckpt")
    best = again or plain
    if plain and again:
        kept_s, again_s = plain.seconds / plain.batch, again.seconds / again.batch
        best, is_faster = (again, True) if again_s < kept_s else (plain, False)
        why = f"{'faster' if is_faster else 'not faster'}: {again_s:.3g} s a sample with it, {kept_s:.3g} s without"
    else:
        why = "activations fit without it" if plain else "without it not even one sample fits"
    last = list(found.values())[-1]
    if best is None and trial.eval_batch:
        raise does_not_fit("--eval-batch", trial.eval_batch, (), room, last.fact)
    if best is None:
        by_way = {way: one.values for way, one in found.items()}
        raise training_does_not_fit(by_way.get("train"), by_way.get("train_ckpt"), room, last.fact)
    if sub_batch is not None and best.batch < wanted:
        raise does_not_fit("--sub-batch", wanted, last.values, room, last.fact)
    left = f"{format_bytes(room.step_bytes(best.parts['baseline']))} are left of {format_bytes(room.limit_bytes)}"
    why_sub = "the whole step fits at once" if best.batch == batch else f"the largest size that fits: {left}"
    reasons = {
        "sub_batch": "given" if sub_batch else why_sub,
        "grad_ckpt": "given" if grad_ckpt is not None else why,
        "eval_batch": "given" if trial.eval_batch else "measured beside a step",
    }
    costs, evaluated = tuple(one for way in found.values() for one in way.values), best.eval_batch or best.batch
    return make_plan(best, room, batch=batch, eval_batch=evaluated, grad_ckpt=best is again, reasons=reasons, measured=costs)


def measure_sizes(trial: MemoryTrial, limit: MemoryLimit, on_event: OnEvent, target: str = TARGET) -> Probe:
    """What each size takes, in a process of its own."""
    device = torch_device(trial.job.device)
    done = 0

    def tell(cost: StepCost) -> None:
        nonlocal done
        done += 1
        tried = f"{format_count(cost.batch, 'sample')} at once, {WAYS[trial.way]}"
        on_event(Progress("memory", done, max(done, len(trial.sizes)), "sizes", extra={"tried": tried}))

    trial = replace(trial, limit_bytes=limit.enforced_bytes(device))
    bound = limit.num_bytes if is_cpu(device) else None
    found = probe(target, trial, timeout_s=_TIMEOUT_S, limit_bytes=bound, on_value=tell)
    if done:
        on_event(Progress("memory", done, done, "sizes"))
    return found
