"""A training under torch.profiler: a trace file for each cycle of steps, a page of it, and what each operator took.

In: which steps to record (a `ProfilePlan`), and a loop that says when a step is over. Out: `*.pt.trace.json` files in
`logs/profiler/` (for Perfetto, `vizviewer`, our own viewer), the operators with their times and memory, and where the time went
in steps that ran without the profiler. It changes nothing that is computed, nor which run it is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from unchoke.core import atomic
from unchoke.core.clock import Clock, Loading, LoopProfiler, Mark, StageTally
from unchoke.core.errors import UsageError
from unchoke.core.record import OperatorRecord
from unchoke.core.units import format_count
from unchoke.machine.backend import is_operator_row, profiled_activities, unseen_kernels
from unchoke.runs.session import Session
from unchoke.runs.trace.trace_html import save_trace_html
from unchoke.runs.trace.trace_source import OWN_NOTES

PREFIX = "unchoke."
"""Stages are annotated in the trace as `unchoke.forward` and so on."""
_STEP = "ProfilerStep"
_OWN = "profiler"
_NOTHING = nullcontext()
_TOP = 10
_RANKED_BY = ("self_cpu_s", "self_device_s", "self_cpu_bytes", "self_device_bytes")


@dataclass(frozen=True)
class ProfilePlan:
    """Which steps are recorded: `wait` are let pass, `warmup` settle the profiler, `active` are kept; `repeat` times.

    Files go to `folder` and begin with `name`. With `stops`, the training need not go on once it is over and some steps more
    have been timed undisturbed.
    """

    folder: Path
    name: str
    wait: int = 1
    warmup: int = 1
    active: int = 3
    repeat: int = 1
    stops: bool = False

    @property
    def num_steps(self) -> int:
        """How many steps a training must have for all of it."""
        return self._cycle * self.repeat

    @property
    def _cycle(self) -> int:
        return self.wait + self.warmup + self.active

    def records(self, step: int) -> bool:
        """Whether a step, counted from 1, is one of those that are kept."""
        return step <= self.num_steps and (step - 1) % self._cycle >= self.wait + self.warmup

    def begins(self, step: int) -> bool:
        """Whether a step, counted from 1, is the first to be kept of its cycle."""
        return step <= self.num_steps and (step - 1) % self._cycle == self.wait + self.warmup


class StepProfiler(LoopProfiler):
    """One training's profiler. Everything it found out is here when the training is over, however it ended."""

    def __init__(self, plan: ProfilePlan) -> None:
        self.plan = plan
        self.traces: list[Path] = []
        self.operators: list[OperatorRecord] = []
        self.num_steps = self.num_recorded = self.num_timed = 0
        self.timed: StageTally = {}
        """What went to each stage in the `num_timed` steps after the last recorded one."""
        self.loaded: StageTally = {}
        """What `num_readers` threads did in all steps until then."""
        self.num_readers = 0
        self._stamp = time.strftime("%Y%m%dT%H%M%S")
        self._before: StageTally = {}
        self._profile: Any = None
        self._notes: dict[str, Any] = {}

    @property
    def over(self) -> bool:
        """Whether all cycles are recorded."""
        return self.num_steps >= self.plan.num_steps

    @property
    def mark(self) -> Mark | None:
        return self._annotation

    @property
    def wants_stop(self) -> bool:
        return self.plan.stops and self.num_timed >= self.plan.active

    @contextmanager
    def on(self, device: torch.device) -> Iterator[None]:
        from torch.profiler import profile, schedule

        plan = self.plan
        with profile(
            activities=profiled_activities(device),
            schedule=schedule(wait=plan.wait, warmup=plan.warmup, active=plan.active, repeat=plan.repeat),
            on_trace_ready=self._keep,
            record_shapes=True,
            profile_memory=True,
            with_stack=False,
            acc_events=True,
        ) as self._profile:
            self._notes = {"steps": plan.active, "unseen": unseen_kernels(device)}
            self._note_plan()
            yield

    def step(self, clock: Clock, loading: Loading) -> None:
        self.num_steps += 1
        if self.num_steps <= self.plan.num_steps:
            self.num_recorded += self.plan.records(self.num_steps)
            with clock.stage(_OWN):
                self._profile.step()
                self._note_plan()
        if self.num_steps == self.plan.num_steps:
            self._before = clock.tally()
        elif self.over:
            self.num_timed += 1
            self.timed = _since(self._before, clock.tally())
            self.loaded, self.num_readers = loading.tally(), loading.num_threads

    def _note_plan(self) -> None:
        """Where a recording begins, write into its trace what it should hold: one that is cut off then shows."""
        if self.plan.begins(self.num_steps + 1):
            self._profile.add_metadata_json(OWN_NOTES, json.dumps(self._notes))

    def _annotation(self, stage: str) -> AbstractContextManager[Any]:
        """The annotation of a stage; nothing once all is recorded, and none of what the profiler itself does."""
        if self.over or stage == _OWN:
            return _NOTHING
        annotation: AbstractContextManager[Any] = torch.profiler.record_function(PREFIX + stage)
        return annotation

    def _keep(self, profile: Any) -> None:
        """Write the trace of a cycle, whole or not at all, and take note of its operators."""
        number = f"_{len(self.traces) + 1}" if self.plan.repeat > 1 else ""
        trace = self.plan.folder / f"{self.plan.name}_{self._stamp}{number}.pt.trace.json"
        trace.parent.mkdir(parents=True, exist_ok=True)
        built = trace.with_name(f"{atomic.TEMPORARY_PREFIX}{trace.name}{atomic.TEMPORARY_SUFFIX}")
        profile.export_chrome_trace(str(built))
        atomic.adopt(built, trace)
        self.traces.append(trace)
        self.operators = [
            _operator(row) for row in profile.key_averages() if is_operator_row(row) and not row.key.startswith((PREFIX, _STEP))
        ]  # not one of our marks, nor a kernel


