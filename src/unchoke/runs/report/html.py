"""A run's record as one self-contained HTML page: no network, no external font, no file beside it.

In: the record (`record.json`). Out: the page's text: sections of blocks, each a kind and what `blocks.html.j2` shows of it.
Everything is escaped; the page's own policy allows exactly the style sheet and the script it carries, so that even text that
slipped through could not run. Parts that the record lacks are left out, and the page says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unchoke.core import atomic
from unchoke.core.findings import rank
from unchoke.core.metrics import CLASSES, LABELS, LOSSES, METRICS, find_metric, format_metric, in_order, metric_label
from unchoke.core.units import format_count, format_number
from unchoke.runs.report import charts, summary, view
from unchoke.runs.report.json import load_record
from unchoke.runs.report.page import Block, Section, render_page, safe_thumbnail
from unchoke.runs.report.text import count_findings
from unchoke.runs.report.two_classes import ThresholdCurves, load_threshold_curves
from unchoke.runs.report.view import Table, format_value

if TYPE_CHECKING:
    from markupsafe import Markup

    from unchoke.core.record import RunRecord

PICTURES = ("image", "overlay", "prediction", "truth", "error")
_MOST_SHOWN, _MOST_FILES, _MOST_TABULATED, _MOST_PAIRS = 48, 200, 20, 12
_UNEVEN = 3
"""From how many times the smallest class the largest one makes a matrix uneven."""
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")
_CURVES = tuple(metric for metric in METRICS if metric.curve)
_HISTORY = ("train_loss", "val_loss", *(metric.of_validation for metric in _CURVES), "lr")
_SPLITS = ("train", "val", "test")


def render_report(record: RunRecord, folder: Path | None = None) -> str:
    """The whole page; what single samples were given is read from the run's `folder`."""
    thresholds = None if folder is None else load_threshold_curves(folder, record)
    found, kind = list(_sections(record, thresholds)), record.task.kind or "classification"
    result = result_parts(record)
    missing = [one.missing for one in found if one.missing and not one.blocks and (not one.kinds or kind in one.kinds)]
    missing = missing if result else ["metrics", *missing]
    return render_page(heading(record), result, [one for one in found if one.blocks], missing=missing, notes=record.notes)


def save_report(run_folder: Path) -> Path:
    """Render `record.json` of a run into `report.html` beside it, from files alone; return the page's path."""
    page = run_folder / "report.html"
    atomic.write_text(page, render_report(load_record(run_folder / "record.json"), run_folder))
    return page


def heading(record: RunRecord) -> dict[str, Any]:
    """Title, run, date and what kind of data this was, in one line."""
    data, task = record.data, record.task
    noun = {"regression": ("target", "targets"), LABELS: ("label", "labels")}.get(task.kind, ("class", "classes"))
    parts = [record.run] if record.run else []
    parts += [format_count(int(data.num_samples), *summary.sample_words(record))] if data.num_samples is not None else []
    parts += [format_count(len(task.names), *noun)] if task.names else []
    parts += [view.moment(record.created_at)] if record.created_at else []
    return {"title": record.title or record.run or "Report of a run", "facts": parts}


def result_parts(record: RunRecord) -> dict[str, Any] | None:
    """The leading figure, the sentences that explain it, and every metric with its interval."""
    metric, table = summary.leading_metric(record), view.metric_table(record)
    if metric is None:
        return None
    explains = metric.name == "r2" and metric.value > 0
    in_words = f"The model explains {metric.value * 100:.0f} % of the variation." if explains else ""
    return {
        "figure": metric.text,
        "caption": f"{metric.label}, {summary.SPLIT_WORDS[metric.split]} {summary.sample_words(record)[1]}",
        "sentences": [
            sentence
            for sentence in (summary.warning(record), summary.headline(record) + ".", in_words, *summary.sentences(record))
            if sentence
        ],
        "bar": charts.interval_bar(metric.value, metric.low, metric.high) if 0 <= metric.value <= 1 else "",
        "table": table,
    }


