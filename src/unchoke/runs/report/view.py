"""The view model of a run: facts and tables made of its record once, which text, the report and the page of `unchoke ui` render.

In: a record. Out: pairs of words, and `Table`s of text with the shares that a page may draw beside them; nothing where the record
holds nothing. No markup, no layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unchoke.core.errors import list_some
from unchoke.core.metrics import LABELS, in_order, metric_label
from unchoke.core.timeline import StageRow
from unchoke.core.units import format_bytes, format_count, format_number, format_seconds
from unchoke.runs.report import summary
from unchoke.runs.report.layout import columns, shorten, visible
from unchoke.runs.report.summary import ReportedMetric

if TYPE_CHECKING:
    from unchoke.core.findings import Finding
    from unchoke.core.record import LoopRecord, MemoryRecord, ProfileRecord, RunRecord, TargetsRecord, TrainingRecord

FactRows = list[tuple[str, str]]
_STAGE_WORDS = {
    "wait": ("waiting for data", "nothing to compute on: the next batch was still being read"),
    "copy": ("copy", "moving the batch to where it is computed on"),
    "prepare": ("preparing", "augmenting and normalising the batch, and fetching its targets"),
    "forward": ("forward", "the network and the loss"),
    "backward": ("backward", "the gradients"),
    "exchange": ("exchange", "summing gradients with the other processes"),
    "optimizer": ("optimizer", "clipping, moving and averaging the weights"),
    "fill": ("filling the GPU", "reading all rows once, and copying them to where they are computed on"),
    "record": ("capturing a CUDA graph", "trying a step both ways beforehand, and capturing it"),
    "replay": ("CUDA graph", "whole steps, captured once and repeated by one call each"),
    "device": ("waiting for the GPU", "it was still busy with its work when the results were read"),
    "evaluate": ("evaluation", "scoring the validation samples, their reading included, and the last look at val and test"),
    "checkpoint": ("checkpoints", "writing down where the training stands"),
    "profiler": ("profiler", "starting and stopping torch.profiler, and writing down what it recorded"),
    "planning memory": ("planning memory", "measuring beforehand what fits"),
    "begin and end": ("beginning and ending", "building the network before the first step, and saving after the last"),
    "load": ("loading", "getting at pictures: reading and decoding them, or waiting for the threads that do"),
    "encode": ("encode", "the frozen part of the network"),
    "list": ("list", "listing folders, with the size and time of each file"),
    "stat": ("stat", "asking the file system about single files"),
    "open": ("open", "opening files"),
    "read": ("read", "reading bytes from files, or rows from a cache"),
    "verify": ("verify", "comparing a file's content with what was planned"),
    "decode": ("decode", "bytes to pixels"),
    "transform": ("transform", "resizing, cropping and standardising"),
    "collate": ("collate", "putting samples together to a batch"),
    "write": ("write", "writing the result down"),
    "hand over": ("hand-over", "from a batch being ready and asked for until it was there"),
    "other": ("other", "everything between the stages: Python, bookkeeping, the progress line"),
}
_WORKS = {
    "train": "training",
    "extract": "making features",
    "pixels": "filling the pixel cache",
    "check": "looking at the files",
}
_RARE = {"exchange": 0.001, "device": 0.001}
"""Stages that only some machines have are left out where they took less than this share."""
_MEMORY_PARTS = ("weights", "gradients", "optimizer", "activations", "cache", "overhead")
_FUSIONS = {"mean": "averaged", "film": "fused by FiLM", "attention": "fused by attention"}
_TOP, _LONGEST_NAME = 10, 56


@dataclass(frozen=True)
class Table:
    """Rows of text. `shares` of the rows, or `intervals` of their values within 0 to 1, are drawn on pages, not in text."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[int] = ()
    """The columns of numbers."""
    title: str = ""
    shares: Sequence[float | None] = ()
    """One bar for each row."""
    parts: Sequence[Sequence[tuple[str, float, str]]] = ()
    """One bar of several parts for each row: text, share of the width, CSS class."""
    strip: Sequence[float] = ()
    """One bar above the table, made of its rows."""
    intervals: Sequence[tuple[float, float | None, float | None] | None] = ()
    picked: int | None = None
    """The row that stands out."""
    style: str = ""
    """How a page shows it: ``sortable``, ``searched``, or ``stack`` for long texts."""

    def to_text(self) -> str:
        table = columns(self.rows, header=self.header, right=self.right)
        return f"{self.title}\n{table}" if self.title and table else table