def _operator(row: Any) -> OperatorRecord:
    """torch counts in microseconds."""
    return OperatorRecord(
        name=row.key,
        calls=int(row.count),
        self_cpu_s=row.self_cpu_time_total / 1e6,
        cpu_s=row.cpu_time_total / 1e6,
        self_device_s=row.self_device_time_total / 1e6,
        device_s=row.device_time_total / 1e6,
        self_cpu_bytes=int(row.self_cpu_memory_usage),
        self_device_bytes=int(row.self_device_memory_usage),
    )


def _since(before: StageTally, now: StageTally) -> StageTally:
    return {
        name: (seconds - before.get(name, (0.0, 0))[0], calls - before.get(name, (0.0, 0))[1])
        for name, (seconds, calls) in now.items()
    }


# -- in a session --------------------------------------------------------------------------------------------------


@contextmanager
def profiled_if_asked(session: Session, name: str) -> Iterator[dict[str, Any]]:
    """With `--profile`, record the first steps of the training inside. What is yielded then holds what the run's record keeps."""
    found: dict[str, Any] = {}
    if not session.settings.profile:
        yield found
        return
    with profiling(session, plan_profile(session, name)) as profiler:
        yield found
    if profiler.traces:
        found["profile"] = profile_record(session, profiler)
    else:
        session.warn(
            f"nothing was profiled: {too_short(profiler)}; --profile-wait 0 --profile-warmup 0 begins with the first step"
        )


def plan_profile(session: Session, name: str, *, stops: bool = False) -> ProfilePlan:
    """Which steps the settings ask for, and where the files go."""
    settings = session.settings
    if (settings.devices or 1) > 1:
        raise UsageError(
            f"--devices {settings.devices} cannot be profiled",
            code="options-conflict",
            why="a profile is taken in one process, and the training would run in others",
            try_="leave --devices out for the profile: the steps are the same",
        )
    steps = settings.profile_wait, settings.profile_warmup, settings.profile_active, settings.profile_repeat
    return ProfilePlan(session.workspace.profiler_logs, name, *steps, stops=stops)


@contextmanager
def profiling(session: Session, plan: ProfilePlan) -> Iterator[StepProfiler]:
    """Have whatever trains in this session do so under a profiler."""
    session.profiler = profiler = StepProfiler(plan)
    try:
        yield profiler
    finally:
        session.profiler = None


def too_short(profiler: StepProfiler) -> str:
    """Why there is no trace."""
    first = profiler.plan.wait + profiler.plan.warmup + 1
    return f"the training was over after {format_count(profiler.num_steps, 'step')}, and step {first} is the first to be recorded"


def profile_record(session: Session, profiler: StepProfiler) -> dict[str, Any]:
    """What was recorded, as plain data with paths inside the workspace; a page is written for each trace."""
    plan = profiler.plan
    with session.stage("profile", format_count(len(profiler.traces), "trace")):
        pages = [
            save_trace_html(trace, trace.with_name(trace.name.removesuffix(".pt.trace.json") + ".html"))
            for trace in profiler.traces
        ]
    operators, root = profiler.operators, session.workspace.root
    leading = {one.name for by in _RANKED_BY for one in sorted(operators, key=lambda one: -float(getattr(one, by)))[:_TOP]}
    return {
        "schedule": {name: getattr(plan, name) for name in ("wait", "warmup", "active", "repeat")},
        "num_steps": profiler.num_recorded,
        "traces": [trace.relative_to(root).as_posix() for trace in profiler.traces],
        "pages": [page.relative_to(root).as_posix() for page in pages],
        "cpu_s": sum(one.self_cpu_s for one in operators),
        "device_s": sum(one.self_device_s for one in operators),
        "num_operators": len(operators),
        "operators": [one.to_dict() for one in operators if one.name in leading],
    }
