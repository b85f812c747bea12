"""What fits in memory: settled before a training begins, compared with what was used when it is over.

In: a session and a training as a value. Out: the job with sizes that fit its limit, and figures for the record. Steps are
measured in processes of their own where a limit was given (`--memory`) or where the device is an accelerator; on a CPU without a
limit nothing is planned, and that is said. The plan is kept in `memory.json` of the run and stands when the run goes on, unless
the limit, the device or the versions changed. The effective batch is never touched. `unchoke budget` and the prediction of masks
measure with the same `Prober`, under the same kinds of `MemoryLimit`.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unchoke import __version__
from unchoke.core import atomic
from unchoke.core.choices import Choice
from unchoke.core.errors import MachineError
from unchoke.core.events import Note, OnEvent, Progress
from unchoke.core.fingerprint import digest
from unchoke.core.settings import Settings
from unchoke.core.units import format_bytes, format_count
from unchoke.machine.backend import (
    device_room_bytes,
    empty_cache,
    held_memory_bytes,
    is_cpu,
    limit_memory,
    torch_device,
    used_bytes,
)
from unchoke.machine.memory.budget_text import render_outcome, render_parts
from unchoke.machine.memory.memory_plan import MemoryPlan, MemoryRequest, MemoryRoom
from unchoke.machine.memory.memory_watch import own_bytes, return_unused_memory
from unchoke.machine.memory.probe import ProbeResult, probe
from unchoke.machine.memory.search import Way
from unchoke.machine.memory.search import plan_memory as search_plan
from unchoke.runs.session import Session
from unchoke.training.network.feeding import num_ahead
from unchoke.training.network.finetune import most_evaluated
from unchoke.training.network.memory_trial import TARGET, MemoryTrial
from unchoke.training.network.training_job import TrainingJob, kept_peak

if TYPE_CHECKING:
    import torch

FILE = "memory.json"
STAGE = "memory"
LOOK = "unchoke.machine.memory.gauge:look_at_device"
_TIMEOUT_S = 900.0
_USUAL_PROBES = 5
_FREE_SHARE = 0.8
_WORDS: dict[Way, str] = {"train": "training", "train_ckpt": "with checkpointing", "evaluation": "evaluation"}


@dataclass(frozen=True)
class ProcessPlan:
    """A plan for one process of a training, and the limit it is kept to (None: nothing but what there is)."""

    plan: MemoryPlan
    limit_bytes: int | None
    seconds: float = 0.0

    def applied_to(self, job: TrainingJob) -> TrainingJob:
        plan = self.plan
        loop = replace(job.loop, sub_batch=plan.sub_batch, eval_batch=plan.eval_batch, grad_ckpt=plan.grad_ckpt)
        return replace(job, loop=loop, limit_bytes=self.limit_bytes)


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
        atomic.write_json(file, {"made_for": made_for, "plan": plan.to_dict()})
    _tell(
        session, plan, why=f"as this run began, kept in {file.name}" if kept else "steps were measured, each in its own process"
    )
    return ProcessPlan(plan, limit.num_bytes if limit.given else None, time.monotonic() - started_s)


def _tell(session: Session, plan: MemoryPlan, *, why: str) -> None:
    """The plan as a table, and as choices for the record."""
    sizes = {"limit_bytes": plan.limit_bytes, "margin_bytes": plan.margin_bytes, "planned_bytes": plan.planned_bytes}
    session.chose(Choice("memory_plan", format_bytes(plan.planned_bytes), why, {**sizes, "parts": dict(plan.parts)}))
    for choice in plan.choices:
        if choice.name != "batch":
            session.chose(choice)
    session.on_event(Note(render_parts(plan)))


def remember_memory(session: Session, planned: ProcessPlan | None, job: TrainingJob) -> dict[str, Any]:
    """For the record: planned against measured. What was measured is one process's peak, on its device where it has memory."""
    measured = kept_peak(job.folder)
    kept: dict[str, Any] = {"planned_bytes": None, "measured_bytes": measured, "device": job.device}
    if planned is None:
        return {"memory": kept}
    if measured is not None:
        session.on_event(Note(render_outcome(planned.plan, measured)))
    return {"memory": {**kept, "planned_bytes": planned.plan.planned_bytes, "plan": planned.plan.to_dict()}}


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
    return _num_processes(session) if is_cpu(torch_device(job.device)) else 1


