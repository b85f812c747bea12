"""What a run's record says, in words and numbers: shared by the text and the HTML renderers.

In comes a record or a part of it, out come plain values: which metric leads, how it reads with its interval, where the time went,
which classes are confused. No markup, no layout.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unchoke.core.choices import BLEND, CONFIGURATION
from unchoke.core.metrics import LEADING, find_metric, format_metric, in_order, metric_label, metric_order
from unchoke.core.settings import Settings
from unchoke.core.units import format_count, format_number, format_seconds
from unchoke.runs.report.layout import visible

if TYPE_CHECKING:
    from unchoke.core.record import GroupGapRecord, Interval, RecordedRun, RungRecord, RunRecord

SPLITS = ("test", "val")
_LITTLE = 0.01
"""A gain of which even the upper limit is below this is little: a point of accuracy, or 0.01 of R²."""
_ACROSS, _TORN_GROUPS = "duplicate-across-splits", "group-leakage"
_SPOILT = {_ACROSS: "on another side of the split", "duplicate-label-conflict": "under another label"}
STAGES = (
    *("index", "check", "scenes", "worker", "libraries", "encoder", "masks", "engine", "extract", "pixels", "groups", "train"),
    *("load", "evaluate", "score", "curve", "report"),
)
_JudgedKey = tuple[str, str, str]
"""A split, a digest of its samples' ids, and one of their contents and labels, where these are known."""
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


def metrics_of(run: RecordedRun, split: str) -> list[ReportedMetric]:
    """Every metric of `split` that has a value, in the order a reader wants them: figures over everything first, then those of
    single targets, one figure after the other, targets in their own order.
    """

    def order(metric: ReportedMetric) -> tuple[bool, tuple[int, str], tuple[int, str]]:
        stem, _, target = metric.name.partition("/")
        return bool(target), metric_order(stem), in_order(target, run.task.names)

    figures = run.metrics.get(split, {}).items()
    known = [ReportedMetric(split, name, one.value, one.low, one.high) for name, one in figures if one.value is not None]
    return sorted(known, key=order)


def overall_metrics(run: RecordedRun, split: str) -> list[ReportedMetric]:
    """The figures over everything."""
    return [metric for metric in metrics_of(run, split) if not metric.target]


@dataclass(frozen=True)
class TargetMetrics:
    """The figures of one target, in the order of the names they are given under; None where there is none."""

    target: str
    metrics: list[ReportedMetric | None]


def target_metrics(run: RecordedRun, split: str) -> tuple[list[str], list[TargetMetrics]]:
    """The names of the figures that single targets have, and each target's."""
    found = [metric for metric in metrics_of(run, split) if metric.target]
    stems = list(dict.fromkeys(metric.name.partition("/")[0] for metric in found))
    by_name = {metric.name: metric for metric in found}
    targets = dict.fromkeys(metric.target for metric in found)
    return stems, [TargetMetrics(target, [by_name.get(f"{stem}/{target}") for stem in stems]) for target in targets]


def leading_metric(run: RecordedRun) -> ReportedMetric | None:
    """The metric to put first, on the test split if there is one, else on validation: the one the head was picked by where that
    says how good answers are, and not only how good their probabilities are.
    """
    for split in SPLITS:
        by_name = {metric.name: metric for metric in metrics_of(run, split)}
        for name in (*(() if run.selection_metric == "log_loss" else (run.selection_metric,)), *LEADING):
            if name in by_name:
                return by_name[name]
    return None


def baseline_sentence(record: RunRecord) -> str:
    """What a rule without any training reaches (`baseline` of the record), so that the network can be judged; else nothing."""
    held = record.baseline
    if held is None or not held.name:
        return ""
    for split, score in (("test", held.test), ("val", held.val)):
        if score is not None and score.iou is not None:
            own = next((metric.text for metric in metrics_of(record, split) if metric.name == f"iou/{score.class_}"), "")
            against = f"; the network reaches {own}" if own else ""
            reached = (
                f"an IoU of {format_metric('iou', score.iou)} for {visible(score.class_)} on the {SPLIT_WORDS[split]} patches"
            )
            return f"Without any training, {visible(held.name)} reaches {reached}{against}."
    return ""


