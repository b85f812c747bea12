"""What torch.profiler found, as plain text: the ten operators that took most, by each measure, and how to look closer.

In: the `profile` of a record. Out: text for a terminal; nothing is printed here. The same in full, with every operator, is in the
page that was written beside the trace.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unchoke.core.findings import Finding
from unchoke.core.units import format_bytes, format_count
from unchoke.runs.report import timeline_bars as timeline
from unchoke.runs.report.layout import columns, shorten, wrap
from unchoke.runs.report.text import render_findings

if TYPE_CHECKING:
    from unchoke.core.record import OperatorRecord, ProfileRecord

_TOP = 10
_LONGEST_NAME = 56


def render_profiled_training(
    profile: ProfileRecord,
    step: Mapping[str, Any],
    findings: Sequence[Finding],
    *,
    undisturbed: bool,
    root: Path,
    next_command: str,
) -> str:
    """`unchoke profile train`: where a step's time went, what held it back, then the profile."""
    found = [render_findings(findings)] if findings else []
    parts = [timeline.render_step(step, undisturbed=undisturbed), *found, render_profile(profile, root=root)]
    return "\n\n".join([*parts, f"next    {next_command}"])


def render_profile(profile: ProfileRecord, *, root: Path) -> str:
    """The tables that hold something, and where the files are."""
    tables = [_by_cpu(profile), _by_device(profile), _by_memory(profile)]
    return "\n\n".join([table for table in tables if table] + [_files(profile, root)])


def _by_cpu(profile: ProfileRecord) -> str:
    steps = format_count(profile.num_steps, "step")
    title = f"top {_TOP} of {profile.num_operators} operators by CPU time, in {steps} (self: without what it called)"
    return _times(title, profile.operators, "self_cpu_s", "cpu_s", profile.cpu_s)


def _by_device(profile: ProfileRecord) -> str:
    if not profile.device_s:
        return ""
    return _times(f"top {_TOP} by time on the device", profile.operators, "self_device_s", "device_s", profile.device_s)


def _times(title: str, operators: Sequence[OperatorRecord], own: str, whole: str, total_s: float) -> str:
    rows = [
        (
            shorten(one.name, _LONGEST_NAME),
            format_us(getattr(one, own)),
            f"{getattr(one, own) / total_s * 100:.1f} %" if total_s else "",
            format_us(getattr(one, whole)),
            f"{one.calls:,}",
            format_us(getattr(one, own) / max(1, one.calls)),
        )
        for one in _top(operators, own)
    ]
    header = ("operator", "self", "share", "with calls", "calls", "self per call")
    return f"{title}\n{columns(rows, header=header, right=range(1, len(header)))}"


def _by_memory(profile: ProfileRecord) -> str:
    """On the device where there is one, else in ordinary memory."""
    own = "self_device_bytes" if profile.device_s else "self_cpu_bytes"
    rows = [
        (shorten(one.name, _LONGEST_NAME), format_bytes(getattr(one, own)), f"{one.calls:,}")
        for one in _top(profile.operators, own)
    ]
    where = "device memory" if profile.device_s else "memory"
    title = f"top {_TOP} by {where} they allocated, less what they freed themselves"
    return f"{title}\n{columns(rows, header=('operator', 'allocated', 'calls'), right=(1, 2))}" if rows else ""


def _top(operators: Sequence[OperatorRecord], by: str) -> list[OperatorRecord]:
    return sorted((one for one in operators if getattr(one, by) > 0), key=lambda one: -float(getattr(one, by)))[:_TOP]


def _files(profile: ProfileRecord, root: Path) -> str:
    traces = [root / trace for trace in profile.traces]
    lines = [("page", str(root / page)) for page in profile.pages]
    lines += [("trace", str(trace)) for trace in traces]
    lines.append(("look", f"vizviewer {shlex.quote(str(traces[-1]))}"))
    table = "\n".join(f"{word:<8}{text}" for word, text in lines)
    hint = wrap("The page needs nothing else; a trace also opens at ui.perfetto.dev and in chrome://tracing.", indent="")
    return f"{table}\n{hint}"


def format_us(seconds: float) -> str:
    """Times of operators: microseconds, milliseconds or seconds, three digits that matter."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        value = seconds * factor
        if value >= 1 or unit == "µs":
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"
    return ""
