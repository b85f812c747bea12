"""Where the time of a run went, stage by stage and inside the readers: the words, the numbers, and one picture.

In: the `timeline` of a record. Out: text for a terminal, and plain values for the report's template. Every stage is explained in
a sentence; nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from unchoke.core.timeline import StageRow
from unchoke.core.units import format_count, format_seconds
from unchoke.runs.report.layout import columns
from unchoke.runs.report.svg import stacked_bar

if TYPE_CHECKING:
    from unchoke.core.record import RunRecord

Model = dict[str, Any]
_WORDS = {
    "wait": ("waiting for data", "nothing to compute on: the next batch was still being read"),
    "copy": ("copy", "moving the batch to where it is computed on"),
    "prepare": ("preparing", "augmenting and normalising the batch, and fetching its targets"),
    "forward": ("forward", "the network and the loss"),
    "backward": ("backward", "the gradients"),
    "exchange": ("exchange", "summing gradients with the other processes"),
    "optimizer": ("optimizer", "clipping, moving and averaging the weights"),
    "fill": ("filling the card", "reading all rows once, and copying them to where they are computed on"),
    "record": ("recording a step", "trying a step both ways beforehand, and recording it"),
    "replay": ("recorded steps", "whole steps, recorded once and repeated by one call each"),
    "device": ("waiting for the device", "the card was still busy with what it had been handed when its results were read"),
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
_TITLES = {
    "train": "training",
    "extract": "making features",
    "pixels": "filling the pixel cache",
    "check": "looking at the files",
}
_COLOURS = {
    "wait": "s2",
    "copy": "s5",
    "prepare": "s6",
    "forward": "s1",
    "backward": "s4",
    "optimizer": "s3",
    "replay": "s1",
    "device": "s4",
    "evaluate": "s7",
    "load": "s2",
    "encode": "s1",
    "decode": "s2",
    "read": "s1",
    "transform": "s4",
    "collate": "s3",
    "write": "s7",
    "list": "s5",
    "stat": "s5",
    "open": "s6",
}
_REST = "s8"
_IF_FELT = ("exchange", "device")
_FELT_SHARE = 0.001
"""Stages that only some machines have are left out where they took next to nothing."""


class StageTime(NamedTuple):
    """One stage: what it is called, what it means, and how much went to it. `calls` is None where nobody counted."""

    stage: str
    label: str
    meaning: str
    seconds: float
    share: float
    calls: int | None


def stages(record: RunRecord, work: str = "train") -> list[StageTime]:
    """What the time of one piece of work went to, in its own thread; for training also what came before and after the loop."""
    held = [*record.timeline[work].stages] if work in record.timeline else []
    if work == "train" and any(row.seconds > 0 for row in held):
        held += _around(record, sum(row.seconds for row in held if row.seconds > 0))
    return _parts(held)


def loading(record: RunRecord, work: str = "train") -> list[StageTime]:
    """What readers did for it meanwhile, summed over their threads."""
    return _parts(record.timeline[work].loading) if work in record.timeline else []


def _around(record: RunRecord, inside_s: float) -> list[StageRow]:
    """What the stage `train` took beside the loop."""
    planning_s = record.training.seconds.get("planning memory", 0.0) if record.training else 0.0
    rest_s = record.last_timings.get("train", 0.0) - inside_s - planning_s
    return [StageRow("planning memory", planning_s, 0.0, 0), StageRow("begin and end", rest_s, 0.0, 0)]


def _parts(rows: Sequence[StageRow]) -> list[StageTime]:
    held = [row for row in rows if row.seconds > 0]
    total_s = sum(row.seconds for row in held)
    found = [StageTime(row.stage, *_words(row.stage), row.seconds, row.seconds / total_s, row.calls or None) for row in held]
    return [part for part in found if part.stage not in _IF_FELT or part.share >= _FELT_SHARE]


def _words(stage: str) -> tuple[str, str]:
    return _WORDS.get(stage, (stage, ""))


def readers_text(record: RunRecord, work: str = "train") -> str:
    """``2 threads``: how many read at the same time; nothing where it was one."""
    readers = record.timeline[work].readers if work in record.timeline else 0
    return format_count(readers, "thread") if readers > 1 else ""


def render_timeline(record: RunRecord) -> str:
    """Every piece of work with its stages and what went on inside loading, as tables."""
    return "\n\n".join(text for work in _TITLES if (text := _render_work(record, work)))


def _render_work(record: RunRecord, work: str) -> str:
    own, inside = stages(record, work), loading(record, work)
    last = " in the last stretch" if record.stretches else ""
    tables = [_table(f"{_TITLES[work]}: where the time went{last}", own)] if own else []
    if inside:
        threads = readers_text(record, work)
        tables.append(_table(f"{_TITLES[work]}: inside loading" + (f", {threads} added up" if threads else ""), inside))
    return "\n\n".join(tables)


def _table(title: str, parts: Sequence[StageTime]) -> str:
    rows = [
        (part.label, f"{part.share * 100:.1f} %", _short(part.seconds), "" if part.calls is None else f"{part.calls:,}")
        for part in parts
    ]
    return f"{title}\n{columns(rows, header=('stage', 'share', 'time', 'calls'), right=(1, 2, 3))}"


def render_step(step: Mapping[str, Any], *, undisturbed: bool) -> str:
    """Where the time of one step went."""
    how = "without the profiler" if undisturbed else "under the profiler, which slows small operators down"
    title = f"a step takes {_short(step['seconds'])}: the mean of {format_count(step['num_steps'], 'step')} {how}"
    parts = _parts([StageRow(row["stage"], row["seconds"], 0.0, 0) for row in step["stages"]])
    rows = [(part.label, f"{part.share * 100:.1f} %", _short(part.seconds), part.meaning) for part in parts]
    return f"{title}\n{columns(rows, header=('stage', 'share', 'time', 'what it is'), right=(1, 2))}"


def _short(seconds: float) -> str:
    """A time that may be far below a second: three digits that matter."""
    if seconds >= 0.9995:
        return format_seconds(seconds)
    return f"{seconds * 1000:.{2 if seconds < 0.01 else 1 if seconds < 0.1 else 0}f} ms"


def picture(record: RunRecord) -> list[Model] | None:
    """For the report: each piece of work as a bar of its stages and one of what readers did, every stage explained."""
    found = [model for work in _TITLES if (model := _picture_of(record, work))]
    return found or None


def _picture_of(record: RunRecord, work: str) -> Model | None:
    own, inside = stages(record, work), loading(record, work)
    if not own and not inside:
        return None
    wait = next((part for part in own if part.stage == "wait"), None)
    return {
        "title": _TITLES[work],
        "own": _bar(own) if own else None,
        "inside": _bar(inside) if inside else None,
        "readers": readers_text(record, work),
        "waiting": f"{wait.share * 100:.0f} %" if wait else "",
        "epochs": _epochs(record, work),
    }


def _bar(parts: Sequence[StageTime]) -> Model:
    coloured = [(part, _COLOURS.get(part.stage, _REST)) for part in parts]
    drawn = [(f"{part.label}: {_short(part.seconds)}, {part.share * 100:.0f} %", part.share, css) for part, css in coloured]
    rows = [
        {
            "label": part.label,
            "time": _short(part.seconds),
            "share": f"{part.share * 100:.1f} %",
            "calls": "" if part.calls is None else f"{part.calls:,}",
            "meaning": part.meaning,
            "class": css,
        }
        for part, css in coloured
    ]
    return {"bar": stacked_bar(drawn, height_px=26, class_="strip rounded"), "rows": rows}


def _epochs(record: RunRecord, work: str) -> Model | None:
    """Seconds by stage for each epoch, the stages as columns."""
    held = [row for row in (record.timeline[work].epochs if work in record.timeline else ()) if row.get("epoch")]
    names = [name for name in _WORDS if any(row.get(name, 0.0) > 0 for row in held)]
    if not held or not names:
        return None
    body = [[f"{row['epoch']:g}", *(_short(row.get(name, 0.0)) for name in names)] for row in held]
    return {"header": ["epoch", *(_words(name)[0] for name in names)], "rows": body}