def _sections(record: RunRecord, thresholds: ThresholdCurves | None) -> Iterator[Section]:
    """Every section in its order; those the record has nothing for have no blocks."""
    samples, classes = summary.sample_words(record)[1], (CLASSES, LABELS)
    yield Section("curves", "Learning curves", "", _curve_blocks(record, samples), "learning curves")
    yield Section("photos", "Would more photos help?", "More photos?", _photo_curve_blocks(record, samples))
    gallery = _gallery_blocks(record)
    yield Section("gallery", "Masks beside the truth", "Masks", gallery, "masks beside the truth", ("segmentation",))
    matrix = _confusion_blocks(record, samples)
    yield Section(
        "confusion", "What is taken for what", "Confusions", matrix, "confusion matrix", ("classification", "segmentation")
    )
    by_class = _class_blocks(record)
    yield Section("per-class", "Class by class", "Classes", by_class, "per-class figures", ("classification", "segmentation"))
    several = record.task.kind == LABELS
    title, link = ("Label by label", "Labels") if several else ("Target by target", "Targets")
    yield Section("per-target", title, link, [] if record.draws_masks else _target_blocks(record))
    scatter = _scatter_blocks(record)
    yield Section(
        "scatter", "Predicted against true values", "Predictions", scatter, "predictions of the targets", ("regression",)
    )
    yield Section("thresholds", "How sure must it be?", "Thresholds", _threshold_blocks(thresholds, samples))
    yield Section("mistakes", "Worst mistakes", "", _mistake_blocks(record))
    calibration = _calibration_blocks(record)
    yield Section("calibration", "Can its confidence be believed?", "Calibration", calibration, "calibration", classes)
    counted = () if record.data.class_counts else classes
    yield Section("data", "The data", "Data", _data_blocks(record), "class counts" if counted else "", classes)
    yield Section("ladder", "Tried within the minutes", "", _ladder_blocks(record))
    yield Section("sweep", "Configurations tried", "Configurations", _sweep_blocks(record))
    facts = view.training_facts(record)
    yield Section("network", "How it was trained", "Training", [("facts", facts)] if facts else [])
    yield Section("time", "Where the time went", "Time and memory", _time_blocks(record), "timings")
    yield Section("choices", "Every choice, and why", "Choices", _choice_blocks(record), "choices")
    yield Section("check", "Is the data sound?", "Check", _check_blocks(record), "findings of the check")
    yield Section("reproduce", "Do it again", "", _reproduce_blocks(record), "command and versions")


# -- results -------------------------------------------------------------------------------------------------------------------


def _curve_blocks(record: RunRecord, samples: str) -> list[Block]:
    drawn = learning_curves(record)
    if not drawn:
        return []
    history = [row for row in record.history if row.get("epoch") is not None]
    keys = sorted({key for row in history for key in row if key != "epoch"}, key=lambda key: in_order(key, _HISTORY))
    rows = [[f"{row['epoch']:g}", *(_maybe(row.get(key)) for key in keys)] for row in history]
    by = find_metric(record.selection_metric)
    hint = f"The kept epoch is the best one by the first chart, {by.label}. " if f"val_{by.name}" in keys else ""
    hint += f"When the validation loss rises while the training loss still falls, the model overfits its training {samples}."
    config: dict[str, Any] = next((row.config for row in record.sweep if row.picked), {})
    loop = record.training.loop if record.training else None
    mixup = config.get("mixup") or (loop.mixup if loop else None)
    if mixup:
        hint += (
            f" Mixup {mixup:g} trains on blends of two {samples}, which are harder: the training loss may lie above the other."
        )
    table = Table(["epoch", *(key.replace("_", " ") for key in keys)], rows, right=range(1, len(keys) + 1))
    return [("hint", hint), ("charts", drawn), ("details", ("Every epoch as a table", table))]


