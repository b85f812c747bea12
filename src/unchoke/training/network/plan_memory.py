"""What fits in memory: settled before a training begins, compared with what was used when it is over.

In: a session and a training as a value. Out: the job with sizes that fit its limit, and figures for the record. Where a limit was
given (`--memory`), or where the device is an accelerator, what a step can take at most is counted (`estimate_memory.py`); only
where that is not far below the limit are steps measured, in a process of their own (`memory_trial.py`): the whole batch, else
half of it, and so on. On a CPU without a limit nothing is planned, and that is said. The plan is kept in `memory.json` of the run
and stands when the run goes on, unless the limit, the device or the versions changed. The batch of a step is never touched, and
what does not fit after all is halved (`step.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from unchoke import __version__
from unchoke.core import checksums
from unchoke.core.choices import Choice
from unchoke.core.events import Note, OnEvent, Progress
from unchoke.core.fingerprint import digest
from unchoke.core.units import format_bytes, format_count
from unchoke.machine import backend
from unchoke.machine.memory import memory_plan
from unchoke.machine.memory.memory_plan import (
    FEW_SHARE,
    MemoryLimit,
    MemoryPlan,
    MemoryRoom,
    StepCost,
    choose_limit,
    does_not_fit,
    make_plan,
    render_outcome,
    render_parts,
)
from unchoke.machine.memory.memory_watch import own_bytes, return_unused_memory
from unchoke.machine.memory.probe import probe
from unchoke.runs.session import Session
from unchoke.training.network.estimate_memory import MemoryEstimate, estimate_memory
from unchoke.training.network.feeding import num_ahead
from unchoke.training.network.finetune import most_evaluated
from unchoke.training.network.memory_trial import TARGET, MemoryTrial, Way
from unchoke.training.network.training_job import TrainingJob, kept_peak

FILE = "memory.json"
_TIMEOUT_S = 900.0
_LARGEST_EVAL_BATCH = 256
_LOOSE = 2.5
"""A bound is at most about twice what is measured (`benches/bench_budget.py`): sizes so far beyond the limit are not tried."""
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
    settings, device = session.settings, backend.torch_device(job.device)
    on_cpu, started, part = backend.is_cpu(device), session.num_started, session.part
    if settings.memory_bytes is None and on_cpu:
        reason = "not planned: on a CPU steps are measured beforehand only to keep to a limit, such as --memory 4GB"
        session.chose(Choice("memory", None, reason))
        return None
    limit = choose_limit(device, settings.memory_bytes)
    session.chose(limit.choice)
    # Processes on one CPU share its memory. Nodes of a cluster may be lost: then one takes the whole batch.
    sharing = max(started, part.neighbours if part else 1) if on_cpu else 1
    among = max(started, part.world if part else 1)
    if sharing > 1:
        waiting = own_bytes() if started > 1 else 0  # this process waits beside those it started
        limit = replace(limit, num_bytes=max(1, (limit.num_bytes - waiting) // sharing))
        less = f", less {format_bytes(waiting)} of the process that waits for them" if waiting else ""
        reason = f"{limit.choice.value} shared by {sharing} processes{less}"
        session.chose(Choice("memory_of_each", format_bytes(limit.num_bytes), reason, {"limit_bytes": limit.num_bytes}))
    share, threads = math.ceil(job.loop.batch_size / among), max(1, job.loop.threads // sharing)
    trial = MemoryTrial(replace(job.over_noise(1), loop=replace(job.loop, batch_size=share, sub_batch=share, threads=threads)))
    made_for = {
        "limit_bytes": limit.num_bytes if limit.given else None,  # what happens to be free may change
        "device": job.device,
        "trial": digest(repr(trial)),
        "wanted": [settings.sub_batch, settings.eval_batch, settings.grad_ckpt],
        "versions": {"unchoke": __version__, **{name: version(name) for name in ("torch", "timm")}},
    }
    plan, how = None, f"as this run began, kept in {file.name}"
    if file.exists():
        again = f"delete {file}: memory is planned anew"
        with checksums.making_sense(file, try_=again):
            kept = checksums.load_checked_json(file, try_=again)
            plan = MemoryPlan.from_dict(kept["plan"])
        # where batch statistics are trained, results depend on the plan, so it always stands
        if job.loop.batch_norm != "train" and (kept["made_for"] != made_for or plan.planned_bytes > limit.num_bytes):
            plan = None
    if plan is None:
        return_unused_memory()
        backend.empty_cache(device)
        plan, how = _make(session, job, trial, limit, among=among)
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


def _make(session: Session, job: TrainingJob, trial: MemoryTrial, limit: MemoryLimit, *, among: int) -> tuple[MemoryPlan, str]:
    """Count, and where the limit is near measure; the plan, and how it was found."""
    settings, device, batch = session.settings, backend.torch_device(job.device), trial.job.loop.batch_size
    started, on_cpu = session.num_started > 1, backend.is_cpu(device)
    held = own_bytes() - (0 if started else job.held_bytes)
    room = MemoryRoom(limit.num_bytes, beside_bytes=backend.held_memory_bytes(device) or 0)
    if on_cpu:
        batch_bytes = job.sample_bytes * job.loop.batch_size
        cache_bytes = job.ram_bytes + (num_ahead(batch_bytes, job.workers) + 1) * batch_bytes
        room = MemoryRoom(limit.num_bytes, cache_bytes, process_bytes=0 if started else held)
    judged = max(len(job.problem.positions(split)) for split in ("val", "test"))
    most = min(most_evaluated(math.ceil(judged / among)), max(batch, min(4 * batch, _LARGEST_EVAL_BATCH)))
    estimate: MemoryEstimate | None = None
    try:
        base_bytes = max(0, held) if on_cpu else backend.expected_context_bytes(device)
        estimate = estimate_memory(trial.job, batch=batch, eval_batch=settings.eval_batch or most, base_bytes=base_bytes)
    except Exception as error:  # any code of a network may ask for numbers that are not there
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        session.chose(Choice("memory_count", None, f"measured instead of counted: {said}"))
    if estimate is not None:
        # without gradients a larger batch fits, and a GPU computes a small one sooner than it is handed the next
        sub_batch = min(settings.sub_batch or batch, batch)
        step, evaluated, why = estimate.train(sub_batch), most, "no gradients are kept, and the limit is far away"
        if settings.eval_batch is not None or not judged:
            evaluated, why = settings.eval_batch or sub_batch, "given" if settings.eval_batch else "as in training"
        elif not backend.has_own_memory(device) and estimate.evaluation(most).peak_bytes > step.peak_bytes:
            evaluated, why = sub_batch, "as in training: more would take more memory"
        peak = max(step.peak_bytes, estimate.evaluation(evaluated).peak_bytes if judged else 0)
        if peak + room.cache_bytes + room.beside_bytes <= memory_plan.FAR_SHARE * room.limit_bytes:
            reasons = {
                "sub_batch": "given" if settings.sub_batch else "the whole step fits at once",
                "grad_ckpt": "given" if settings.grad_ckpt is not None else "not needed: activations fit",
                "eval_batch": why,
            }
            plan = make_plan(
                replace(step, peak_bytes=peak), replace(room, process_bytes=0),
                batch=batch, eval_batch=evaluated, grad_ckpt=bool(settings.grad_ckpt), reasons=reasons, counted=True,
            )  # fmt: skip
            shown = format_bytes(plan.planned_bytes), format_bytes(limit.num_bytes)
            said = f"at most {shown[0]} by counting weights, optimizer and activations, far below {shown[1]}"
            return plan, f"{said}: nothing was measured"
    near = replace(
        trial,
        room=room,
        others_bytes=backend.used_bytes(device),
        most_evaluated=most if judged else 0,
        eval_batch=settings.eval_batch,
    )
    plan = plan_near(
        near, limit, sub_batch=settings.sub_batch, grad_ckpt=settings.grad_ckpt, can_checkpoint=job.can_checkpoint(),
        on_event=session.on_event, estimate=estimate,
    )  # fmt: skip
    return plan, "steps were measured, in a process of their own"


@dataclass
class Measured:
    """What sizes took that could be tried, in their order, and in words why the last one was the last."""

    costs: list[StepCost] = field(default_factory=list)
    fact: str = ""


def plan_near(
    trial: MemoryTrial, limit: MemoryLimit, *, sub_batch: int | None, grad_ckpt: bool | None, can_checkpoint: bool,
    on_event: OnEvent, estimate: MemoryEstimate | None = None, target: str = TARGET,
) -> MemoryPlan:  # fmt: skip
    """The largest micro-batch that fits, as measured; with gradient checkpointing where little fits without, or it is faster."""
    room, batch = trial.room or MemoryRoom(limit.num_bytes), trial.job.loop.batch_size
    wanted = min(sub_batch or batch, batch)
    sizes = list(dict.fromkeys(math.ceil(wanted / 2**power) for power in range(wanted.bit_length() + 1)))
    found = dict[Way, Measured]()

    def measure(way: Way) -> StepCost | None:
        tried = tuple(sizes)
        if estimate is not None and way == "train":
            loose_bytes = _LOOSE * limit.num_bytes
            tried = (*(size for size in sizes[:-1] if estimate.train(size).peak_bytes <= loose_bytes), sizes[-1])
        found[way] = measure_sizes(replace(trial, way=way, sizes=tried, room=room), limit, on_event, target)
        return next((one for one in found[way].costs if one.fits(room)), None)

    plain = None if grad_ckpt else measure("train")
    again: StepCost | None = None
    if can_checkpoint and grad_ckpt is not False and (plain is None or plain.batch * FEW_SHARE < wanted):
        again = measure("train_ckpt")
    best = again or plain
    why = "activations fit without it" if plain else "without it not even one sample fits"
    if plain and again:
        kept_s, again_s = plain.seconds / plain.batch, again.seconds / again.batch
        best = again if again_s < kept_s else plain
        faster = "faster" if best is again else "not faster"
        why = f"{faster}: {again_s:.3g} s a sample with it, {kept_s:.3g} s without"
    costs = [one for way in found.values() for one in way.costs]
    if best is None or (sub_batch is not None and best.batch < wanted):
        fact = list(found.values())[-1].fact
        option = f"--sub-batch {wanted}" if best else f"--eval-batch {trial.eval_batch}" if trial.eval_batch else ""
        raise does_not_fit(option, costs, best, room, fact, ckpt="train_ckpt" in found)
    left = f"{format_bytes(room.step_bytes(best.parts['baseline']))} are left of {format_bytes(room.limit_bytes)}"
    why_sub = "the whole step fits at once" if best.batch == batch else f"the largest size that fits: {left}"
    reasons = {
        "sub_batch": "given" if sub_batch else why_sub,
        "grad_ckpt": "given" if grad_ckpt is not None else why,
        "eval_batch": "given" if trial.eval_batch else "measured beside a step",
    }
    evaluated = best.eval_batch or best.batch
    return make_plan(
        best, room, batch=batch, eval_batch=evaluated, grad_ckpt=best is again, reasons=reasons, measured=tuple(costs)
    )


def measure_sizes(trial: MemoryTrial, limit: MemoryLimit, on_event: OnEvent, target: str = TARGET) -> Measured:
    """What sizes take, in a process of its own; in another one after a process that was ended for a size that did not fit."""
    device, found = backend.torch_device(trial.job.device), Measured()
    bound = limit.num_bytes if backend.is_cpu(device) else None
    left: Sequence[int] = trial.sizes

    def tell(answer: StepCost | str) -> None:
        if isinstance(answer, str):
            found.fact = answer
            return
        found.costs.append(answer)
        tried = f"{format_count(answer.batch, 'sample')} at once, {WAYS[trial.way]}"
        on_event(Progress("memory", len(found.costs), len(trial.sizes), "sizes", extra={"tried": tried}))

    while left:
        asked = replace(trial, sizes=tuple(left), limit_bytes=limit.enforced_bytes(device))
        process = probe(target, asked, timeout_s=_TIMEOUT_S, limit_bytes=bound, on_value=tell)
        found.fact = process.fact or found.fact
        fits = found.costs and trial.room is not None and found.costs[-1].fits(trial.room)
        if fits or trial.room is None:
            break
        left = left[max(1, len(process.values) + (process.outcome != "ok")) :]
    if found.costs:
        on_event(Progress("memory", len(found.costs), len(found.costs), "sizes"))
    return found
