"""What each part of the report shows about the result, as plain values for the template.

In comes a record in JSON types, any part of which may be missing or odd; out comes a dictionary a template can show, or None
where the record holds nothing to show. Markup only in the drawings, which escape for themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unchoke.core.metrics import BEST_BY, METRICS, find_metric, format_metric, in_order, metric_label
from unchoke.core.units import format_number
from unchoke.reports import bars, charts, summary
from unchoke.reports import training_facts as training
from unchoke.reports.classes import class_counts
from unchoke.reports.layout import visible
from unchoke.reports.summary import number
from unchoke.reports.text import format_value
from unchoke.reports.thumbnails import safe_thumbnail

Model = dict[str, Any]
_MOST_MISTAKES = 48
_CURVES = tuple(metric for metric in METRICS if metric.curve)
_HISTORY = ("train_loss", "val_loss", *(metric.of_validation for metric in _CURVES), "lr")


def result(record: Mapping[str, Any]) -> Model | None:
    """The leading figure, the sentence that explains it, and every metric with its interval."""
    metric = summary.leading_metric(record)
    if metric is None:
        return None
    return {
        "figure": metric.text,
        "caption": f"{metric.label}, {summary.SPLIT_WORDS.get(metric.split, metric.split)} {summary.sample_words(record)[1]}",
        "samples": summary.sample_words(record)[1],
        "sentences": _sentences(record, metric),
        "bar": bars.interval_bar(metric.value, metric.low, metric.high) if 0 <= metric.value <= 1 else None,
        "metrics": [_metric_row(one) for split in ("test", "val") for one in summary.overall_metrics(record, split)],
    }


def per_target(record: Mapping[str, Any]) -> list[Model] | None:
    """The figures target by target, one table for each split that has some. Those of classes stand in the per-class table."""
    if summary.is_segmentation(record):
        return None
    found = [_target_table(record, split) for split in ("test", "val")]
    return [table for table in found if table["rows"]] or None


def _target_table(record: Mapping[str, Any], split: str) -> Model:
    stems, targets = summary.target_metrics(record, split)
    sums = training.derived(record)
    return {
        "split": summary.SPLIT_WORDS[split],
        "header": [metric_label(stem) for stem in stems],
        "has_sums": bool(sums),
        "rows": [
            {"name": one.target, "sum": sums.get(one.target, ""), "cells": [_target_cell(metric) for metric in one.metrics]}
            for one in targets
        ],
    }


def _target_cell(metric: summary.ReportedMetric | None) -> tuple[str, str]:
    return ("", "") if metric is None else (metric.text, metric.interval)


def _metric_row(metric: summary.ReportedMetric) -> Model:
    known = find_metric(metric.name)
    drawable = 0 <= metric.value <= 1 and known.high == 1
    return {
        "split": summary.SPLIT_WORDS[metric.split],
        "label": metric.label,
        "text": metric.text,
        "interval": metric.interval,
        "better": "" if known.higher_is_better else "lower is better",
        "bar": bars.interval_bar(metric.value, metric.low, metric.high) if drawable else None,
    }


def _sentences(record: Mapping[str, Any], metric: summary.ReportedMetric) -> list[str]:
    found = [_first_sentence(record, metric), _interval_sentence(record, metric), _baseline_sentence(record, metric)]
    found.append(summary.baseline_sentence(record))
    if metric.split == "val":
        noun = summary.sample_words(record)[1]
        found.append(f"There was no test split: these {noun} also helped to pick the model, so expect a little less on new ones.")
    return [sentence for sentence in found if sentence]


def _first_sentence(record: Mapping[str, Any], metric: summary.ReportedMetric) -> str:
    size = summary.split_size(record, metric.split)
    split = summary.SPLIT_WORDS.get(metric.split, metric.split)
    noun = summary.sample_words(record)[1]
    images = f"{size:,} {split} {noun}" if size else f"the {split} {noun}"
    if metric.name == "accuracy":
        return f"Of {images} the model was not trained on, it named {metric.text} correctly."
    if metric.name in ("r2", "weighted_r2"):
        return f"On {images} it was not trained on, the model {_explains(metric)} ({metric.label} {metric.text})."
    return f"On {images} the model was not trained on, its {metric.label} is {metric.text}."


def _explains(metric: summary.ReportedMetric) -> str:
    if metric.value <= 0:
        return "does no better than always answering the mean"
    of = "the variation" if metric.name == "r2" else "the weighted variation of all targets together"
    return f"explains {metric.value * 100:.0f} % of {of}"


def _interval_sentence(record: Mapping[str, Any], metric: summary.ReportedMetric) -> str:
    if not metric.interval:
        return "No interval was computed, so how far chance plays a part is unknown."
    return f"With this many {summary.sample_words(record)[1]} the figure is uncertain: its 95 % interval is {metric.interval}."


def _baseline_sentence(record: Mapping[str, Any], metric: summary.ReportedMetric) -> str:
    """What the laziest model would reach, so that a newcomer can judge the figure."""
    counts = class_counts(record).get(metric.split, {})
    total = sum(counts.values())
    if metric.name != "accuracy" or not total:
        return ""
    name = max(counts, key=lambda key: counts[key])
    share = format_metric("accuracy", counts[name] / total)
    return f"Always answering the commonest class, “{visible(name)}”, would be right for {share}."


def curves(record: Mapping[str, Any]) -> Model | None:
    """Loss and the validation metric by epoch, the best epoch marked."""
    history = [row for row in summary.rows(record, "history") if number(row.get("epoch")) is not None]
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


def _curve(key: str, title: str, series: list[charts.Series], best: float | None, *, percent: bool = False) -> Any:
    return charts.line_chart(
        f"curve-{key}", title, series, x_label="epoch", percent=percent, mark_x=best, mark_label="best epoch"
    )


def _series(history: Sequence[Mapping[str, Any]], wanted: Mapping[str, tuple[str, str]]) -> list[charts.Series]:
    found = []
    for key, (name, class_) in wanted.items():
        pairs = [(number(row["epoch"]), number(row.get(key))) for row in history]
        points = [(x, y) for x, y in pairs if x is not None and y is not None]
        if points:
            found.append(charts.Series(name, points, class_))
    return found


def _best_epoch(history: Sequence[Mapping[str, Any]]) -> float | None:
    """The epoch with the highest validation metric, the lower loss deciding between equals."""
    for name in BEST_BY:
        rated = [
            (number(row.get(find_metric(name).of_validation)), -(number(row.get("val_loss")) or 0.0), number(row["epoch"]))
            for row in history
        ]
        known = [(value, loss, epoch) for value, loss, epoch in rated if value is not None and epoch is not None]
        if known:
            return max(known, key=lambda item: (item[0], item[1]))[2]
    return None


def _history_table(history: Sequence[Mapping[str, Any]]) -> Model:
    keys = sorted({key for row in history for key in row if key != "epoch"}, key=lambda key: in_order(key, _HISTORY))
    body = [[f"{row['epoch']:g}", *(_maybe(row.get(key)) for key in keys)] for row in history]
    return {"header": ["epoch", *(key.replace("_", " ") for key in keys)], "rows": body}


def _maybe(value: Any) -> str:
    as_number = number(value)
    return "" if value is None else format_value(value) if as_number is None else format_number(as_number)


def mistakes(record: Mapping[str, Any]) -> Model | None:
    """The answers that were most confidently (or for numbers, farthest) wrong, as pictures."""
    found = summary.rows(record, "mistakes")
    if not found:
        return None
    return {
        "items": [_mistake(item) for item in found[:_MOST_MISTAKES]],
        "num_more": max(0, len(found) - _MOST_MISTAKES),
        "numeric": summary.section(record, "task").get("kind") == "regression",
    }


def _mistake(item: Mapping[str, Any]) -> Model:
    confidence = number(item.get("confidence"))
    return {
        "path": str(item.get("path") or item.get("sample_id") or ""),
        "truth": _maybe(item.get("truth")),
        "predicted": _maybe(item.get("predicted")),
        "confidence": "" if confidence is None else f"{confidence * 100:.0f} % sure",
        "thumbnail": safe_thumbnail(item.get("thumbnail")),
    }


def scatter(record: Mapping[str, Any]) -> list[Model] | None:
    """For regression: predicted against true values, one drawing a target."""
    found = []
    sums = training.derived(record)
    for place, row in enumerate(summary.rows(record, "scatter")):
        truth, predicted = row.get("truth"), row.get("predicted")
        if not isinstance(truth, list) or not isinstance(predicted, list):
            continue
        pairs = [(number(t), number(p)) for t, p in zip(truth, predicted, strict=False)]
        known = [(t, p) for t, p in pairs if t is not None and p is not None]
        name = str(row.get("target", f"target {place + 1}"))
        if known:
            drawing = charts.scatter_chart(f"scatter-{place}", name, [t for t, _ in known], [p for _, p in known])
            left_out = len(pairs) - len(known)
            found.append({"name": name, "sum": sums.get(name, ""), "chart": drawing, "num_left_out": left_out})
    return found or None


def sweep(record: Mapping[str, Any]) -> Model | None:
    """Every configuration tried, best first; settings that never varied are said once. A network is told of elsewhere."""
    tried = summary.rows(record, "sweep")
    if not tried or training.facts(record):
        return None
    configs = [summary.section(row, "config") for row in tried]
    keys = sorted({key for config in configs for key in config}, key=lambda key: in_order(key, ("kind", "hidden", "lr")))
    varied = [key for key in keys if len({repr(config.get(key)) for config in configs}) > 1]
    fixed = [(key, format_value(configs[0].get(key))) for key in keys if key not in varied]
    order = sorted(range(len(tried)), key=lambda place: -(number(tried[place].get("val_metric")) or float("-inf")))
    rows = [_sweep_row(tried[place], [format_value(configs[place].get(key)) for key in varied]) for place in order]
    return {"keys": varied, "fixed": fixed, "rows": rows}


def _sweep_row(row: Mapping[str, Any], settings: list[str]) -> Model:
    values = [(number(row.get(key)), _maybe(row.get(key))) for key in ("val_metric", "val_loss", "best_epoch")]
    epoch = values[2][0]
    values[2] = (epoch, "" if epoch is None else f"{epoch:g}")
    return {"settings": settings, "values": values, "picked": bool(row.get("picked"))}