def learning_curves(record: RunRecord) -> list[tuple[str, Markup]]:
    """Loss and the validation metrics by epoch, the kept epoch marked; what it was picked by comes first."""
    history = [row for row in record.history if row.get("epoch") is not None]
    best = summary.picked_epoch(record)
    wanted = [("Loss (lower is better)", "loss", {"train_loss": ("training", "s1"), "val_loss": ("validation", "s2")}, False)]
    validation = ("validation", "s2")
    wanted += [(one.curve, one.of_validation, {one.of_validation: validation}, one.is_share) for one in _CURVES]
    by = find_metric(record.selection_metric)
    if by.name not in (*LOSSES[1:], *(one.name for one in _CURVES)):  # the log loss of calibrated probabilities, above all
        better = "" if by.higher_is_better else " (lower is better)"
        wanted.append((f"Validation {by.label}{better}", by.of_validation, {by.of_validation: validation}, by.is_share))
    wanted.sort(key=lambda one: one[1] not in (by.name, by.of_validation))
    found = []
    for title, name, lines, percent in wanted:
        series = []
        for key, (label, css) in lines.items():
            pairs = [(row["epoch"], row.get(key)) for row in history]
            points = [(x, y) for x, y in pairs if x is not None and y is not None]
            series += [charts.Series(label, points, css)] if points else []
        if series:
            spoken = f"{title.partition(' (')[0]} by epoch"
            drawing = charts.line_chart(
                f"curve-{name}", spoken, series, x_label="epoch", percent=percent, mark_x=best, mark_label="kept epoch"
            )
            found.append((title, drawing))
    return found


def _maybe(value: str | float | None) -> str:
    return "" if value is None else value if isinstance(value, str) else format_number(value)


def _photo_curve_blocks(record: RunRecord, samples: str) -> list[Block]:
    held = record.learning_curve
    if held is None or len(held.points) < 2 or held.skipped:
        return []
    label, percent = metric_label(held.metric), find_metric(held.metric).is_share
    series = [charts.Series(label, [(float(point.num_photos), point.value) for point in held.points], "s2")]
    drawn = charts.line_chart("curve-photos", "By number of training photos", series, x_label="training photos", percent=percent)
    rows = [[f"{point.num_photos:,}", format_metric(held.metric, point.value), f"{point.num_repeats}"] for point in held.points]
    how = "A linear head on the same features, trained on part of the photos and judged on the"
    return [
        ("p", summary.curve_sentence(record)),
        ("hint", f"{how} {held.num_judged:,} {samples} of validation and test."),
        ("charts", [("", drawn)]),
        ("details", ("As a table", Table(("training photos", label, "draws"), rows, right=(1, 2)))),
    ]


def _gallery_blocks(record: RunRecord) -> list[Block]:
    if not record.gallery:
        return []
    colours = legend(record)
    black = f", black standing for {colours[0]['name']}" if colours else ""
    hint = (
        "Each row is a piece of a stitched mask: the picture, the answer laid over it, the answer, the truth, and what is wrong. "
        f"In the last one the picture is faint where the answer is right; a wrong pixel has the colour of its true class{black}. "
        "Hatched means that there is no label, or no picture."
    )
    shown = [
        {"title": one.title, "note": one.note, "pictures": [(word, safe_thumbnail(getattr(one, word))) for word in PICTURES]}
        for one in record.gallery[:_MOST_SHOWN]
    ]
    return [("hint", hint), ("legend", colours), ("gallery", shown), *_more(len(record.gallery) - _MOST_SHOWN)]


def legend(record: RunRecord) -> list[dict[str, str]]:
    """The colour of each class; entries whose colour is not written like ``#0072b2`` are left out."""
    return [{"name": row.name, "colour": row.colour} for row in record.legend if _COLOUR.fullmatch(row.colour)]


def _more(number: int, where: str = "record.json") -> list[Block]:
    return [("hint", f"{number:,} more are in {where}.")] if number > 0 else []


