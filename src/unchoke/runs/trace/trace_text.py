"""A trace as tables and sentences, for the terminal and for the page: where a step's time went, the costliest operators and
kernels, what changed. In: a record, and a comparison where there is one. Nothing here prints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from unchoke.core.units import format_bytes, format_count
from unchoke.runs.report.charts import NUM_COLOURS
from unchoke.runs.report.layout import shorten, tell_apart, wrap
from unchoke.runs.report.view import Table
from unchoke.runs.trace.trace_causes import find_causes
from unchoke.runs.trace.trace_record import KernelRow, OperatorRow, TraceDiff, TraceOrigin, TraceRecord
from unchoke.runs.trace.trace_steps import STAGES, WHOLE

_TOP, _MOST_STEPS = 10, 200
_NAME, _LONGEST_NAME = 60, 200
_UNITS = (("s", 1e6), ("ms", 1e3), ("µs", 1.0))


def format_us(us: float, *, signed: bool = False) -> str:
    """``20854.2`` as ``20.9 ms``."""
    if us == 0:
        return "0"
    sign = "-" if us < 0 else "+" if signed else ""
    size = abs(us)
    unit, factor = next(((unit, factor) for unit, factor in _UNITS if size >= factor * 0.9995), _UNITS[-1])
    value = size / factor
    return f"{sign}{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f} {unit}"


# -- sentences -----------------------------------------------------------------------------------------------------------------


def about_facts(record: TraceRecord) -> list[str]:
    """The line under the title: device, torch, what was recorded. A file names every GPU of its machine, used or not."""
    about = record.about
    devices = [f"{count} × {name}" if count > 1 else name for name, count in Counter(about.devices).items()]
    if not devices and about.unseen:
        devices = [f"{about.unseen}, whose kernels the profiler cannot see"]
    elif not devices:
        devices = ["a device that the file does not name" if record.kernels else "no device beside the CPU"]
    facts = [f"torch {about.torch}" if about.torch else "", f"{about.schedule} of the run" if about.schedule else ""]
    recorded = [f"{format_us(about.duration_us)} recorded", format_count(about.num_events, "event")]
    return [*devices, *filter(None, facts), *recorded]


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
    sentences = [cut_sentence(record.about)] if record.about.cut_off else []
    sentences.append(f"{subject} {format_us(whole_us)}{average}: {shares}.")
    if record.kernels:
        busy = sum(step.device_busy_us for step in record.steps) / sum(step.wall_us for step in record.steps)
        sentences.append(f"The device is busy {busy * 100:.0f} % of that time; the rest it waits for work.")
    return [*sentences, *record.about.notes]


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
    """Why there are no kernels, where there are none."""
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


# -- tables --------------------------------------------------------------------------------------------------------------------


def stage_table(record: TraceRecord) -> Table | None:
    """The mean step by stage."""
    means = record.mean_stages()
    whole_us = sum(means.values()) or 1.0
    rows = [(stage, format_us(mean), f"{mean / whole_us * 100:.1f} %", STAGES[stage]) for stage, mean in means.items()]
    shares = [mean / whole_us for mean in means.values()]
    return Table(("stage", "mean", "share", "what it is"), rows, right=(1, 2), strip=shares) if rows else None


def step_table(record: TraceRecord) -> Table:
    """Every step with its stages as one bar, in the colours of `stage_table`; the longest fills the width."""
    steps, colours = (
        record.steps[:_MOST_STEPS],
        {stage: f"s{n % NUM_COLOURS + 1}" for n, stage in enumerate(record.mean_stages())},
    )
    longest_us = max((step.wall_us for step in steps), default=0.0) or 1.0
    rows, parts = [], []
    for step in steps:
        wall = format_us(step.wall_us)
        busy = f"{step.device_busy_us / step.wall_us * 100:.0f} %" if step.wall_us else ""
        rows.append([step.name, wall, *([busy] if record.kernels else [])])
        spent = [(stage, step.stages[stage]) for stage in STAGES if stage in step.stages]
        parts.append([(f"{stage}: {format_us(us)} of {wall}", us / longest_us, colours.get(stage, "s8")) for stage, us in spent])
    header = ["step", "time", *(["device busy"] if record.kernels else [])]
    return Table(header, rows, right=(1, 2), parts=parts)


def operator_table(rows: Sequence[OperatorRow]) -> Table:
    """Every figure of every operator."""
    whole_us = sum(row.self_cpu_us for row in rows) or 1.0
    return _sortable(
        {
            "operator": _names(rows),
            "shapes": [row.shapes for row in rows],
            "calls": [f"{row.calls:,}" for row in rows],
            "self CPU": [format_us(row.self_cpu_us) for row in rows],
            "share": [f"{row.self_cpu_us / whole_us * 100:.1f} %" for row in rows],
            "total CPU": [format_us(row.total_cpu_us) for row in rows],
            "mean CPU": [format_us(row.total_cpu_us / row.calls) for row in rows],
            "self device": [format_us(row.self_device_us) for row in rows],
            "total device": [format_us(row.total_device_us) for row in rows],
            "CPU memory": [format_bytes(row.self_cpu_bytes) for row in rows],
            "device memory": [format_bytes(row.self_device_bytes) for row in rows],
        },
        words=("operator", "shapes"),
    )


def kernel_table(record: TraceRecord) -> Table:
    """Every kernel, copy and fill."""
    rows = record.kernels
    return _sortable(
        {
            "kernel": _names(rows, usual="kernel"),
            "calls": [f"{row.calls:,}" for row in rows],
            "total": [format_us(row.total_us) for row in rows],
            "share": [f"{row.share * 100:.1f} %" for row in rows],
            "mean": [format_us(row.mean_us) for row in rows],
            "min": [format_us(row.min_us) for row in rows],
            "max": [format_us(row.max_us) for row in rows],
            "launched by": [row.launched_by for row in rows],
            "grid": [row.grid for row in rows],
            "block": [row.block for row in rows],
            "registers": ["" if row.registers is None else str(row.registers) for row in rows],
            "shared": ["" if row.shared_bytes is None else format_bytes(row.shared_bytes) for row in rows],
            "occupancy": ["" if row.occupancy_percent is None else f"{row.occupancy_percent:.0f} %" for row in rows],
            "moved": [format_bytes(row.moved_bytes) if row.moved_bytes else "" for row in rows],
        },
        words=("kernel", "launched by", "grid", "block"),
    )


def change_tables(diff: TraceDiff, *, most: int | None = None, longest: int = _LONGEST_NAME) -> tuple[Table, Table]:
    """Stages before and after with their sum, and operators, those that changed most first."""
    figures = ("before_us", "after_us", "change_us")
    summed = {"stage": "all", **{name: sum(row[name] for row in diff.stages) for name in figures}}
    stages = [
        (row["stage"], format_us(row["before_us"]), format_us(row["after_us"]), format_us(row["change_us"], signed=True))
        for row in [*diff.stages, summed]
    ]
    operators = [
        (
            shorten(row["name"], longest) + ("" if row["state"] == "both" else f" ({row['state']})"),
            format_us(row["before_cpu_us"]),
            format_us(row["after_cpu_us"]),
            format_us(row["cpu_change_us"], signed=True),
            format_us(row["device_change_us"], signed=True),
            f"{row['before_calls']:,.4g} → {row['after_calls']:,.4g}",
        )
        for row in diff.operators[:most]
    ]
    header = ("operator", "self CPU before", "after", "change", "device change", "calls")
    return (
        Table(("stage", "before", "after", "change"), stages, right=(1, 2, 3)),
        Table(header, operators, right=(1, 2, 3, 4), style="sortable searched"),
    )


def _names(rows: Iterable[OperatorRow | KernelRow], usual: str = "operator") -> list[str]:
    return tell_apart([row.name if row.kind == usual else f"{row.name} ({row.kind})" for row in rows], _LONGEST_NAME)


def _sortable(columns: Mapping[str, Sequence[str]], *, words: Sequence[str]) -> Table:
    """A table of these columns, without those that say nothing."""
    held = {name: cells for name, cells in columns.items() if set(cells) - {"", "0", "0 B"}}
    right = [place for place, name in enumerate(held) if name not in words]
    return Table(list(held), list(zip(*held.values(), strict=True)), right=right, style="sortable searched")


# -- for a terminal ------------------------------------------------------------------------------------------------------------

_FIGURES: Sequence[tuple[str, str, Callable[[float], str]]] = (
    ("self CPU time", "self_cpu_us", format_us),
    ("self device time", "self_device_us", format_us),
    ("CPU memory it kept", "self_cpu_bytes", format_bytes),
    ("device memory it kept", "self_device_bytes", format_bytes),
)


def render_trace(record: TraceRecord, diff: TraceDiff | None = None) -> str:
    """The mean step, sentences, the ten costliest operators by each figure, and the comparison where there is one."""
    stages = stage_table(record)
    parts = [
        f"{record.about.file}: {', '.join(about_facts(record))}",
        stages.to_text() if stages else "",
        _lines(describe_steps(record)),
        _lines([describe_kernels(record)] if record.about.unseen else []),
        _lines(describe_causes(record)),
    ]
    for title, figure, show in _FIGURES:
        found = [(getattr(row, figure), row) for row in record.by_name() if getattr(row, figure) > 0]
        whole = sum(value for value, _ in found)
        rows = [
            (shorten(row.name, _NAME), show(value), f"{value / whole * 100:.1f} %", f"{row.calls:,}")
            for value, row in sorted(found, key=lambda pair: -pair[0])[:_TOP]
        ]
        parts.append(Table(("operator", title, "share", "calls"), rows, right=(1, 2, 3)).to_text() if rows else "")
    return "\n\n".join(part for part in [*parts, render_diff(diff) if diff else ""] if part)


def render_diff(diff: TraceDiff) -> str:
    """Stages before and after, then the ten operators that changed most."""
    unit = "in one step" if diff.per_step else "in the whole recording"
    parts = [
        f"{diff.before.file} (before) against {diff.after.file} (after), {unit}",
        _lines(f"warning: {sentence}" for sentence in diff_warnings(diff)),
        *(table.to_text() for table in change_tables(diff, most=_TOP, longest=_NAME)),
    ]
    return "\n\n".join(part for part in parts if part)


def _lines(sentences: Iterable[str]) -> str:
    return "\n".join(wrap(sentence, indent="") for sentence in sentences)