def moment(text: str) -> str:
    """An ISO time as ``15 November 2026, 09:52 UTC``; anything else as it is."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return text
    zone = f" {when.tzname()}" if when.tzinfo else ""
    return f"{when.day} {when:%B %Y, %H:%M}{zone}"


def format_value(value: Any) -> str:
    """A setting's value as a person would write it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(format_value(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={format_value(item)}" for key, item in value.items())
    return str(value)


def sorted_facts(held: Mapping[str, Any], *first: str) -> FactRows:
    """What has a value, known names first."""
    names = sorted((name for name in held if held[name] is not None), key=lambda name: in_order(name, first))
    return [(name, format_value(held[name])) for name in names]


# -- results -------------------------------------------------------------------------------------------------------------------


def metric_table(record: RunRecord) -> Table | None:
    """Every figure over everything, with its interval."""
    found = [metric for split in summary.SPLITS for metric in summary.metrics_of(record, split) if not metric.target]
    if not found:
        return None
    rows = [(summary.SPLIT_WORDS[metric.split], metric.label, metric.text, metric.interval) for metric in found]
    intervals = [(one.value, one.low, one.high) if 0 <= one.value <= 1 else None for one in found]
    return Table(("split", "metric", "value", "95 % interval"), rows, right=(2,), intervals=intervals)


def target_tables(record: RunRecord) -> list[Table]:
    """Figures target by target, or class by class, one table a split; a target that follows from others with its sum."""
    sums = derived_targets(record.training.targets if record.training else None)
    word, found = "class" if record.draws_masks else "label" if record.task.kind == LABELS else "target", list[Table]()
    for split in summary.SPLITS:
        by_name = {metric.name: metric for metric in summary.metrics_of(record, split) if metric.target}
        stems = list(dict.fromkeys(name.partition("/")[0] for name in by_name))
        targets = dict.fromkeys(metric.target for metric in by_name.values())
        rows = [
            [f"{name} = {sums[name]}" if name in sums else name, *(metric_cell(by_name.get(f"{stem}/{name}")) for stem in stems)]
            for name in targets
        ]
        header = [f"{summary.SPLIT_WORDS[split]} {word}", *map(metric_label, stems)]
        found += [Table(header, rows, right=range(1, len(header)))] if rows else []
    return found


def metric_cell(metric: ReportedMetric | None) -> str:
    if metric is None:
        return "-"
    return f"{metric.text} ({metric.interval})" if metric.interval else metric.text


def ladder_table(record: RunRecord) -> Table | None:
    """What was tried within given minutes: what each took, its loss on val alone and with those before it, and its share."""
    rows = [
        (
            one.name,
            format_seconds(one.seconds or 0.0),
            "" if one.val_loss is None else format_number(one.val_loss),
            "" if one.together is None else format_number(one.together),
            f"{one.share or 0.0:.0%}",
        )
        for one in record.ladder
    ]
    measured = f"{metric_label(record.selection_metric)} it is picked by"
    header = ("tried within the minutes", "time", measured, "with those before", "share")
    return Table(header, rows, right=(1, 2, 3, 4)) if rows else None


def derived_targets(plan: TargetsRecord | None) -> dict[str, str]:
    """Targets that are not learned but follow: ``{"total": "GDM + dead"}``, in the order of the targets."""
    names = sorted(plan.sums, key=lambda one: in_order(one, plan.names)) if plan else ()
    return {name: " + ".join(plan.sums[name]) for name in names} if plan else {}


# -- how a network was trained -------------------------------------------------------------------------------------------------