def _confusion_blocks(record: RunRecord, samples: str) -> list[Block]:
    """The matrix of the test split (else validation's) and the pairs most often confused."""
    square = (
        (split, counts)
        for split in summary.SPLITS
        for counts in [record.confusion.get(split, [])]
        if all(len(row) == len(counts) and min(row) >= 0 for row in counts) and any(map(sum, counts))
    )
    split, counts = next(square, ("", []))
    if not split:
        return []
    named = (record.task.names, [row.name for row in record.per_class.get("test", [])])
    names = next(
        (list(found[: len(counts)]) for found in named if len(found) >= len(counts)), [f"class {at}" for at in range(len(counts))]
    )
    noun = "pixel" if record.draws_masks else "image"
    drawn = len(charts.most_mistaken(counts))
    pixels = ", counted in pixels" if record.draws_masks else ""
    part = f" Drawn are the {drawn} of {len(counts)} classes with the most mistakes." if drawn < len(counts) else ""
    hint = (
        f"Each row is a true class of the {summary.SPLIT_WORDS[split]} {samples}{pixels}, each column an answer; the stronger "
        "the colour, the larger the share of the row. Blue cells are right, orange ones are mistakes. Point at a cell for its "
        f"count.{part}"
    )
    places = [(t, p) for t in range(len(counts)) for p in range(len(counts)) if t != p and counts[t][p] > 0]
    sizes = [sum(row) for row in counts if any(row)]
    uneven = max(sizes) >= _UNEVEN * min(sizes)

    def matters(place: tuple[int, int]) -> tuple[bool, float, str, str]:
        """Where classes are uneven, the share of a class that is lost counts, unless it is a single sample."""
        count = counts[place[0]][place[1]]
        weight = count / sum(counts[place[0]]) if uneven else float(count)
        return uneven and count < 2, -weight, names[place[0]], names[place[1]]

    worst = sorted(places, key=matters)[:_MOST_PAIRS]
    rows = [[names[t], names[p], f"{counts[t][p]:,}", f"{counts[t][p] / sum(counts[t]) * 100:.0f} %"] for t, p in worst]
    pairs = Table(("truth", "answer", f"{noun}s", "share of the class"), rows, right=(2, 3))
    found: list[Block] = [
        ("hint", hint),
        ("wide", charts.confusion_chart("confusion", counts, names, in_percent=record.draws_masks)),
    ]
    title = "Most confused, by the share of the true class" if uneven else "Most confused"
    found += [("h3", title), ("table", pairs)] if rows else [("p", f"No {noun} was taken for another class.")]
    if len(counts) <= _MOST_TABULATED:
        whole = [[name, *(f"{count:,}" for count in row)] for name, row in zip(names, counts, strict=True)]
        table = Table(("truth", *names), whole, right=range(1, len(names) + 1))
        found.append(("details", ("All counts as a table", table)))
    return found


def _class_blocks(record: RunRecord) -> list[Block]:
    masks = record.draws_masks
    keys = ("iou", "f1", "precision", "recall") if masks else ("precision", "recall", "f1")
    split = next((split for split in summary.SPLITS if record.per_class.get(split)), "")
    rows, noun = record.per_class.get(split, []), "pixels" if masks else "images"
    if not rows:
        return []
    cells = []
    for row in rows:
        shares_text = {key: "" if (share := getattr(row, key)) is None else f"{share * 100:.1f} %" for key in keys}
        if (
            row.recall is not None and row.recall_low is not None and row.recall_high is not None
        ):  # of a few images it says little
            shares_text["recall"] += f" ({row.recall_low * 100:.0f}–{row.recall_high * 100:.0f})"
        cells.append([row.name, *shares_text.values(), "" if row.support is None else f"{row.support:,.0f}"])
    header = ("class", *map(metric_label, keys), noun)
    shares = [getattr(row, "iou" if masks else "f1") for row in rows]
    hint = (
        f"Precision: of the {summary.SPLIT_WORDS[split]} {noun} given this name, how many deserved it. Recall: of the {noun} "
        "that deserve it, how many got it. F1 joins the two."
    )
    hint += " IoU: of the pixels that have this name in the answer or in truth, how many have it in both." if masks else ""
    table = Table(header, cells, right=range(1, len(header)), shares=shares, style="sortable")
    return [("hint", f"{hint} The bars are {'IoU' if masks else 'F1'}."), ("table", table)]