def _num_processes(session: Session) -> int:
    return max(session.settings.devices, session.part.world if session.part else 1)


def _shared(session: Session, limit: MemoryLimit, *, num: int) -> MemoryLimit:
    """The limit of one process among `num`; those we start have this one waiting beside them, whose memory counts too."""
    if num == 1:
        return limit
    waiting = own_bytes() if session.settings.devices > 1 else 0
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
    kept = json.loads(file.read_text(encoding="utf-8"))
    plan = MemoryPlan.from_dict(kept["plan"])
    holds = kept["made_for"] == made_for and plan.planned_bytes <= limit.num_bytes
    return plan if holds or job.loop.batch_norm == "train" else None


def _search(session: Session, job: TrainingJob, trial: MemoryTrial, limit: MemoryLimit) -> MemoryPlan:
    settings, device = session.settings, torch_device(job.device)
    return_unused_memory()
    empty_cache(device)
    judged = max(len(job.problem.positions(split)) for split in ("val", "test"))
    most = most_evaluated(math.ceil(judged / _num_processes(session)))
    wanted = MemoryRequest(trial.loop.batch_size, settings.sub_batch, settings.eval_batch, settings.grad_ckpt, most)
    prober = Prober.of_training(replace(trial, others_bytes=used_bytes(device)), limit=limit, on_event=session.on_event)
    can = trial.blueprint.can_checkpoint()
    room = _room(session, job, prober, limit, checkpointed=can and bool(wanted.grad_ckpt))
    num_train = len(job.problem.positions("train"))
    plan = search_plan(prober, room, wanted, num_samples=num_train, can_checkpoint=can, with_evaluation=judged > 0)
    prober.finish()
    return plan


def _room(session: Session, job: TrainingJob, prober: Prober, limit: MemoryLimit, *, checkpointed: bool) -> MemoryRoom:
    """The limit, less what this run holds and a probe does not. The first probe tells what a bare process takes."""
    device = torch_device(job.device)
    if not is_cpu(device):
        return MemoryRoom(limit.num_bytes, beside_bytes=held_memory_bytes(device) or 0)
    cache_bytes, cached_already = _cache_bytes(job, started_by_us=session.settings.devices > 1)
    room = MemoryRoom(limit.num_bytes, cache_bytes=cache_bytes)
    if session.settings.devices > 1:
        return room
    (first,) = prober("train_ckpt" if checkpointed else "train", [1])
    bare_bytes = first.measured.parts["baseline"] if first.measured else 0
    return replace(room, beside_bytes=max(0, own_bytes() - cached_already - bare_bytes)) if bare_bytes else room


def _cache_bytes(job: TrainingJob, *, started_by_us: bool) -> tuple[int, int]:
    """Decoded pictures and batches read ahead, in ordinary memory; and how much of it this process holds already."""
    blueprint = job.blueprint
    batch_bytes = blueprint.sample_bytes * job.loop.batch_size
    read_ahead = (num_ahead(batch_bytes, job.workers) + 1) * batch_bytes
    return blueprint.ram_bytes + read_ahead, 0 if started_by_us else blueprint.held_bytes


@dataclass(frozen=True)
class MemoryLimit:
    """How much may be taken. `given` ones are kept to: enforced where the device can, watched where it cannot."""

    num_bytes: int
    given: bool
    choice: Choice

    def enforced_bytes(self, device: torch.device) -> int | None:
        """What the device's allocator is told to keep to; a CPU has none to tell."""
        return self.num_bytes if self.given and not is_cpu(device) else None