def training_facts(record: RunRecord) -> FactRows:
    """Everything worth knowing about the training of a network; nothing for heads."""
    training = record.training
    if training is None or training.loop is None or not training.loop.to_dict():
        return []
    loop, plan = training.loop, training.targets
    weights = zip(plan.names, plan.weights or [], strict=False) if plan else ()
    step = ""
    if loop.batch_size:
        at_once = training.sub_batch_at_the_end or loop.sub_batch
        step = format_count(int(loop.batch_size), "sample")
        step += f", {at_once:.0f} at once" if at_once and at_once < loop.batch_size else ""
        step += f"; {loop.eval_batch:.0f} at once in evaluation" if loop.eval_batch else ""
    regularised = {
        "weight decay": loop.weight_decay,
        "gradients clipped at": loop.clip,
        "mixup": loop.mixup,
        "label smoothing": loop.label_smoothing,
    }
    against = [f"{word} {value:g}" for word, value in regularised.items() if value]
    against += [f"{loop.class_weights} class weights"] if loop.class_weights not in (None, "none") else []
    precise = {
        "channels last": loop.memory_format == "channels_last",
        "compiled": loop.compile,
        "gradient checkpointing": loop.grad_ckpt,
    }
    averaging = "" if loop.ema_decay is None else f"weights are averaged over steps, decay {loop.ema_decay:g}"
    halved, left = training.out_of_memory_halvings, training.sub_batch_at_the_end
    after = f", at the end {left:.0f} at once" if left else ""
    facts = {
        "network": _network_words(record.encoder.name or "network", training),
        "pictures": _picture_words(record.encoder.image_px, training),
        "targets": _target_words(plan) if plan else "",
        "target weights": ", ".join(f"{name} {weight:g}" for name, weight in weights),
        "extra inputs": ", ".join(record.data.inputs_summary or {}),
        "step": step,
        "precision": ", ".join([*([loop.dtype] if loop.dtype else []), *(word for word, used in precise.items() if used)]),
        "learning rate": _rate_words(loop),
        "averaging": averaging if loop.ema_decay or not averaging else "none",
        "regularisation": ", ".join(against),
        "batch statistics": {"frozen": "frozen", "train": "trained"}.get(loop.batch_norm, ""),
        "course": _course_words(record, training),
        "out of memory": f"{format_count(int(halved), 'time')}: what did not fit was halved and run again, same samples{after}"
        if halved
        else "",
    }
    return [(word, text) for word, text in facts.items() if text]


def _network_words(name: str, training: TrainingRecord) -> str:
    cut = training.cut
    whole = {
        "": "",
        "end": ", all of it frozen",
        "blocks": ", all of it frozen, pooled after several blocks",
        "pyramid": f", all of it frozen; a decoder on its pyramid trained ({training.decoder})",
        "none": ", all of it trained, from pixels",
    }
    last = "last" if cut == "-1" else f"last {cut.removeprefix('-')}"
    of = f"of {training.num_blocks:.0f} blocks" if training.num_blocks else "block" if cut == "-1" else "blocks"
    return name + whole.get(cut, f", the {last} {of} trained")


def _picture_words(side_px: float | None, training: TrainingRecord) -> str:
    px = f"{side_px:.0f} px" if side_px else "the network's input size"
    if training.tiles in ("", "1×(1×1)"):
        return f"whole, at {px}" if training.tiles else ""
    return f"{training.tiles} tiles (streams, then rows and columns) at {px}, {_FUSIONS.get(training.fusion, 'fused')}"


def _target_words(plan: TargetsRecord) -> str:
    learned = f"{', '.join(plan.learned)} learned" + (", never negative" if plan.positive else "")
    sums = [f"{name} = {parts}" for name, parts in derived_targets(plan).items()]
    return "; ".join([learned, *sums]) if plan.learned else ""


def _rate_words(loop: LoopRecord) -> str:
    if loop.lr is None:
        return ""
    found = [f"{loop.lr:g} for the head" if loop.body_lr else f"{loop.lr:g}"]
    if loop.body_lr:
        decay = f", each before it {loop.layer_decay:g} times the next" if loop.layer_decay else ""
        found.append(f"{loop.body_lr:g} for the backbone's last layer{decay}")
    if warmup := loop.warmup_epochs:
        found.append(f"{warmup:g} {'epoch' if warmup == 1 else 'epochs'} of warm-up, then a cosine")
    return "; ".join(found)


def _course_words(record: RunRecord, training: TrainingRecord) -> str:
    if training.num_steps is None:
        return ""
    best = summary.picked_epoch(record)
    found = [f"{format_count(int(training.num_steps), 'step')} in {format_count(len(record.history), 'epoch')}"]
    found += [f"epoch {best:g} was kept"] if best else []
    found += [f"resumed from step {training.resumed_step:.0f} after a stop"] if training.resumed_step else []
    return ", ".join(found)


# -- time and memory -----------------------------------------------------------------------------------------------------------


def timing_table(record: RunRecord) -> Table | None:
    """Seconds and share of each stage."""
    stages = summary.stage_seconds(record.timings)
    total = sum(seconds for _, seconds in stages)
    if total <= 0:
        return None
    rows = [(stage, format_seconds(seconds), f"{seconds / total * 100:.0f} %") for stage, seconds in stages]
    rows.append(("total", format_seconds(total), ""))
    return Table(("stage", "time", "share"), rows, right=(1, 2), strip=[seconds / total for _, seconds in stages])