def _target_blocks(record: RunRecord) -> list[Block]:
    tables = view.target_tables(record)
    hint = "R² is better the higher, errors the lower; in brackets the 95 % interval, where one could be computed."
    if record.task.kind == LABELS:
        cuts = ", ".join(f"{name} {share:.3g}" for name, share in record.thresholds.items())
        hint = "Average precision needs no threshold; the others are at the probability that val chose for each label: " + cuts
        hint += ". In brackets the 95 % interval."
    sums = view.derived_targets(record.training.targets if record.training else None)
    hint += " A target with “=” is not learned by itself: it is derived as that sum." if sums else ""
    return [*(("table", table) for table in tables), ("hint", hint)] if tables else []


def _scatter_blocks(record: RunRecord) -> list[Block]:
    drawn, left_out = [], 0
    sums = view.derived_targets(record.training.targets if record.training else None)
    for place, row in enumerate(record.scatter):
        pairs = list(zip(row.truth, row.predicted, strict=False))
        known = [(truth, predicted) for truth, predicted in pairs if truth is not None and predicted is not None]
        name = row.target or f"target {place + 1}"
        left_out += len(pairs) - len(known)
        if known:
            drawing = charts.scatter_chart(f"scatter-{place}", name, [t for t, _ in known], [p for _, p in known])
            drawn.append((f"{name} = {sums[name]}" if name in sums else name, drawing))
    hint = "Each point is an image. On the dashed line the prediction is exactly right."
    hint += f" {format_count(left_out, 'point')} without a finite value are not drawn." if left_out else ""
    return [("hint", hint), ("square", drawn)] if drawn else []


def _mistake_blocks(record: RunRecord) -> list[Block]:
    """The answers that were most confidently (or for numbers, farthest) wrong, as pictures."""
    regression = record.task.kind == "regression"
    which = "The predictions farthest from the truth." if regression else "The wrong answers the model was surest of."
    shown = [
        {
            "name": one.sample_id or Path(one.path).name,
            "path": one.path or one.sample_id,
            "truth": _maybe(one.truth),
            "predicted": _maybe(one.predicted),
            "confidence": "" if one.confidence is None else f"{one.confidence * 100:.0f} % sure",
            "thumbnail": safe_thumbnail(one.thumbnail),
        }
        for one in record.mistakes[:_MOST_SHOWN]
    ]
    hint = f"{which} They often show a wrong label, or what the model really looks at."
    return [("hint", hint), ("mistakes", shown), *_more(len(record.mistakes) - _MOST_SHOWN)] if shown else []


def _threshold_blocks(held: ThresholdCurves | None, samples: str) -> list[Block]:
    """What finding more of the rarer of two classes costs."""
    if held is None:
        return []
    roc = charts.share_curve("roc", held.roc, "false positive rate", "true positive rate", diagonal=True)
    rare = charts.share_curve("precision-recall", held.precision_recall, "recall", "precision")
    where, share = f"{summary.SPLIT_WORDS[held.split]} {samples}", held.num_positive / held.num_samples
    hint = (
        f"“{held.positive}” ({held.num_positive:,} of {held.num_samples:,} {where}) is the answer where its probability is above "
        "a threshold; each point of a curve is one threshold. Guessing has a ROC curve of area 0.5, a perfect ranking of area "
        f"1; the average precision of guessing is {share:.3f}."
    )
    drawn = [
        (f"ROC curve, area {held.roc_area:.3f}", roc),
        (f"Precision and recall, average precision {held.average_precision:.3f}", rare),
    ]
    return [("hint", hint), ("square", drawn)]


