"""A training under torch.profiler: the traces in `logs/profiler/`, a page of them, and what a run's record keeps of it.

In: a session and the name of what is trained. Out: a profiler that the training finds in the session, and afterwards plain data:
the files, and the operators that took most. Profiling changes neither the result nor which run it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unchoke.core.errors import UsageError
from unchoke.core.record import OperatorRecord
from unchoke.core.units import format_count
from unchoke.runs.session import Session
from unchoke.runs.trace.trace_html import save_trace_html
from unchoke.training.step_profiler import ProfilePlan, StepProfiler

_TOP = 10
_RANKED_BY = ("self_cpu_s", "self_device_s", "self_cpu_bytes", "self_device_bytes")


@dataclass
class ProfileSummary:
    """`record` is filled when the training is over: None where nothing was profiled."""

    record: dict[str, Any] | None = None

    def about(self) -> dict[str, Any]:
        """What it adds to the record of a run."""
        return {} if self.record is None else {"profile": self.record}


@contextmanager
def profiled_if_asked(session: Session, name: str) -> Iterator[ProfileSummary]:
    """With `--profile`, record the first steps of the training inside."""
    found = ProfileSummary()
    if not session.settings.profile:
        yield found
        return
    with profiling(session, plan_profile(session, name)) as profiler:
        yield found
    if profiler.traces:
        found.record = profile_record(session, profiler)
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
    return ProfilePlan(
        folder=session.workspace.profiler_logs,
        name=name,
        wait=settings.profile_wait,
        warmup=settings.profile_warmup,
        active=settings.profile_active,
        repeat=settings.profile_repeat,
        stops=stops,
    )


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
        pages = [save_trace_html(trace, _page_of(trace)) for trace in profiler.traces]
    operators = profiler.operators
    return {
        "schedule": {name: getattr(plan, name) for name in ("wait", "warmup", "active", "repeat")},
        "num_steps": profiler.num_recorded,
        "traces": [_inside(session, trace) for trace in profiler.traces],
        "pages": [_inside(session, page) for page in pages],
        "cpu_s": sum(one.self_cpu_s for one in operators),
        "device_s": sum(one.self_device_s for one in operators),
        "num_operators": len(operators),
        "operators": [one.to_dict() for one in _leading(operators)],
    }


def _leading(operators: list[OperatorRecord]) -> list[OperatorRecord]:
    """Those among the first ten by any measure, in the order torch names them."""
    wanted = {one.name for by in _RANKED_BY for one in sorted(operators, key=lambda one: -float(getattr(one, by)))[:_TOP]}
    return [one for one in operators if one.name in wanted]


def _page_of(trace: Path) -> Path:
    return trace.with_name(trace.name.removesuffix(".pt.trace.json") + ".html")


def _inside(session: Session, file: Path) -> str:
    return file.relative_to(session.workspace.root).as_posix()
