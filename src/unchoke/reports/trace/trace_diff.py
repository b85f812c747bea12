"""Two traces side by side: what a step spends its time on, and what each operator costs, before and after.

In: two records. Out: a `TraceDiff`, the operators with the largest change first. Where both have steps, times and calls are for
one step, so that recordings of different lengths compare. Draws no conclusion: one recording is one measurement.
"""

from __future__ import annotations

from unchoke.reports.trace.trace_records import STAGES, Operator, OperatorChange, StageChange, TraceDiff, TraceRecord
from unchoke.reports.trace.trace_steps import WHOLE


def compare_traces(before: TraceRecord, after: TraceRecord) -> TraceDiff:
    """What changed from `before` to `after`."""
    per_step = _has_steps(before) and _has_steps(after)
    sides = [_operators(record, len(record.steps) if per_step else 1) for record in (before, after)]
    changes = [_change(key, sides[0].get(key), sides[1].get(key)) for key in {**sides[0], **sides[1]}]
    changes.sort(key=lambda change: (-max(abs(change.cpu_change_us), abs(change.device_change_us)), change.name))
    means = [record.mean_stages() for record in (before, after)]
    stages = [StageChange(stage, means[0].get(stage, 0.0), means[1].get(stage, 0.0)) for stage in STAGES]
    shown = tuple(change for change in stages if change.before_us or change.after_us)
    return TraceDiff(before.about, after.about, per_step, shown, tuple(changes))


def _has_steps(record: TraceRecord) -> bool:
    return bool(record.steps) and record.steps[0].name != WHOLE


def _operators(record: TraceRecord, num_steps: int) -> dict[tuple[str, str], tuple[float, float, float]]:
    """Calls, self time on the processor and self time on the device, by kind and name."""
    return {(row.kind, row.name): _figures(row, num_steps) for row in record.by_name()}


def _figures(row: Operator, num_steps: int) -> tuple[float, float, float]:
    return row.calls / num_steps, row.self_cpu_us / num_steps, row.self_device_us / num_steps


_Figures = tuple[float, float, float]


def _change(key: tuple[str, str], before: _Figures | None, after: _Figures | None) -> OperatorChange:
    kind, name = key
    state = "new" if before is None else "gone" if after is None else "both"
    (calls, cpu_us, device_us), (now_calls, now_cpu_us, now_device_us) = before or (0.0, 0.0, 0.0), after or (0.0, 0.0, 0.0)
    return OperatorChange(name, kind, state, calls, now_calls, cpu_us, now_cpu_us, device_us, now_device_us)
