"""What each part of the report shows about the result, as plain values for the template.

In comes a record, out comes a dictionary a template can show, or None where the record holds nothing to show. Markup only in the
drawings, which escape for themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unchoke.core.metrics import BEST_BY, LOSSES, METRICS, find_metric, format_metric, in_order, metric_label
from unchoke.core.units import format_number
from unchoke.runs.report import baseline_words, charts, pixel_words, summary
from unchoke.runs.report import training_facts as training
from unchoke.runs.report.page import safe_thumbnail
from unchoke.runs.report.summary import ReportedMetric
from unchoke.runs.report.svg import interval_bar
from unchoke.runs.report.text import format_value

if TYPE_CHECKING:
    from unchoke.core.record import GalleryRecord, MistakeRecord, RunRecord, SweepRecord

Model = dict[str, Any]
HistoryRow = Mapping[str, int | float | None]
PICTURES = ("image", "overlay", "prediction", "truth", "error")
_MOST_SHOWN = 48
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")
_CURVES = tuple(metric for metric in METRICS if metric.curve)
_HISTORY = ("train_loss", "val_loss", *(metric.of_validation for metric in _CURVES), "lr")


def result(record: RunRecord) -> Model | None:
    """The leading figure, the sentence that explains it, and every metric with its interval."""
    metric = summary.leading_metric(record)
    if metric is None:
        return None
    return {
        "figure": metric.text,
        "caption": f"{metric.label}, {summary.SPLIT_WORDS.get(metric.split, metric.split)} {summary.sample_words(record)[1]}",
        "samples": summary.sample_words(record)[1],
        "sentences": _sentences(record, metric),
        "bar": interval_bar(metric.value, metric.low, metric.high) if 0 <= metric.value <= 1 else None,
        "has_intervals": any(one.interval for split in summary.SPLITS for one in summary.overall_metrics(record, split)),
        "metrics": [_metric_row(one) for split in summary.SPLITS for one in summary.overall_metrics(record, split)],
    }


def per_target(record: RunRecord) -> list[Model] | None:
    """The figures target by target, one table for each split that has some. Those of classes stand in the per-class table."""
    if record.draws_masks:
        return None
    found = [_target_table(record, split) for split in summary.SPLITS]
    return [table for table in found if table["rows"]] or None


def _target_table(record: RunRecord, split: str) -> Model:
    stems, targets = summary.target_metrics(record, split)
    sums = training.sums_of(record)
    return {
        "split": summary.SPLIT_WORDS[split],
        "header": [metric_label(stem) for stem in stems],
        "has_sums": bool(sums),
        "rows": [
            {"name": one.target, "sum": sums.get(one.target, ""), "cells": [_target_cell(metric) for metric in one.metrics]}
            for one in targets
        ],
    }


def _target_cell(metric: ReportedMetric | None) -> tuple[str, str]:
    return ("", "") if metric is None else (metric.text, metric.interval)


def _metric_row(metric: ReportedMetric) -> Model:
    known = find_metric(metric.name)
    drawable = 0 <= metric.value <= 1 and known.high == 1
    return {
        "split": summary.SPLIT_WORDS[metric.split],
        "label": metric.label,
        "text": metric.text,
        "interval": metric.interval,
        "better": "" if known.higher_is_better else "lower is better",
        "bar": interval_bar(metric.value, metric.low, metric.high) if drawable else None,
    }


def _sentences(record: RunRecord, metric: ReportedMetric) -> list[str]:
    found = [
        baseline_words.warning(record) or pixel_words.pixel_warning(record),
        _first_sentence(record, metric),
        _interval_sentence(record, metric),
    ]
    found.append(_baseline_sentence(record, metric))
    found += [summary.unscored_sentence(record), summary.baseline_sentence(record), summary.value_interval_sentence(record)]
    found += [summary.gap_sentence(record), summary.corrections_sentence(record)]
    found.append(pixel_words.pixel_sentence(record))
    if metric.split == "val":
        noun = summary.sample_words(record)[1]
        found.append(f"There was no test split: these {noun} also helped to pick the model, so expect a little less on new ones.")
    return [sentence for sentence in found if sentence]


def _first_sentence(record: RunRecord, metric: ReportedMetric) -> str:
    size = summary.split_size(record, metric.split)
    split = summary.SPLIT_WORDS.get(metric.split, metric.split)
    noun = summary.sample_words(record)[1]
    images = f"{size:,} {split} {noun}" if size else f"the {split} {noun}"
    if summary.counted_leaks(record):
        return f"On {images} the model's {metric.label} is {metric.text}."
    if metric.name == "accuracy":
        return f"Of {images} the model was not trained on, it named {metric.text} correctly."
    if metric.name in ("r2", "weighted_r2"):
        return f"On {images} it was not trained on, the model {_explains(metric)} ({metric.label} {metric.text})."
    return f"On {images} the model was not trained on, its {metric.label} is {metric.text}."


def _explains(metric: ReportedMetric) -> str:
    if metric.value <= 0:
        return "does no better than always answering the mean"
    of = "the variation" if metric.name == "r2" else "the weighted variation of all targets together"
    return f"explains {metric.value * 100:.0f} % of {of}"


def _interval_sentence(record: RunRecord, metric: ReportedMetric) -> str:
    if not metric.interval:
        return "No interval was computed, so how far chance plays a part is unknown."
    return f"With this many {summary.sample_words(record)[1]} the figure is uncertain: its 95 % interval is {metric.interval}."


def _baseline_sentence(record: RunRecord, metric: ReportedMetric) -> str:
    """What the laziest model would reach, so that a newcomer can judge the figure."""
    reached = baseline_words.reached_words(record, metric.split, metric.name)
    return f"{reached[0].upper()}{reached[1:]}." if reached else ""


def curves(record: RunRecord) -> Model | None:
    """Loss and the validation metric by epoch, the best epoch marked."""
    history = [row for row in record.history if row.get("epoch") is not None]
    if not history:
        return None
    best = summary.picked_epoch(record) or _best_epoch(history)
    drawn = []
    losses = _series(history, {"train_loss": ("training", "s1"), "val_loss": ("validation", "s2")})
    if losses:
        drawn.append(("Loss (lower is better)", _curve("loss", "Loss by epoch", losses, best)))
    for metric in _CURVES:
        key, found = metric.of_validation, _series(history, {metric.of_validation: ("validation", "s2")})
        if found:
            drawn.append((metric.curve, _curve(key, f"{metric.curve} by epoch", found, best, percent=metric.is_share)))
    return {"charts": drawn, "table": _history_table(history)} if drawn else None


def photo_curve(record: RunRecord) -> Model | None:
    """The figure against the number of photos that were trained on, and what that says of more of them."""
    held = record.learning_curve
    if held is None or len(held.points) < 2 or held.skipped:
        return None
    percent = find_metric(held.metric).is_share
    series = [charts.Series(metric_label(held.metric), [(float(point.num_photos), point.value) for point in held.points], "s2")]
    drawn = charts.line_chart("curve-photos", "By number of training photos", series, x_label="training photos", percent=percent)
    rows = [[f"{point.num_photos:,}", format_metric(held.metric, point.value), f"{point.num_repeats}"] for point in held.points]
    table = {"header": ["training photos", metric_label(held.metric), "draws"], "rows": rows}
    return {"chart": drawn, "sentence": summary.curve_sentence(record), "num_judged": held.num_judged, "table": table}


def _curve(key: str, title: str, series: list[charts.Series], best: float | None, *, percent: bool = False) -> Any:
    return charts.line_chart(
        f"curve-{key}", title, series, x_label="epoch", percent=percent, mark_x=best, mark_label="best epoch"
    )


def _series(history: Sequence[HistoryRow], wanted: Mapping[str, tuple[str, str]]) -> list[charts.Series]:
    found = []
    for key, (name, class_) in wanted.items():
        pairs = [(row["epoch"], row.get(key)) for row in history]
        points = [(x, y) for x, y in pairs if x is not None and y is not None]
        if points:
            found.append(charts.Series(name, points, class_))
    return found


def _best_epoch(history: Sequence[HistoryRow]) -> float | None:
    """The epoch with the highest validation metric, the lower loss deciding between equals."""
    for name in BEST_BY:
        key = find_metric(name).of_validation
        rated = [(row.get(key), -(row.get("val_loss") or 0.0), row["epoch"]) for row in history]
        known = [(value, loss, epoch) for value, loss, epoch in rated if value is not None and epoch is not None]
        if known:
            return max(known, key=lambda item: (item[0], item[1]))[2]
    return None


def _history_table(history: Sequence[HistoryRow]) -> Model:
    keys = sorted({key for row in history for key in row if key != "epoch"}, key=lambda key: in_order(key, _HISTORY))
    body = [[f"{row['epoch']:g}", *(_maybe(row.get(key)) for key in keys)] for row in history]
    return {"header": ["epoch", *(key.replace("_", " ") for key in keys)], "rows": body}


def _maybe(value: str | float | None) -> str:
    return "" if value is None else value if isinstance(value, str) else format_number(value)


def mistakes(record: RunRecord) -> Model | None:
    """The answers that were most confidently (or for numbers, farthest) wrong, as pictures."""
    if not record.mistakes:
        return None
    return {
        "items": [_mistake(item) for item in record.mistakes[:_MOST_SHOWN]],
        "num_more": max(0, len(record.mistakes) - _MOST_SHOWN),
        "numeric": record.task.kind == "regression",
    }


def _mistake(item: MistakeRecord) -> Model:
    return {
        "name": item.sample_id or Path(item.path).name,
        "path": item.path or item.sample_id,
        "truth": _maybe(item.truth),
        "predicted": _maybe(item.predicted),
        "confidence": "" if item.confidence is None else f"{item.confidence * 100:.0f} % sure",
        "thumbnail": safe_thumbnail(item.thumbnail),
    }


def gallery(record: RunRecord) -> Model | None:
    """Pieces of stitched masks, each as five pictures side by side with its title and score; the legend beside them."""
    if not record.gallery:
        return None
    colours = legend(record)
    return {
        "items": [_sample(item) for item in record.gallery[:_MOST_SHOWN]],
        "num_more": max(0, len(record.gallery) - _MOST_SHOWN),
        "legend": colours,
        "first_class": colours[0]["name"] if colours else "",
    }


def legend(record: RunRecord) -> list[dict[str, str]]:
    """The colour of each class; entries whose colour is not written like ``#0072b2`` are left out."""
    return [{"name": row.name, "colour": row.colour} for row in record.legend if _COLOUR.fullmatch(row.colour)]