def value_interval_sentence(record: RunRecord) -> str:
    """How far around its predictions the truth lies, and how often it did on test; nothing for classes."""
    held = record.value_intervals
    if held is None or not held.half_widths:
        return ""
    widths = ", ".join(f"{visible(name)} ± {format_number(width)}" for name, width in held.half_widths.items())
    said = f"`predict` gives intervals that are to hold {held.level * 100:g} % of true values ({widths})"
    shares = [one.value for one in held.coverage.values() if one.value is not None]
    if not shares:
        return f"{said}."
    return f"{said}; on {format_count(held.num_test, 'test image')} they held {sum(shares) / len(shares) * 100:.1f} %."


def curve_sentence(record: RunRecord) -> str:
    """Whether more photos would help, as far as half of them tells; nothing where that was not measured."""
    held = record.learning_curve
    if held is None or held.gain is None or held.gain.value is None or len(held.points) < 2:
        said = "Whether more photos would help was not measured"
        return f"{said}: {visible(held.skipped)}." if held is not None and held.skipped else ""
    half, whole = held.points[-2].num_photos, held.points[-1].num_photos
    measured = f"{whole:,} photos instead of {half:,} brought {_gained(held.metric, held.gain)}"
    if held.next_gain is not None:
        return f"Twice the photos would bring about {_gained(held.metric, held.next_gain)}: {measured}."
    if (held.gain.high or 0.0) < _LITTLE:
        return f"More photos of the same kind would bring little: {measured}."
    return f"Whether more photos would help cannot be told from these: {measured}."


def _gained(metric: str, gain: Interval) -> str:
    """``+3.1 points (1.2 to 5.0)`` of accuracy, or ``+0.031 R² (…)``."""
    value, low, high = gain.value or 0.0, gain.low or 0.0, gain.high or 0.0
    if find_metric(metric).is_share:
        return f"{value * 100:+.1f} points of {metric_label(metric)} ({low * 100:+.1f} to {high * 100:+.1f})"
    return f"{value:+.3f} {metric_label(metric)} ({low:+.3f} to {high:+.3f})"


def unscored_sentence(record: RunRecord) -> str:
    """What the scores leave out, and what of the training they count all the same; else nothing."""
    counts = Counter(row.code for row in record.unscored or ())
    parts = [f"{counts[code]:,} with a copy {how}" for code, how in _SPOILT.items() if counts[code]]
    sentences = [f"Left out of the score: {format_count(counts.total(), 'image')}, {' and '.join(parts)}."] if parts else []
    sentences += [f"The score counts what was trained on: {visible(message)}." for message in counted_leaks(record)]
    return " ".join(sentences)


def gap_sentence(record: RunRecord) -> str:
    """What the split flatters where a column looks like a group and none was named; else nothing."""
    gap = record.group_gap
    if gap is None or gap.random is None or gap.grouped is None:
        return ""
    typed = f" `--group {visible(shlex.quote(gap.column))}` judges by the latter." if (gap.low or 0) > 0 else ""
    return f"No group was named, and {visible(repr(gap.column))} looks like one: {visible(describe_gap(gap))}.{typed}"


def corrections_sentence(record: RunRecord) -> str:
    """How many corrections were used, and what they brought on the same test photos; nothing where there were none."""
    held = record.corrections
    if held is None:
        return ""
    named = {name.removesuffix("s") if count == 1 else name: count for name, count in held.used.items() if count}
    words = ", ".join(f"{count:,.0f} {visible(name)}" for name, count in named.items())
    said = f"Corrections used: {words or 'none'}"
    if held.before is None or held.after is None:
        return f"{said}. No earlier run was trained the same way without them, so what they brought is not known."
    before, after = (format_metric(held.metric, float(value)) for value in (held.before, held.after))
    on = f"{format_count(int(held.num_test or 0), 'test image')} with the corrected truth"
    figures = f"before: {before} ({visible(held.run)}), after: {after}, on the same {on}"
    return f"{said}. {metric_label(held.metric).capitalize()} {figures}."