def _calibration_blocks(record: RunRecord) -> list[Block]:
    held = record.calibration
    if held is None:
        return []
    full = [
        charts.ReliabilityPoint(row.confidence, row.accuracy, row.count)
        for row in held.bins
        if row.confidence is not None and row.accuracy is not None and row.count > 0
    ]
    errors = {"calibration error before": held.ece_before, "after scaling": held.ece_after}
    facts = [(word, format_metric("ece", value)) for word, value in errors.items() if value is not None]
    facts += [("temperature", format_number(held.temperature))] if held.temperature is not None else []
    if not full and not facts:
        return []
    rows = [[f"{sure * 100:.0f} %", f"{right * 100:.0f} %", f"{count:,.0f}"] for sure, right, count in full]
    hint = (
        "Points on the dashed line mean that answers given with 80 % confidence are right 80 % of the time. Below the line the "
        "model is too sure of itself, above it too modest. Larger points stand for more answers."
    )
    found: list[Block] = [("square", [("", charts.reliability_chart("reliability", full))])] if full else []
    found += [("p", hint), ("facts", facts)]
    table = Table(("mean confidence", "share right", "answers"), rows, right=(1, 2))
    return [*found, *([("details", ("As a table", table))] if rows else [])]


def _data_blocks(record: RunRecord) -> list[Block]:
    found = _balance_blocks(record)
    sums = view.derived_targets(record.training.targets if record.training else None)
    for word, described in (("target", record.data.targets_summary), ("extra input", record.data.inputs_summary)):
        if described:
            names = {key for row in described.values() for key in row}
            keys = sorted(names, key=lambda key: in_order(key, ("mean", "std", "min", "max")))
            rows = [
                [f"{name} = {sums[name]}" if name in sums else name, *(_maybe(row.get(key)) for key in keys)]
                for name, row in described.items()
            ]
            found.append(("table", Table((word, *keys), rows, right=range(1, len(keys) + 1))))
    source: list[Block] = [("hint", f"From {record.data.source}")] if record.data.source else []
    return [*source, *found] if found else []


def _balance_blocks(record: RunRecord) -> list[Block]:
    """How many images (for masks pixels) of each class each split holds."""
    held = {
        split: {name: int(count) for name, count in counts.items() if count >= 0}
        for split, counts in (record.data.class_counts or {}).items()
    }
    splits = sorted((split for split in held if held[split]), key=lambda split: in_order(split, _SPLITS))
    totals = {name: sum(held[split].get(name, 0) for split in splits) for split in splits for name in held[split]}
    if not totals:
        return []
    noun, judged = ("pixels", "mean IoU") if record.draws_masks else ("images", "balanced accuracy")
    largest, smallest = max(totals.values()) or 1, max(1, min(totals.values()))
    if largest >= _UNEVEN * smallest:
        balance = f"The largest class has {largest / smallest:.0f} times as many {noun} as the smallest: {judged} and macro F1 "
        balance += "count each class equally."
    else:
        balance = "The classes are of similar size." + (" They are counted in pixels." if record.draws_masks else "")
    names = sorted(totals, key=lambda name: (-totals[name], name))
    rows = [[name, *(f"{held[split].get(name, 0):,}" for split in splits)] for name in names]
    header = ("class", *(summary.SPLIT_WORDS.get(split, split) for split in splits))
    shares = [totals[name] / largest for name in names]
    return [("p", balance), ("table", Table(header, rows, right=range(1, len(header)), shares=shares))]


# -- how it came about ---------------------------------------------------------------------------------------------------------


def _ladder_blocks(record: RunRecord) -> list[Block]:
    table = view.ladder_table(record)
    hint = (
        "In this order. Each was judged on the validation images, by itself and with those before it, by probabilities that were "
        "calibrated on these very images and with rare classes counting more where classes are uneven: a little lower than among "
        "the results above. The share is what it counts in the answer."
    )
    return [("hint", hint), ("table", table)] if table else []


