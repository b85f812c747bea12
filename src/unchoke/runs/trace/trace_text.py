"""A trace as plain text: where a step's time went, the ten costliest operators by time, device time and memory, what changed.

In: a record, and a comparison where there is one. Out: text and sentences, for a terminal and for the page. Nothing here prints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from unchoke.core.units import format_bytes, format_count
from unchoke.runs.report.layout import columns, shorten, wrap
from unchoke.runs.trace.trace_causes import find_causes
from unchoke.runs.trace.trace_record import TraceDiff, TraceOrigin, TraceRecord
from unchoke.runs.trace.trace_steps import STAGES, WHOLE

_TOP = 10
_NAME = 60
_UNITS = (("s", 1e6), ("ms", 1e3), ("µs", 1.0))


def format_us(us: float, *, signed: bool = False) -> str:
    """``20854.2`` as ``20.9 ms``."""
    if us == 0:
        return "0"
    sign = "-" if us < 0 else "+" if signed and us > 0 else ""
    size = abs(us)
    unit, factor = next(((unit, factor) for unit, factor in _UNITS if size >= factor * 0.9995), _UNITS[-1])
    value = size / factor
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{sign}{value:.{digits}f} {unit}"


def about_facts(record: TraceRecord) -> list[str]:
    """The line under the title: device, torch, what was recorded."""
    about = record.about
    return [
        *_devices(record),
        *([f"torch {about.torch}"] if about.torch else []),
        *([f"{about.schedule} of the run"] if about.schedule else []),
        f"{format_us(about.duration_us)} recorded",
        format_count(about.num_events, "event"),
    ]


def _devices(record: TraceRecord) -> list[str]:
    """``2 × NVIDIA H200``: a file names every card of its machine, used or not."""
    if not record.about.devices:
        if record.about.unseen:
            return [f"{record.about.unseen}, whose kernels the profiler cannot see"]
        return ["a device that the file does not name" if record.kernels else "no device beside the CPU"]
    return [f"{count} × {name}" if count > 1 else name for name, count in Counter(record.about.devices).items()]


def describe_steps(record: TraceRecord) -> list[str]:
    """What the split says, in sentences; nothing is judged."""
    means = record.mean_stages()
    whole_us = sum(means.values())
    if not whole_us:
        return ["Nothing ran on the processor in this trace."]
    subject = "The whole recording takes" if record.steps[0].name == WHOLE else "A step takes"
    longest = sorted(means, key=lambda stage: -means[stage])[:3]
    shares = ", ".join(f"{stage} {means[stage] / whole_us * 100:.0f} %" for stage in longest)
    average = f" on average over {len(record.steps)} steps" if len(record.steps) > 1 else ""
    sentences = [f"{subject} {format_us(whole_us)}{average}: {shares}."]
    if record.kernels:
        busy = sum(step.device_busy_us for step in record.steps) / sum(step.wall_us for step in record.steps)
        sentences.append(f"The device is busy {busy * 100:.0f} % of that time; the rest it waits for work.")
    cut_off = [cut_sentence(record.about)] if record.about.cut_off else []
    return [*cut_off, *sentences, *record.about.notes]


def describe_causes(record: TraceRecord) -> list[str]:
    """What holds the steps back and what to do about it, largest share first."""
    return [f"{finding.code}: {finding.message}. {finding.fix}" for finding in find_causes(record)]


def cut_sentence(about: TraceOrigin) -> str:
    """That a recording was cut off, and what is missing."""
    return f"{about.file} was cut off before the recording was over: {about.cut_off}."


def diff_warnings(diff: TraceDiff) -> list[str]:
    """What makes two recordings hard to compare."""
    cut = [cut_sentence(about) for about in (diff.before, diff.after) if about.cut_off]
    half = "Calls and times of operators count what was recorded of a step that was cut off: record it again to compare them."
    return [*cut, half] if cut else []


def describe_kernels(record: TraceRecord) -> str:
    """Why there are none, where there are none."""
    if record.kernels:
        return ""
    if record.about.unseen:
        return (
            f"The network ran on {record.about.unseen}, and torch.profiler cannot see the kernels of such a device: what is "
            "listed as operators is the time the CPU took to hand work over or to wait for it, not the time of the work itself."
        )
    return (
        "This trace holds no work of a device: either the program ran on the CPU, where operators are plain function calls and "
        "there are no kernels to list, or the profiler was started without ProfilerActivity.CUDA. The operators' self time tells "
        "where a CPU's time went."
    )


def describe_split(record: TraceRecord) -> str:
    """How the parts of a step were told apart."""
    if record.about.split_by == "marks":
        return "Split by the marks that the training set around its stages."
    return (
        "Split by what torch marks on its own: batches asked of a DataLoader, the optimizer's step, gradient functions, copies "
        "to the device; operators before the last gradient function count as forward. Python between two calls of one stage "
        "belongs to it."
    )


def render_trace(record: TraceRecord, diff: TraceDiff | None = None) -> str:
    """The overview, the top tables, and the comparison where there is one."""
    parts = [
        f"{record.about.file}: {', '.join(about_facts(record))}",
        _overview(record),
        "\n".join(wrap(sentence, indent="") for sentence in describe_steps(record)),
        wrap(describe_kernels(record), indent="") if record.about.unseen else "",
        "\n".join(wrap(sentence, indent="") for sentence in describe_causes(record)),
        *(_top(record, title, figure, show) for title, figure, show in _FIGURES),
        render_diff(diff) if diff else "",
    ]
    return "\n\n".join(part for part in parts if part)


def _overview(record: TraceRecord) -> str:
    means = record.mean_stages()
    whole_us = sum(means.values()) or 1.0
    rows = [(stage, format_us(mean), f"{mean / whole_us * 100:.1f} %", STAGES[stage]) for stage, mean in means.items()]
    return columns(rows, header=("stage", "mean", "share", "what it is"), right=(1, 2))


_FIGURES: Sequence[tuple[str, str, Callable[[float], str]]] = (
    ("self CPU time", "self_cpu_us", format_us),
    ("self device time", "self_device_us", format_us),
    ("CPU memory it kept", "self_cpu_bytes", format_bytes),
    ("device memory it kept", "self_device_bytes", format_bytes),
)


def _top(record: TraceRecord, title: str, figure: str, show: Callable[[float], str]) -> str:
    """The ten largest; nothing where the trace has no such figure."""
    found = [(getattr(row, figure), row) for row in record.by_name() if getattr(row, figure) > 0]
    whole = sum(value for value, _ in found)
    cells = [
        (shorten(row.name, _NAME), show(value), f"{value / whole * 100:.1f} %", f"{row.calls:,}")
        for value, row in sorted(found, key=lambda pair: -pair[0])[:_TOP]
    ]
    return columns(cells, header=("operator", title, "share", "calls"), right=(1, 2, 3)) if cells else ""


def render_diff(diff: TraceDiff) -> str:
    """Stages before and after, then the ten operators that changed most."""
    unit = "in one step" if diff.per_step else "in the whole recording"
    columns_us = ("before_us", "after_us", "change_us")
    stages = [*diff.stages, {"stage": "all", **{name: sum(row[name] for row in diff.stages) for name in columns_us}}]
    rows = [
        (row["stage"], format_us(row["before_us"]), format_us(row["after_us"]), format_us(row["change_us"], signed=True))
        for row in stages
    ]
    operators = [
        (
            shorten(row["name"], _NAME) + ("" if row["state"] == "both" else f" ({row['state']})"),
            format_us(row["before_cpu_us"]),
            format_us(row["after_cpu_us"]),
            format_us(row["cpu_change_us"], signed=True),
            format_us(row["device_change_us"], signed=True),
            f"{row['before_calls']:,.4g} → {row['after_calls']:,.4g}",
        )
        for row in diff.operators[:_TOP]
    ]
    header = ("operator", "self CPU before", "after", "change", "device change", "calls")
    parts = [
        f"{diff.before.file} (before) against {diff.after.file} (after), {unit}",
        "\n".join(wrap(f"warning: {sentence}", indent="") for sentence in diff_warnings(diff)),
        columns(rows, header=("stage", "before", "after", "change"), right=(1, 2, 3)),
        columns(operators, header=header, right=(1, 2, 3, 4)),
    ]
    return "\n\n".join(part for part in parts if part)