def timing_notes(record: RunRecord) -> list[str]:
    """How a run that was stopped came about, and how fast features were made."""
    stretches, rate = summary.stretches_text(record), record.images_per_s
    found = [f"the run was stopped and went on: {stretches}, added up here"] if stretches else []
    return found + ([f"features were made at {rate:,.0f} {summary.sample_words(record)[1]}/s"] if rate else [])


def stage_table(rows: Sequence[StageRow], *, title: str = "", explain: bool = True) -> Table | None:
    """Stages of the clock with their share, time, calls and meaning; nothing where none took time."""
    total_s = sum(row.seconds for row in rows if row.seconds > 0)
    held = [row for row in rows if row.seconds > 0 and row.seconds >= _RARE.get(row.stage, 0.0) * total_s]
    cells, shares = [], [row.seconds / total_s for row in held]
    for row, share in zip(held, shares, strict=True):
        word, meaning = _STAGE_WORDS.get(row.stage, (row.stage, ""))
        calls = f"{row.calls:,}" if row.calls else ""
        cells.append((word, f"{share * 100:.1f} %", short_time(row.seconds), calls, meaning if explain else ""))
    header = ("stage", "share", "time", "calls", "what it is")
    return Table(header, cells, right=(1, 2, 3), title=title, strip=shares) if held else None


def training_stages(record: RunRecord) -> list[StageRow]:
    """What the time of the training went to in its own thread, and what came before and after its loop."""
    rows = [row for row in record.timeline["train"].stages if row.seconds > 0] if "train" in record.timeline else []
    if not rows:
        return []
    planning_s = record.training.seconds.get("planning memory", 0.0) if record.training else 0.0
    rest_s = record.last_timings.get("train", 0.0) - sum(row.seconds for row in rows) - planning_s
    return [*rows, StageRow("planning memory", planning_s, 0.0, 0), StageRow("begin and end", rest_s, 0.0, 0)]


def work_tables(record: RunRecord, *, explain: bool = False) -> list[Table]:
    """Each piece of work with its stages, and what workers did meanwhile."""
    found, last = [], " in the last stretch" if record.stretches else ""
    for work, title in _WORKS.items():
        if (timeline := record.timeline.get(work)) is None:
            continue
        own = training_stages(record) if work == "train" else timeline.stages
        threads = f", {format_count(timeline.readers, 'worker')} added up" if timeline.readers > 1 else ""
        found += [
            stage_table(own, title=f"{title}: where the time went{last}", explain=explain),
            stage_table(timeline.loading, title=f"{title}: inside loading{threads}", explain=explain),
        ]
    return [table for table in found if table is not None]


def epoch_table(record: RunRecord) -> Table | None:
    """Seconds by stage for each epoch of the training."""
    held = [row for row in (record.timeline["train"].epochs if "train" in record.timeline else ()) if row.get("epoch")]
    names = [name for name in _STAGE_WORDS if any(row.get(name, 0.0) > 0 for row in held)]
    rows = [[f"{row['epoch']:g}", *(short_time(row.get(name, 0.0)) for name in names)] for row in held]
    return Table(["epoch", *(_STAGE_WORDS[name][0] for name in names)], rows, right=range(len(names) + 1)) if names else None


def step_table(step: Mapping[str, Any], *, undisturbed: bool) -> str:
    """Where the time of one step went."""
    how = "without the profiler" if undisturbed else "under the profiler, which slows small operators down"
    title = f"a step takes {short_time(step['seconds'])}: the mean of {format_count(step['num_steps'], 'step')} {how}"
    table = stage_table([StageRow(row["stage"], row["seconds"], 0.0, 0) for row in step["stages"]], title=title)
    return table.to_text() if table else title


def share_words(record: RunRecord) -> str:
    """``forward 31 %, backward 53 %, evaluation 5 %``: the time of training in one line."""
    rows = training_stages(record)
    total_s = sum(row.seconds for row in rows) or 1.0
    known = [(_STAGE_WORDS.get(row.stage, (row.stage, ""))[0], row.seconds / total_s) for row in rows]
    return ", ".join(f"{word} {share * 100:.0f} %" for word, share in known if share >= 0.005)


def short_time(seconds: float) -> str:
    """A time that may be far below a second: three digits that matter."""
    for unit, factor in (("ms", 1e3), ("µs", 1e6)) if seconds < 0.9995 else ():
        value = seconds * factor
        if value >= 0.9995 or unit == "µs":
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"
    return format_seconds(seconds)


def memory_parts(memory: MemoryRecord) -> list[tuple[str, float]]:
    """What the planned memory is made of, in bytes."""
    found = [(name, value) for name, value in (memory.plan.parts if memory.plan else {}).items() if value > 0]
    return sorted(found, key=lambda part: in_order(part[0], _MEMORY_PARTS))