def _sweep_blocks(record: RunRecord) -> list[Block]:
    """Every configuration tried, best first; settings that never varied once. None for a network, or several models."""
    if not record.sweep or record.ladder or view.training_facts(record):
        return []
    configs = [row.config for row in record.sweep]
    keys = sorted({key for config in configs for key in config}, key=lambda key: in_order(key, ("kind", "hidden", "lr")))
    varied = [key for key in keys if len({repr(config.get(key)) for config in configs}) > 1]
    fixed = ", ".join(f"{key} {format_value(configs[0].get(key))}" for key in keys if key not in varied)
    sign = 1.0 if record.selection_metric in LOSSES else -1.0
    best_first = sorted(record.sweep, key=lambda row: (row.val_metric is None, sign * (row.val_metric or 0.0)))
    rows = [
        [
            *(format_value(row.config.get(key)) for key in varied),
            *map(_maybe, (row.val_metric, row.val_loss)),
            "" if row.best_epoch is None else f"{row.best_epoch:g}",
            "kept" if row.picked else "",
        ]
        for row in best_first
    ]
    picked = next((place for place, row in enumerate(best_first) if row.picked), None)
    hint = "All were trained on the same features; the one in bold was picked by its figures on the validation images."
    hint += f" The same for all: {fixed}." if fixed else ""
    header, right = (*varied, "val. metric", "val. loss", "best epoch", ""), range(len(varied), len(varied) + 3)
    winner = summary.winner_sentence(record)
    table = Table(header, rows, right=right, picked=picked, style="sortable")
    return [*([("p", winner)] if winner else []), ("hint", hint), ("table", table)]


def _time_blocks(record: RunRecord) -> list[Block]:
    table, works, memory = view.timing_table(record), view.work_tables(record, explain=True), view.memory_table(record.memory)
    found: list[Block] = [("p", "; ".join(view.timing_notes(record)))] if table and view.timing_notes(record) else []
    found += [("table", table)] if table else []
    for work in works:
        found += [("h3", work.title[0].upper() + work.title[1:]), ("table", work)]
    if (epochs := view.epoch_table(record)) is not None:
        found.append(("details", ("Training epoch by epoch", epochs)))
    if record.chokes:
        found += [
            ("h3", "What held this run back"),
            ("hint", "From the clocks above, the largest gain of the whole command first."),
        ]
        found.append(("findings", [view.describe_finding(choke) for choke in record.chokes]))
    return found + ([("h3", "Memory at its peak"), ("table", memory)] if memory else [])


def _choice_blocks(record: RunRecord) -> list[Block]:
    rows = [(one.name, format_value(one.value), one.reason, view.sorted_facts(one.evidence)) for one in record.choices]
    hint = "What was decided for this run, by unchoke or by you, and the reason for it."
    return [("hint", hint), ("choices", rows)] if rows else []


def _check_blocks(record: RunRecord) -> list[Block]:
    found: list[Block] = []
    if record.findings:
        found += [("p", f"The check before training found {count_findings(record.findings)}.")]
        found += [("findings", [view.describe_finding(one) for one in rank(record.findings)])]
    elif record.findings is not None:
        found += [("p", "The check before training found nothing to complain about.")]
    if record.quarantine is not None:
        files = [(row.path or row.sample_id, row.reason) for row in record.quarantine]
        said = f"{len(files):,} could not be used and took no part." if files else "None: every file could be read."
        table = Table(("file", "reason"), files[:_MOST_FILES], style="stack")
        found += [("h3", "Files set aside"), ("p", said), *([("table", table)] if files else [])]
        found += _more(len(files) - _MOST_FILES, "quarantine.csv")
    if record.unscored:
        rows = [(row.path or row.sample_id, row.split, row.reason) for row in record.unscored]
        table = Table(("file", "split", "reason"), rows[:_MOST_FILES], style="stack")
        found += [("h3", "Images left out of the score"), ("table", table), *_more(len(rows) - _MOST_FILES)]
    return found


def _reproduce_blocks(record: RunRecord) -> list[Block]:
    first = ("name", "weights", "engine", "precision", "dim", "image_px")
    encoder = view.sorted_facts(record.encoder.to_dict(), *first)
    versions = view.sorted_facts(record.versions, "unchoke", "python", "torch")
    found: list[Block] = [("pre", record.command)] if record.command else []
    found += [("h3", "Encoder"), ("facts", encoder)] if encoder else []
    return found + ([("h3", "Versions"), ("facts", versions)] if versions else [])