def describe_gap(gap: GroupGapRecord) -> str:
    """``random folds: 71.0 %, 'lesion_id' kept together: 66.0 %: the difference is what the split flatters``."""
    random, grouped = (format_metric(gap.metric, float(value or 0)) for value in (gap.random, gap.grouped))
    figures = (
        f"{metric_label(gap.metric)} of a quick linear model in random folds: {random}, {gap.column!r} kept together: {grouped}"
    )
    says = "the difference is what the split flatters" if (gap.low or 0) > 0 else "no difference beyond the noise"
    return f"{figures}: {says}"


def counted_leaks(record: RunRecord) -> list[str]:
    """What was found of samples that are scored though they, or others of their group, were trained on."""
    leaks = (_TORN_GROUPS,) if record.unscored is not None else (_ACROSS, _TORN_GROUPS)
    return [finding.message for finding in record.findings or () if finding.code in leaks]


def judged_letters(runs: Sequence[RecordedRun], split: str | None = None) -> list[str]:
    """A letter for the samples that each run was judged on, the same for the same; all empty where there is one set alone.

    Without `split` it is that of each run's leading metric; a run that does not say has none.
    """
    leading = [leading_metric(run) for run in runs]
    splits = [split or (metric.split if metric else "") for metric in leading]
    keys = _told_apart([_judged_key(run, one) for run, one in zip(runs, splits, strict=True)])
    known = list(dict.fromkeys(key for key in keys if key))
    return [_letter(known.index(key)) if key and len(known) > 1 else "" for key in keys]


def _judged_key(run: RecordedRun, split: str) -> _JudgedKey | None:
    ids = run.judged_sets.get(split, "")
    return (split, ids, run.judged_versions.get(split, "")) if ids else None


def _told_apart(keys: Sequence[_JudgedKey | None]) -> list[_JudgedKey | None]:
    """The same keys; one of before contents were recorded is that of the same ids, or None where those stand for several."""
    versions: dict[tuple[str, str], set[str]] = {}
    for key in keys:
        if key:
            versions.setdefault(key[:2], set()).update({key[2]} - {""})
    return [key and _with_version(key, versions[key[:2]]) for key in keys]


def _with_version(key: _JudgedKey, versions: set[str]) -> _JudgedKey | None:
    split, ids, version = key
    if version or not versions:
        return key
    return (split, ids, min(versions)) if len(versions) == 1 else None