def memory_words(memory: MemoryRecord) -> str:
    """``3.1 GB planned of a limit of 4.0 GB, 3.0 GB measured (planned: weights 90 MB, …)``."""
    limit = memory.plan.limit_bytes if memory.plan else None
    most = "at most " if memory.plan and memory.plan.counted else ""
    of = f" of a limit of {format_bytes(limit)}" if limit else ""
    words = [f"{most}{format_bytes(memory.planned_bytes)} planned{of}"] if memory.planned_bytes else []
    words += [f"{format_bytes(memory.measured_bytes)} measured"] if memory.measured_bytes else []
    parts = ", ".join(f"{name} {format_bytes(value)}" for name, value in memory_parts(memory))
    return ", ".join(words) + (f" (planned: {parts})" if parts and words else "")


def memory_table(memory: MemoryRecord) -> Table | None:
    """Limit, planned and measured, then what was planned for what, all to one scale."""
    limit = memory.plan.limit_bytes if memory.plan else None
    pairs = [("limit", limit), ("planned", memory.planned_bytes), ("measured", memory.measured_bytes)]
    known = [(word, value) for word, value in pairs if value is not None and value > 0]
    if not known:
        return None
    parts = [*known, *((f"planned for {name}", value) for name, value in memory_parts(memory))]
    largest = max(value for _, value in known)
    rows = [(word, format_bytes(value)) for word, value in parts]
    return Table((), rows, right=(1,), shares=[value / largest for _, value in parts])


# -- findings, choices, profiles -----------------------------------------------------------------------------------------------


def finding_place(finding: Finding) -> str:
    """The file, cell and line of a finding, or its first few files and how many more."""
    paths = [visible(path) for path in finding.paths]
    if len(paths) > 1:
        return list_some(paths, limit=3)
    path = finding.path or (paths[0] if paths else "")
    cell = f" cell {finding.cell}" if finding.cell is not None else ""
    line = f":{finding.line}" if finding.line is not None else ""
    return f"{visible(path)}{cell}{line}" if path else ""


def describe_finding(finding: Finding) -> dict[str, Any]:
    """A finding as pages show it."""
    kept = {key: getattr(finding, key) for key in ("code", "message", "fix", "command", "expected_gain", "kind")}
    kept["severity"] = finding.severity if finding.severity in ("error", "warning") else "note"
    return {**kept, "place": finding_place(finding), "evidence": format_value(finding.evidence)}


def operator_tables(profile: ProfileRecord) -> list[Table]:
    """The operators that took most by CPU time, time on the device and memory; only tables that hold something."""
    steps = format_count(profile.num_steps, "step")
    title = f"top {_TOP} of {profile.num_operators} operators by CPU time, in {steps} (self: without what it called)"
    measures = [("self_cpu_s", "cpu_s", profile.cpu_s, title)]
    measures += [("self_device_s", "device_s", profile.device_s, f"top {_TOP} by time on the device")] if profile.device_s else []

    def top(by: str) -> list[Any]:
        return sorted((one for one in profile.operators if getattr(one, by) > 0), key=lambda one: -float(getattr(one, by)))[:_TOP]

    found = []
    for own, whole, total_s, title in measures:
        rows = []
        for one in top(own):
            spent_s = getattr(one, own)
            share = f"{spent_s / total_s * 100:.1f} %" if total_s else ""
            times = short_time(spent_s), share, short_time(getattr(one, whole))
            rows.append((shorten(one.name, _LONGEST_NAME), *times, f"{one.calls:,}", short_time(spent_s / max(1, one.calls))))
        header = ("operator", "self", "share", "with calls", "calls", "self per call")
        found.append(Table(header, rows, right=range(1, 6), title=title))
    own = "self_device_bytes" if profile.device_s else "self_cpu_bytes"
    held = [(shorten(x.name, _LONGEST_NAME), format_bytes(getattr(x, own)), f"{x.calls:,}") for x in top(own)]
    title = f"top {_TOP} by {'device memory' if profile.device_s else 'memory'} they allocated, less what they freed themselves"
    return [*found, *([Table(("operator", "allocated", "calls"), held, right=(1, 2), title=title)] if held else [])]


def profile_files(profile: ProfileRecord, root: Path) -> FactRows:
    """Where the pages and traces of a profile lie."""
    return [("page", str(root / page)) for page in profile.pages] + [("trace", str(root / trace)) for trace in profile.traces]
