"""What a run's record says, in figures and sentences, for every renderer: lists, text, pages, model cards.

In: a record, or its row of the database. Out: plain values and plain text, names from files made visible. No markup.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from unchoke.core.choices import BLEND, CONFIGURATION
from unchoke.core.metrics import LEADING, find_metric, format_metric, in_order, metric_label, metric_order
from unchoke.core.settings import Settings
from unchoke.core.units import format_count, format_number, format_seconds
from unchoke.runs.report.layout import visible

if TYPE_CHECKING:
    from unchoke.core.record import BaselineRecord, GroupGapRecord, Interval, RecordedRun, RunRecord

SPLITS = ("test", "val")
SPLIT_WORDS = {"test": "test", "val": "validation", "train": "training"}
BASELINE = "baseline/"
"""What the splits are called under which the database keeps the baseline's figures: ``baseline/test``."""
JUDGED_BY = ("accuracy", "mean_ap", "weighted_r2", "r2")
"""What a model and its baseline are compared by: the first of these that there is."""
STAGES = (
    *("index", "check", "scenes", "worker", "libraries", "encoder", "masks", "engine", "extract", "pixels", "groups", "train"),
    *("load", "evaluate", "score", "curve", "report"),
)
_LITTLE = 0.01
"""A gain of which even the upper limit is below this is little: a point of accuracy, or 0.01 of R²."""
_COPY, _TORN_GROUPS = "duplicate-across-splits", "group-leakage"
_SPOILT = {_COPY: "in another split", "duplicate-label-conflict": "under another label"}
_FOLDS = "; `--folds 5 --fold all` judges by every photo, and chance has less to say"


# -- figures -------------------------------------------------------------------------------------------------------------------


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
    """Every metric of `split` that has a value: figures over everything first, then those of single targets, one figure after the
    other, targets in their own order.
    """

    def order(metric: ReportedMetric) -> tuple[bool, tuple[int, str], tuple[int, str]]:
        stem, _, target = metric.name.partition("/")
        return bool(target), metric_order(stem), in_order(target, run.task.names)

    figures = run.metrics.get(split, {}).items()
    return sorted((ReportedMetric(split, name, x.value, x.low, x.high) for name, x in figures if x.value is not None), key=order)


def leading_metric(run: RecordedRun) -> ReportedMetric | None:
    """The metric to put first, of test if there is one, else of val: the one the head was picked by where that says how good
    answers are, and not only how good their probabilities are.
    """
    for split in SPLITS:
        by_name = {metric.name: metric for metric in metrics_of(run, split)}
        for name in (*(() if run.selection_metric == "log_loss" else (run.selection_metric,)), *LEADING):
            if name in by_name:
                return by_name[name]
    return None


def judged_letters(runs: Sequence[RecordedRun], split: str | None = None) -> list[str]:
    """A letter for the samples that each run was judged on, the same for the same; all empty where there is one set alone.

    Without `split` it is that of each run's leading metric; a run that does not say has none.
    """
    keys: list[tuple[str, str, str] | None] = []
    versions: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        metric = leading_metric(run)
        judged = split or (metric.split if metric else "")
        ids, version = run.judged_sets.get(judged, ""), run.judged_versions.get(judged, "")
        keys.append((judged, ids, version) if ids else None)
        versions.setdefault((judged, ids), set()).update({version} - {""})
    for place, key in enumerate(keys):  # older runs say ids alone: they belong to the version of these ids, if there is one only
        if key and not key[2] and (known := versions[key[:2]]):
            keys[place] = (*key[:2], min(known)) if len(known) == 1 else None
    sets = list(dict.fromkeys(key for key in keys if key))
    return [_letter(sets.index(key)) if key and len(sets) > 1 else "" for key in keys]