def _sample(item: GalleryRecord) -> Model:
    pictures = [(word, safe_thumbnail(getattr(item, word))) for word in PICTURES]
    return {"title": item.title, "note": item.note, "pictures": pictures}


def scatter(record: RunRecord) -> list[Model] | None:
    """For regression: predicted against true values, one drawing a target."""
    found = []
    sums = training.sums_of(record)
    for place, row in enumerate(record.scatter):
        pairs = list(zip(row.truth, row.predicted, strict=False))
        known = [(t, p) for t, p in pairs if t is not None and p is not None]
        name = row.target or f"target {place + 1}"
        if known:
            drawing = charts.scatter_chart(f"scatter-{place}", name, [t for t, _ in known], [p for _, p in known])
            left_out = len(pairs) - len(known)
            found.append({"name": name, "sum": sums.get(name, ""), "chart": drawing, "num_left_out": left_out})
    return found or None


def ladder(record: RunRecord) -> Model | None:
    """What was tried within given minutes, in its order; None where none were given."""
    if not record.ladder:
        return None
    rows = [{"name": one.name, "cells": summary.ladder_words(one)} for one in record.ladder]
    return {"metric": metric_label(record.selection_metric), "rows": rows}


def sweep(record: RunRecord) -> Model | None:
    """Every configuration tried, best first; settings that never varied are said once. None for a network, or several models."""
    if not record.sweep or record.ladder or training.facts(record):
        return None
    configs = [row.config for row in record.sweep]
    keys = sorted({key for config in configs for key in config}, key=lambda key: in_order(key, ("kind", "hidden", "lr")))
    varied = [key for key in keys if len({repr(config.get(key)) for config in configs}) > 1]
    fixed = [(key, format_value(configs[0].get(key))) for key in keys if key not in varied]
    sign = -1.0 if record.selection_metric not in LOSSES else 1.0
    best_first = sorted(record.sweep, key=lambda row: (row.val_metric is None, sign * (row.val_metric or 0.0)))
    rows = [_sweep_row(row, [format_value(row.config.get(key)) for key in varied]) for row in best_first]
    return {"keys": varied, "fixed": fixed, "rows": rows, "winner": summary.winner_sentence(record)}


def _sweep_row(row: SweepRecord, settings: list[str]) -> Model:
    figures = [(None if value is None else float(value), _maybe(value)) for value in (row.val_metric, row.val_loss)]
    epoch = (None, "") if row.best_epoch is None else (float(row.best_epoch), f"{row.best_epoch:g}")
    return {"settings": settings, "values": [*figures, epoch], "picked": row.picked}