def _letter(place: int) -> str:
    """a, b, …, z, aa, ab, …"""
    return (_letter(place // 26 - 1) if place >= 26 else "") + chr(ord("a") + place % 26)


@dataclass(frozen=True)
class RunSetup:
    """What a run trained: where the network was cut, the kind of head that was picked or asked for, and for how many epochs. The
    models of a blend have cuts and epochs of their own.
    """

    cut: str
    head: str
    epochs: int | None


def run_setup(run: RecordedRun) -> RunSetup:
    """From the settings a run was given and what it chose; what older runs do not say is empty or the default."""
    given, default = run.settings, Settings()
    if given.get("minutes") or any(choice.name == BLEND for choice in run.choices):
        return RunSetup("", BLEND, None)
    picked = next((choice.evidence.get("kind") for choice in run.choices if choice.name == CONFIGURATION), None)
    cut = "pyramid" if run.command.startswith("unchoke segment") else str(given.get("cut", default.cut))
    return RunSetup(cut, str(picked or given.get("head") or ""), int(given.get("epochs", default.epochs)))


def total_seconds(run: RecordedRun) -> float:
    """The seconds of all stages."""
    return sum(seconds for _, seconds in stage_seconds(run.timings))


def ladder_words(rung: RungRecord) -> tuple[str, str, str, str]:
    """Of one way of training within given minutes: what it took, its loss on val alone and with those before, and its share."""
    alone, together = ("" if loss is None else format_number(loss) for loss in (rung.val_loss, rung.together))
    return format_seconds(rung.seconds or 0.0), alone, together, f"{rung.share or 0.0:.0%}"


def winner_sentence(record: RunRecord) -> str:
    """Which of several configurations was picked, by what differs between them, and how it did; nothing for a single one."""
    picked = next((row for row in record.sweep if row.picked), None)
    if picked is None or len(record.sweep) < 2 or record.ladder:
        return ""
    figure = "" if picked.val_metric is None else f" by validation {_figure(record.selection_metric, picked.val_metric)}"
    step = "penalty" if _is_solved(picked.config) else "epoch"
    epoch = "" if picked.best_epoch is None else f", {step} {picked.best_epoch:g} of {picked.num_epochs or picked.best_epoch:g}"
    words = describe_config(picked.config, [row.config for row in record.sweep])
    return f"Picked of {len(record.sweep):,} configurations{figure}{epoch}: {visible(words)}."


def _figure(name: str, value: float) -> str:
    return f"{metric_label(name)} {format_metric(name, value)}" if name else f"metric {format_number(value)}"


def describe_config(config: Mapping[str, Any], among: Sequence[Mapping[str, Any]]) -> str:
    """A configuration by its kind and by what differs among all: ``mlp, lr 0.003, mixup 0.2``."""
    if _is_solved(config):
        return f"{config.get('kind', 'head')}, solved for one penalty after the other, from strong to weak"
    varied = [key for key in config if key != "kind" and len({repr(other.get(key)) for other in among}) > 1]
    return ", ".join([str(config.get("kind", "head")), *(f"{key} {_plain(config[key])}" for key in varied)])


def _is_solved(config: Mapping[str, Any]) -> bool:
    """Whether its epochs are strengths of a penalty."""
    return config.get("solver") == "lbfgs"


def _plain(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "none" if value is None else str(value)


def picked_epoch(record: RunRecord) -> float | None:
    """The epoch that was kept, where the record says so."""
    return next((row.best_epoch for row in record.sweep if row.picked), None)


def sample_words(record: RunRecord) -> tuple[str, str]:
    """What the splits count, one and several: patches of scenes, or images."""
    return ("patch", "patches") if record.draws_masks else ("image", "images")


def split_size(record: RunRecord, split: str) -> int | None:
    size = record.data.splits.get(split)
    return None if size is None else int(size)


def stage_seconds(timings: Mapping[str, float]) -> list[tuple[str, float]]:
    """Stages and their seconds, in the order they ran; `total` is no stage, nor is what one is made of (`train/forward`)."""
    known = [(stage, s) for stage, s in timings.items() if stage != "total" and "/" not in stage and s >= 0]
    return sorted(known, key=lambda item: in_order(item[0], STAGES))


def stretches_text(record: RunRecord) -> str:
    """``in 3 stretches (12.0 s, 41.2 s, 8.1 s)``: how a run that was stopped on the way came about; nothing for any other."""
    spent = [format_seconds(sum(seconds for _, seconds in stage_seconds(one))) for one in record.stretches]
    return f"in {len(spent)} stretches ({', '.join(spent)})" if len(spent) > 1 else ""


@dataclass(frozen=True)
class ConfusedPair:
    """`count` samples of class `truth` were called `predicted`: `share` of all samples of that class."""

    truth: str
    predicted: str
    count: int
    share: float


def confused_pairs(matrix: Sequence[Sequence[int]], names: Sequence[str], *, limit: int = 12) -> list[ConfusedPair]:
    """The most frequent confusions, largest first."""
    pairs = []
    for truth, row in enumerate(matrix):
        total = sum(row)
        for predicted, count in enumerate(row):
            if predicted != truth and count > 0:
                pairs.append(ConfusedPair(names[truth], names[predicted], count, count / total))
    pairs.sort(key=lambda pair: (-pair.count, -pair.share, pair.truth, pair.predicted))
    return pairs[:limit]