def _letter(place: int) -> str:
    """a, b, …, z, aa, ab, …"""
    return (_letter(place // 26 - 1) if place >= 26 else "") + chr(ord("a") + place % 26)


class RunSetup(NamedTuple):
    """Where the network was cut, the head that was picked or asked for, and the epochs; models of a blend have their own."""

    cut: str
    head: str
    epochs: int | None


def run_setup(run: RecordedRun) -> RunSetup:
    """From the settings a run was given and what it chose; what older runs do not say is empty or the default."""
    given, default = run.settings, Settings()
    if given.get("minutes") or any(choice.name == BLEND for choice in run.choices):
        return RunSetup("", BLEND, None)
    picked = next((choice.evidence.get("kind") for choice in run.choices if choice.name == CONFIGURATION), None)
    cut = "pyramid" if run.command.startswith("unchoke segment") else str(given.get("cut", "end"))
    return RunSetup(cut, str(picked or given.get("head") or ""), int(given.get("epochs", default.epochs)))


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


def total_seconds(run: RecordedRun) -> float:
    return sum(seconds for _, seconds in stage_seconds(run.timings))


# -- the baseline --------------------------------------------------------------------------------------------------------------


def baseline_value(run: RecordedRun, split: str, name: str) -> float | None:
    """The baseline's figure; of older records the share of the commonest class, None where nothing says so."""
    held: BaselineRecord | None = getattr(run, "baseline", None)
    figures: dict[str, Interval] = held.metrics.get(split, {}) if held is not None else run.metrics.get(f"{BASELINE}{split}", {})
    if name in figures:
        return figures[name].value
    counts: dict[str, dict[str, float]] = getattr(getattr(run, "data", None), "class_counts", None) or {}
    if name != "accuracy" or not counts.get("train") or not sum(counts.get(split, {}).values()):
        return None
    commonest = max(counts["train"], key=lambda key: counts["train"][key])
    return counts[split].get(commonest, 0) / sum(counts[split].values())


def _baseline_answer(record: RunRecord) -> str:
    """``always answering “nv”, the commonest class``; empty for masks, and where nothing says so."""
    if record.task.kind == "regression":
        return "always answering the training mean"
    if record.task.kind == "multi_label":
        return "one answer for every photo, how frequent each label is"
    counts = (record.data.class_counts or {}).get("train", {})
    answer = (record.baseline.answer if record.baseline else "") or max(counts, key=lambda key: counts[key], default="")
    return f"always answering “{visible(answer)}”, the commonest class" if answer and record.task.kind == "classification" else ""


def warning(record: RunRecord) -> str:
    """What must come first: the model is not better than the baseline, or not by more than chance gives. Else nothing."""
    gains = record.baseline.gains if record.baseline else {}
    compared = ((split, name) for split in SPLITS for name in JUDGED_BY if name in gains.get(split, {}))
    split, name = next((one for one in compared if one[1] in record.metrics.get(one[0], {})), ("", ""))
    if not split:
        return _pixel_warning(record)
    gain, own, its = gains[split][name], record.metrics[split][name].value, baseline_value(record, split, name)
    answer = _baseline_answer(record)
    if own is None or its is None or gain.value is None or not answer or (gain.value > 0 and (gain.low is None or gain.low > 0)):
        return _pixel_warning(record)
    verb, chance = ("does not beat", "") if gain.value <= 0 else ("may be no better than", ", a difference that chance can give")
    limits = ""
    if gain.low is not None and gain.high is not None:
        points = f"{gain.low * 100:+.1f} to {gain.high * 100:+.1f} points"
        limits = points if find_metric(name).is_share else f"{format_number(gain.low)} to {format_number(gain.high)}"
        limits = f" (95 % interval of the difference {limits})"
    figures = f"{metric_label(name)} {format_metric(name, own)} against {format_metric(name, its)}"
    return f"{visible(record.called)} {verb} {answer}: {figures}{chance}{limits}. {_advice(record, split)}"


def _advice(record: RunRecord, split: str) -> str:
    own, its = record.metrics[split].get("balanced_accuracy"), baseline_value(record, split, "balanced_accuracy")
    if own is None or own.value is None or its is None or own.low is None or own.low <= its:
        cut = "" if record.training is not None else "--cut -4, "
        return f"Try `unchoke check` for wrong labels, more photos, {cut}or another --encoder."
    figures = [format_metric("balanced_accuracy", value) for value in (own.value, its)]
    told = f"It does tell the classes apart (balanced accuracy {figures[0]} against {figures[1]})."
    loop = record.training.loop if record.training is not None else None
    picked = [row.config.get("class_weights") for row in record.sweep if row.picked]
    weights = [loop.class_weights if loop else None, *picked, record.settings.get("class_weights")]
    if next(filter(None, weights), "") != "none":
        return f"{told} Try --class-weights none, which counts every photo alike."
    folds = "" if record.settings.get("folds") or record.settings.get("fold_column") else _FOLDS
    return f"{told} More photos would help, of the rare classes above all{folds}."


def _pixels(record: RunRecord) -> tuple[str, float, str, list[tuple[float, str]]] | None:
    """Of masks: the split that judges, the network's figure, its label, and what baselines of single pixels reach there.

    Of two classes the IoU of the second is compared, of more the mean over them.
    """
    for split in SPLITS:
        scores = [(one.name, one.test if split == "test" else one.val) for one in record.pixel_baselines]
        known = [(name, score) for name, score in scores if score is not None]
        if known:
            two, class_ = len(record.task.names) == 2, known[0][1].class_
            figure, label = (f"iou/{class_}", f"IoU of {visible(class_)}") if two else ("mean_iou", "mean IoU")
            reached = [(score.iou if two else score.mean_iou, name) for name, score in known]
            own = next((metric.value for metric in metrics_of(record, split) if metric.name == figure), None)
            found = [(value, name) for value, name in reached if value is not None]
            return (split, own, label, found) if own is not None and found else None
    return None


def _pixel_warning(record: RunRecord) -> str:
    """That a baseline of single pixels is as good as the network or better."""
    found = _pixels(record)
    if found is None or max(found[3])[0] < found[1]:
        return ""
    split, own, label, reached = found
    value, name = max(reached)
    figures = f"{label} {format_metric('iou', own)} against {format_metric('iou', value)}"
    return f"The network does not beat {visible(name)} on the {SPLIT_WORDS[split]} patches: {figures}."


# -- sentences -----------------------------------------------------------------------------------------------------------------


def headline(record: RunRecord) -> str:
    """The run and its leading metric in one sentence."""
    metric = leading_metric(record)
    if metric is None:
        return f"{visible(record.called)}: no score: there was no photo to judge it on"
    size = split_size(record, metric.split)
    on = f" on {format_count(size, *sample_words(record))}" if size else ""
    on += " it was not trained on" if size and not _counted_leaks(record) else ""
    interval = f" (95 % interval {metric.interval})" if metric.interval else ""
    value, answer = baseline_value(record, metric.split, metric.name), _baseline_answer(record)
    comma = "," if "“" in answer else ""
    against = f"; {answer}{comma} gets {format_metric(metric.name, value)}" if value is not None and answer else ""
    return f"{visible(record.called)}: {SPLIT_WORDS[metric.split]} {metric.label} {metric.text}{interval}{on}{against}"


def sentences(record: RunRecord) -> list[str]:
    """What qualifies the result, most important first."""
    unscored, metric = _unscored_sentence(record), leading_metric(record)
    pixels = _pixels(record)
    if pixels is not None:
        split, own, label, reached = pixels
        beside = ", ".join(f"{visible(name)} {format_metric('iou', value)}" for value, name in reached)
        where = f"Pixel by pixel, on the same {SPLIT_WORDS[split]} patches, {label}"
        beside = f"{where}: {beside}; the network {format_metric('iou', own)}."
    found = [unscored, baseline_sentence(record), value_interval_sentence(record), gap_sentence(record)]
    found += [_corrections_sentence(record), beside if pixels else ""]
    if metric is not None and metric.split == "val":
        noun = sample_words(record)[1]
        found.append(f"There was no test split: these {noun} also helped to pick the model, so expect a little less on new ones.")
    return [sentence for sentence in found if sentence]


def _unscored_sentence(record: RunRecord) -> str:
    """What the scores leave out, and what of the training they count all the same; else nothing."""
    counts = Counter(row.code for row in record.unscored or ())
    parts = [f"{counts[code]:,} with a copy {how}" for code, how in _SPOILT.items() if counts[code]]
    found = [f"Left out of the score: {format_count(counts.total(), 'image')}, {' and '.join(parts)}."] if parts else []
    found += [f"The score counts what was trained on: {visible(message)}." for message in _counted_leaks(record)]
    return " ".join(found)


def _counted_leaks(record: RunRecord) -> list[str]:
    """What was found of samples that are scored though they, or others of their group, were trained on."""
    leaks = (_TORN_GROUPS,) if record.unscored is not None else (_COPY, _TORN_GROUPS)
    return [finding.message for finding in record.findings or () if finding.code in leaks]


def baseline_sentence(record: RunRecord) -> str:
    """Of masks: what a rule without any training reaches; else nothing."""
    held = record.baseline
    for split, score in (("test", held.test), ("val", held.val)) if held is not None and held.name else ():
        if score is not None and score.iou is not None and held is not None:
            own = next((metric.text for metric in metrics_of(record, split) if metric.name == f"iou/{score.class_}"), "")
            reached = f"an IoU of {format_metric('iou', score.iou)} for {visible(score.class_)}"
            against = f"; the network reaches {own}" if own else ""
            return f"Without any training, {visible(held.name)} reaches {reached} on the {SPLIT_WORDS[split]} patches{against}."
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


def encoder_sentence(record: RunRecord) -> str:
    """What a stronger encoder is likely to bring, where none was at hand; the figures stand in docs/claims.md."""
    alone = any(choice.name == "encoder" and choice.evidence.get("num_stronger") == 0 for choice in record.choices)
    if not alone or record.task.kind != "classification":
        return ""
    return "A stronger encoder (unchoke encoders list) brought 1 to 5 points of accuracy on groceries, leaves and skin."


def _gained(metric: str, gain: Interval) -> str:
    """``+3.1 points (1.2 to 5.0)`` of accuracy, or ``+0.031 R² (…)``."""
    value, low, high = gain.value or 0.0, gain.low or 0.0, gain.high or 0.0
    if find_metric(metric).is_share:
        return f"{value * 100:+.1f} points of {metric_label(metric)} ({low * 100:+.1f} to {high * 100:+.1f})"
    return f"{value:+.3f} {metric_label(metric)} ({low:+.3f} to {high:+.3f})"


def gap_sentence(record: RunRecord) -> str:
    """How far a random split leaks, where a column looks like a group and none was named; else nothing."""
    gap = record.group_gap
    if gap is None or gap.random is None or gap.grouped is None:
        return ""
    typed = f" `--group {visible(shlex.quote(gap.column))}` judges by the latter." if (gap.low or 0) > 0 else ""
    return f"No group was named, and {visible(repr(gap.column))} looks like one: {visible(describe_gap(gap))}.{typed}"


def describe_gap(gap: GroupGapRecord) -> str:
    """``random folds: 71.0 %, 'lesion_id' kept together: 66.0 %: the difference is leakage of the random split``."""
    random, grouped = (format_metric(gap.metric, float(value or 0)) for value in (gap.random, gap.grouped))
    says = "the difference is leakage of the random split" if (gap.low or 0) > 0 else "no difference beyond the noise"
    folds = f"in random folds: {random}, {gap.column!r} kept together: {grouped}"
    return f"{metric_label(gap.metric)} of a quick linear model {folds}: {says}"


def _corrections_sentence(record: RunRecord) -> str:
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


def winner_sentence(record: RunRecord) -> str:
    """Which of several configurations was picked, by what differs between them, and how it did; nothing for a single one."""
    picked = next((row for row in record.sweep if row.picked), None)
    if picked is None or len(record.sweep) < 2 or record.ladder:
        return ""
    figure, value = record.selection_metric, picked.val_metric
    by = "" if value is None else f" by validation {metric_label(figure or 'metric')} {format_metric(figure or 'metric', value)}"
    step = "penalty" if _is_solved(picked.config) else "epoch"
    epoch = "" if picked.best_epoch is None else f", {step} {picked.best_epoch:g} of {picked.num_epochs or picked.best_epoch:g}"
    words = describe_config(picked.config, [row.config for row in record.sweep])
    return f"Picked of {len(record.sweep):,} configurations{by}{epoch}: {visible(words)}."


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


def stretches_text(record: RunRecord) -> str:
    """``in 3 stretches (12.0 s, 41.2 s, 8.1 s)``: how a run that was stopped on the way came about; nothing for any other."""
    spent = [format_seconds(sum(seconds for _, seconds in stage_seconds(one))) for one in record.stretches]
    return f"in {len(spent)} stretches ({', '.join(spent)})" if len(spent) > 1 else ""