def given_limit(device: torch.device, limit_bytes: int) -> MemoryLimit:
    """A limit that was asked for; refused where there is not that much."""
    return MemoryLimit(limit_bytes, True, limit_memory(device, limit_bytes))


def free_limit(device: torch.device, room_bytes: int | None = None) -> MemoryLimit:
    """What is there for the taking: a card's memory that others leave, or most of what the machine has free."""
    room = device_room_bytes(device) if room_bytes is None else room_bytes
    if is_cpu(device):
        num_bytes = int(room * _FREE_SHARE)
        reason = f"{_FREE_SHARE:.0%} of the {format_bytes(room)} that are free now; --memory sets another limit"
    else:
        num_bytes, reason = room, f"what {device} has and nobody else holds; --memory sets a lower limit"
    return MemoryLimit(num_bytes, False, Choice("memory", format_bytes(num_bytes), reason, {"limit_bytes": num_bytes}))


def limit_elsewhere(device: torch.device, asked: int | None) -> MemoryLimit:
    """The limit for processes that try things, found out without taking any of the device here."""
    if is_cpu(device):
        return free_limit(device) if asked is None else given_limit(device, asked)
    (found,) = probe(LOOK, (str(device), asked), [1], timeout_s=_TIMEOUT_S)
    if found.measured is None:
        why = f"a process that only looks at it failed: {found.fact}"
        raise MachineError(f"{device} has no room at all", why=why, try_="close what uses it, or --device cpu")
    if asked is None:
        return free_limit(device, found.measured.peak_bytes)
    reason = "enforced by the allocator in every process that tries a size"
    return MemoryLimit(asked, True, Choice("memory", format_bytes(asked), reason, {"limit_bytes": asked}))


class Prober:
    """`prober(way, batches)`: each size once, from small to large up to the first that does not fit. Answers are remembered.

    `trial(way)` is what the process at `target` is to try; on a CPU no process may take more than the limit.
    """

    def __init__(
        self,
        target: str,
        trial: Callable[[Way], Any],
        *,
        device: torch.device,
        limit: MemoryLimit,
        on_event: OnEvent,
        usual: int,
        words: Callable[[Way, int], str],
    ) -> None:
        self._target, self._trial, self._words = target, trial, words
        self._process_bytes = limit.num_bytes if is_cpu(device) else None
        self._on_event, self._usual = on_event, usual
        self._found: dict[tuple[Way, int], ProbeResult] = {}

    @classmethod
    def of_training(cls, trial: MemoryTrial, *, limit: MemoryLimit, on_event: OnEvent, usual: int = _USUAL_PROBES) -> Prober:
        """Tries steps of a training, and its evaluation."""
        device = torch_device(trial.device)
        trial = replace(trial, limit_bytes=limit.enforced_bytes(device))

        def asked(way: Way) -> MemoryTrial:
            return replace(trial, loop=replace(trial.loop, grad_ckpt=way == "train_ckpt"), evaluation=way == "evaluation")

        def words(way: Way, batch: int) -> str:
            return f"{format_count(batch, 'sample')} at once, {_WORDS[way]}"

        return cls(TARGET, asked, device=device, limit=limit, on_event=on_event, usual=usual, words=words)

    def __call__(self, way: Way, batches: Sequence[int]) -> list[ProbeResult]:
        found: list[ProbeResult] = []
        for batch in sorted(set(batches)):
            found.append(self._found.get((way, batch)) or self._measure(way, batch))
            if not found[-1].fits:
                break
        return found

    def _measure(self, way: Way, batch: int) -> ProbeResult:
        done = len(self._found)
        extra = {"trying": self._words(way, batch)}
        self._on_event(Progress(STAGE, done, max(self._usual, done + 1), "probes", extra=extra))
        (one,) = probe(self._target, self._trial(way), [batch], timeout_s=_TIMEOUT_S, limit_bytes=self._process_bytes)
        self._found[way, batch] = one
        return one

    def finish(self) -> None:
        """Say that no more will be measured."""
        if done := len(self._found):
            self._on_event(Progress(STAGE, done, done, "probes"))
