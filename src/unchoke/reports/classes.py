"""What the report shows class by class: confusions, per-class figures, balance, calibration.

In comes a record in JSON types, any part of which may be missing or odd; out come plain values for the template, or None where
there is nothing to show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unchoke.core.metrics import format_metric, metric_label
from unchoke.reports import bars, charts, matrix, summary
from unchoke.reports.summary import number

Model = dict[str, Any]
_SPLIT_ORDER = ("train", "val", "test")
_MOST_TABULATED = 20


def class_names(record: Mapping[str, Any], count: int) -> list[str]:
    """A name for each of `count` classes: the task's, the per-class table's, or the number."""
    named = summary.section(record, "task").get("names")
    names = [str(name) for name in named] if isinstance(named, list) else []
    if len(names) < count:
        names = [str(row.get("name", "")) for row in summary.rows(summary.section(record, "per_class"), "test")]
    return names[:count] if len(names) >= count else [f"class {place}" for place in range(count)]


def square_counts(value: Any) -> list[list[int]] | None:
    """`value` as a square matrix of counts, or None if it is anything else."""
    if not isinstance(value, list) or not value:
        return None
    for row in value:
        if (
            not isinstance(row, list)
            or len(row) != len(value)
            or any((number(item) or 0) < 0 or number(item) is None for item in row)
        ):
            return None
    return [[int(item) for item in row] for row in value]


def confusion(record: Mapping[str, Any]) -> Model | None:
    """The matrix of the test split (else validation's) and the pairs most often confused."""
    held = summary.section(record, "confusion")
    for split in ("test", "val"):
        counts = square_counts(held.get(split))
        if counts and any(map(sum, counts)):
            names = class_names(record, len(counts))
            return {
                "split": summary.SPLIT_WORDS[split],
                "noun": "pixel" if summary.is_segmentation(record) else "image",
                "chart": matrix.confusion_chart("confusion", counts, names, in_percent=summary.is_segmentation(record)),
                "num_classes": len(counts),
                "num_drawn": len(matrix.most_mistaken(counts)),
                "pairs": [(pair, f"{pair.share * 100:.0f} %") for pair in summary.confused_pairs(counts, names)],
                "table": {"header": ["truth", *names], "rows": [[name, *row] for name, row in zip(names, counts, strict=True)]}
                if len(counts) <= _MOST_TABULATED
                else None,
            }
    return None


def per_class(record: Mapping[str, Any]) -> Model | None:
    """Precision, recall, F1 (for masks IoU as well) and support of each class; hardest classes can be sorted to the top."""
    held = summary.section(record, "per_class")
    masks = summary.is_segmentation(record)
    keys = ("iou", "f1", "precision", "recall") if masks else ("precision", "recall", "f1")
    leading = "iou" if masks else "f1"
    for split in ("test", "val"):
        rows = [_class_row(row, keys, leading) for row in summary.rows(held, split)]
        if rows:
            return {
                "split": summary.SPLIT_WORDS[split],
                "noun": "pixels" if masks else "images",
                "header": [metric_label(key) for key in keys],
                "leading": metric_label(leading),
                "rows": rows,
            }
    return None


def _class_row(row: Mapping[str, Any], keys: Sequence[str], leading: str) -> Model:
    shares = {key: number(row.get(key)) for key in keys}
    drawn = shares[leading]
    return {
        "name": str(row.get("name", "")),
        "shares": [(share, "" if share is None else f"{share * 100:.1f} %") for share in shares.values()],
        "bar": bars.share_bar(drawn) if drawn is not None else None,
        "support": number(row.get("support")),
    }


def balance(record: Mapping[str, Any]) -> Model | None:
    """How many images (for masks pixels) of each class each split holds."""
    counts = class_counts(record)
    splits = [split for split in _SPLIT_ORDER if split in counts] + [split for split in counts if split not in _SPLIT_ORDER]
    names = list(dict.fromkeys(name for split in splits for name in counts[split]))
    if not names:
        return None
    totals = {name: sum(counts[split].get(name, 0) for split in splits) for name in names}
    largest = max(totals.values()) or 1
    rows = []
    for name in sorted(names, key=lambda name: (-totals[name], name)):
        own = [counts[split].get(name, 0) for split in splits]
        parts = [(f"{splits[place]}: {count:,}", count / largest, f"s{place + 1}") for place, count in enumerate(own)]
        rows.append({"name": name, "counts": own, "total": totals[name], "bar": bars.stacked_bar(parts)})
    labels = [(summary.SPLIT_WORDS.get(split, split), f"s{place + 1}") for place, split in enumerate(splits)]
    masks = summary.is_segmentation(record)
    judged = "mean IoU" if masks else "balanced accuracy"
    words = {"noun": "pixels" if masks else "images", "judged": f"{judged} and macro F1"}
    return {**words, "splits": labels, "rows": rows, "ratio": largest / max(1, min(totals.values()))}


def class_counts(record: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Images of each class in each split; splits that hold none are left out."""
    held = summary.section(summary.section(record, "data"), "class_counts")
    found: dict[str, dict[str, int]] = {}
    for split in held:
        counts = {name: number(count) for name, count in summary.section(held, split).items()}
        found[split] = {name: int(count) for name, count in counts.items() if count is not None and count >= 0}
    return {split: counts for split, counts in found.items() if counts}


def calibration(record: Mapping[str, Any]) -> Model | None:
    """Whether the model's confidence can be believed, before and after temperature scaling."""
    held = summary.section(record, "calibration")
    bins = [_bin(row) for row in summary.rows(held, "bins")]
    full = [item for item in bins if item is not None and item["count"] > 0]
    facts = {key: number(held.get(key)) for key in ("temperature", "ece_before", "ece_after")}
    if not full and all(value is None for value in facts.values()):
        return None
    table = [[f"{b['confidence'] * 100:.0f} %", f"{b['accuracy'] * 100:.0f} %", f"{b['count']:,.0f}"] for b in full]
    return {
        **{
            key: None if value is None else format_metric("ece" if key != "temperature" else "", value)
            for key, value in facts.items()
        },
        "chart": charts.reliability_chart("reliability", full) if full else None,
        "table": {"header": ["mean confidence", "share right", "answers"], "rows": table} if full else None,
    }


def _bin(row: Mapping[str, Any]) -> dict[str, float] | None:
    values = {key: number(row.get(key)) for key in ("confidence", "accuracy", "count")}
    known = {key: value for key, value in values.items() if value is not None}
    return known if len(known) == 3 else None
