"""What a run's record says, in words and numbers: shared by the text and the HTML renderers.

In comes a record (any key may be missing), out come plain values: which metric leads, how it reads with its interval, where the
time went, which classes are confused. No markup, no layout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unchoke.core.metrics import LEADING, format_metric, in_order, metric_label, metric_order
from unchoke.reports.layout import visible

_SPLITS = ("test", "val")
STAGES = (
    *("index", "check", "scenes", "worker", "encoder", "masks", "engine", "extract", "pixels", "train"),
    *("load", "evaluate", "score", "report"),
)
SPLIT_WORDS = {"test": "test", "val": "validation", "train": "training"}


@dataclass(frozen=True)
class ReportedMetric:
    """One metric of one split, with its 95 % interval where there is one."""

    split: str
    name: str
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def label(self) -> str:
        return metric_label(self.name)

    @property
    def target(self) -> str:
        """The target a figure is about; nothing for one over everything."""
        return self.name.partition("/")[2]

    @property
    def text(self) -> str:
        return format_metric(self.name, self.value)

    @property
    def interval(self) -> str:
        """``92.1–95.8 %``, or nothing where no interval was computed."""
        if self.low is None or self.high is None:
            return ""
        low, high = format_metric(self.name, self.low), format_metric(self.name, self.high)
        return f"{low.removesuffix(' %')}–{high}" if low.endswith(" %") else f"{low} to {high}"


def number(value: Any) -> float | None:
    """`value` as a finite float, or None: records come from files and may hold anything."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def section(record: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The object under `key`, empty when it is missing or something else."""
    value = record.get(key)
    return dict(value) if isinstance(value, Mapping) else {}


def rows(record: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The list of objects under `key`; entries that are no objects are left out."""
    value = record.get(key)
    return [dict(item) for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def texts(record: Mapping[str, Any], key: str) -> list[str]:
    """The list of texts under `key`, empty when it is missing or something else."""
    value = record.get(key)
    return [str(item) for item in value] if isinstance(value, list | tuple) else []


def metrics_of(record: Mapping[str, Any], split: str) -> list[ReportedMetric]:
    """Every metric of `split` that has a value, in the order a reader wants them."""
    found = []
    for name, entry in section(section(record, "metrics"), split).items():
        value = number(entry.get("value")) if isinstance(entry, Mapping) else number(entry)
        if value is not None:
            bounds = entry if isinstance(entry, Mapping) else {}
            found.append(ReportedMetric(split, name, value, number(bounds.get("low")), number(bounds.get("high"))))
    targets = texts(section(record, "task"), "names")
    return sorted(found, key=lambda metric: _metric_order(metric.name, targets))


def overall_metrics(record: Mapping[str, Any], split: str) -> list[ReportedMetric]:
    """The figures over everything."""
    return [metric for metric in metrics_of(record, split) if not metric.target]


@dataclass(frozen=True)
class TargetMetrics:
    """The figures of one target, in the order of the names they are given under; None where there is none."""

    target: str
    metrics: list[ReportedMetric | None]


def target_metrics(record: Mapping[str, Any], split: str) -> tuple[list[str], list[TargetMetrics]]:
    """The names of the figures that single targets have, and each target's."""
    found = [metric for metric in metrics_of(record, split) if metric.target]
    stems = list(dict.fromkeys(metric.name.partition("/")[0] for metric in found))
    by_name = {metric.name: metric for metric in found}
    targets = dict.fromkeys(metric.target for metric in found)
    return stems, [TargetMetrics(target, [by_name.get(f"{stem}/{target}") for stem in stems]) for target in targets]


def _metric_order(name: str, targets: Sequence[str]) -> tuple[bool, tuple[int, str], tuple[int, str]]:
    """Figures over everything first, then those of single targets: one figure after the other, targets in their own order."""
    stem, _, target = name.partition("/")
    return bool(target), metric_order(stem), in_order(target, targets)


def leading_metric(record: Mapping[str, Any]) -> ReportedMetric | None:
    """The metric to put first: the one the head was picked by, on the test split if there is one, else on validation."""
    picked_by = str(record.get("selection_metric", ""))
    for split in _SPLITS:
        by_name = {metric.name: metric for metric in metrics_of(record, split)}
        for name in (picked_by, *LEADING):
            if name in by_name:
                return by_name[name]
    return None


def baseline_sentence(record: Mapping[str, Any]) -> str:
    """What a rule without any training reaches (`baseline` of the record), so that the network can be judged; else nothing."""
    held = section(record, "baseline")
    split = next((split for split in _SPLITS if number(section(held, split).get("iou")) is not None), "")
    iou, name = number(section(held, split).get("iou")), section(held, split).get("class")
    if iou is None or not held.get("name"):
        return ""
    own = next((metric.text for metric in metrics_of(record, split) if metric.name == f"iou/{name}"), "")
    against = f"; the network reaches {own}" if own else ""
    reached = f"an IoU of {format_metric('iou', iou)} for {visible(name)} on the {SPLIT_WORDS[split]} patches"
    return f"Without any training, {visible(held['name'])} reaches {reached}{against}."


def picked_epoch(record: Mapping[str, Any]) -> float | None:
    """The epoch that was kept, where the record says so."""
    return next((number(row.get("best_epoch")) for row in rows(record, "sweep") if row.get("picked")), None)


def is_segmentation(record: Mapping[str, Any]) -> bool:
    """Whether the run names the class of each pixel."""
    return section(record, "task").get("kind") == "segmentation"


def sample_words(record: Mapping[str, Any]) -> tuple[str, str]:
    """What the splits count, one and several: patches of scenes, or images."""
    return ("patch", "patches") if is_segmentation(record) else ("image", "images")


def split_size(record: Mapping[str, Any], split: str) -> int | None:
    size = number(section(section(record, "data"), "splits").get(split))
    return int(size) if size is not None else None


def stage_seconds(record: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Stages and their seconds, in the order they ran; `total` is no stage, nor is what one is made of (`train/forward`)."""
    timings = section(record, "timings")
    timed = [(stage, number(timings[stage])) for stage in timings if stage != "total" and "/" not in stage]
    known = [(stage, seconds) for stage, seconds in timed if seconds is not None and seconds >= 0]
    return sorted(known, key=lambda item: in_order(item[0], STAGES))


@dataclass(frozen=True)
class Confused:
    """`count` samples of class `truth` were called `predicted`: `share` of all samples of that class."""

    truth: str
    predicted: str
    count: int
    share: float


def confused_pairs(matrix: Sequence[Sequence[int]], names: Sequence[str], *, limit: int = 12) -> list[Confused]:
    """The most frequent confusions, largest first."""
    pairs = []
    for truth, row in enumerate(matrix):
        total = sum(row)
        for predicted, count in enumerate(row):
            if predicted != truth and count > 0:
                pairs.append(Confused(names[truth], names[predicted], count, count / total))
    pairs.sort(key=lambda pair: (-pair.count, -pair.share, pair.truth, pair.predicted))
    return pairs[:limit]
