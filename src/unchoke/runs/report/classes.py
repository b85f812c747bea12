"""What the report shows class by class: confusions, per-class figures, balance, calibration.

In comes a record or a part of it, out come plain values for the template, or None where there is nothing to show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unchoke.core.metrics import format_metric, metric_label
from unchoke.runs.report import charts, summary
from unchoke.runs.report.svg import share_bar, stacked_bar

if TYPE_CHECKING:
    from unchoke.core.record import CalibrationRecord, ClassRecord, DataRecord, RunRecord

Model = dict[str, Any]
_SPLIT_ORDER = ("train", "val", "test")
_MOST_TABULATED = 20


def class_names(record: RunRecord, count: int) -> list[str]:
    """A name for each of `count` classes: the task's, the per-class table's, or the number."""
    names = record.task.names
    if len(names) < count:
        names = [row.name for row in _class_records(record, "test")]
    return names[:count] if len(names) >= count else [f"class {place}" for place in range(count)]


def confusion(record: RunRecord) -> Model | None:
    """The matrix of the test split (else validation's) and the pairs most often confused."""
    for split in summary.SPLITS:
        counts = record.confusion.get(split, [])
        if _is_square(counts) and any(map(sum, counts)):
            names = class_names(record, len(counts))
            return {
                "split": summary.SPLIT_WORDS[split],
                "noun": "pixel" if record.draws_masks else "image",
                "chart": charts.confusion_chart("confusion", counts, names, in_percent=record.draws_masks),
                "num_classes": len(counts),
                "num_drawn": len(charts.most_mistaken(counts)),
                "pairs": [(pair, f"{pair.share * 100:.0f} %") for pair in summary.confused_pairs(counts, names)],
                "table": {"header": ["truth", *names], "rows": [[name, *row] for name, row in zip(names, counts, strict=True)]}
                if len(counts) <= _MOST_TABULATED
                else None,
            }
    return None


def _is_square(counts: Sequence[Sequence[int]]) -> bool:
    return all(len(row) == len(counts) and min(row) >= 0 for row in counts)


def per_class(record: RunRecord) -> Model | None:
    """Precision, recall, F1 (for masks IoU as well) and support of each class; hardest classes can be sorted to the top."""
    masks = record.draws_masks
    keys = ("iou", "f1", "precision", "recall") if masks else ("precision", "recall", "f1")
    leading = "iou" if masks else "f1"
    for split in summary.SPLITS:
        rows = [_class_row(row, keys, leading) for row in _class_records(record, split)]
        if rows:
            return {
                "split": summary.SPLIT_WORDS[split],
                "noun": "pixels" if masks else "images",
                "header": [metric_label(key) for key in keys],
                "leading": metric_label(leading),
                "rows": rows,
            }
    return None


def _class_records(record: RunRecord, split: str) -> Sequence[ClassRecord]:
    """The classes of a split; none where a damaged record has something else there."""
    return record.per_class.get(split, []) if isinstance(record.per_class, Mapping) else []


def _class_row(row: ClassRecord, keys: Sequence[str], leading: str) -> Model:
    shares: list[float | None] = [None if (share := getattr(row, key)) is None else float(share) for key in keys]
    drawn = getattr(row, leading)
    return {
        "name": row.name,
        "shares": [
            (share, "" if share is None else _share_text(row, key, share)) for key, share in zip(keys, shares, strict=True)
        ],
        "bar": share_bar(drawn) if drawn is not None else None,
        "support": None if row.support is None else float(row.support),
    }


def _share_text(row: ClassRecord, key: str, share: float) -> str:
    """``83.3 %``, a recall with its interval: of a few images it says little."""
    text = f"{share * 100:.1f} %"
    if key != "recall" or row.recall_low is None or row.recall_high is None:
        return text
    return f"{text} ({row.recall_low * 100:.0f}–{row.recall_high * 100:.0f})"


def balance(record: RunRecord) -> Model | None:
    """How many images (for masks pixels) of each class each split holds."""
    counts = class_counts(record.data)
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
        rows.append({"name": name, "counts": own, "total": totals[name], "bar": stacked_bar(parts)})
    labels = [(summary.SPLIT_WORDS.get(split, split), f"s{place + 1}") for place, split in enumerate(splits)]
    masks = record.draws_masks
    judged = "mean IoU" if masks else "balanced accuracy"
    words = {"noun": "pixels" if masks else "images", "judged": f"{judged} and macro F1"}
    return {**words, "splits": labels, "rows": rows, "ratio": largest / max(1, min(totals.values()))}


def class_counts(data: DataRecord) -> dict[str, dict[str, int]]:
    """Images of each class in each split; splits that hold none are left out."""
    found = {
        split: {name: int(count) for name, count in counts.items() if count >= 0}
        for split, counts in (data.class_counts or {}).items()
    }
    return {split: counts for split, counts in found.items() if counts}


def calibration(record: RunRecord) -> Model | None:
    """Whether the model's confidence can be believed, before and after temperature scaling."""
    return _calibration(record.calibration) if record.calibration else None


def _calibration(held: CalibrationRecord) -> Model | None:
    full = [
        charts.ReliabilityPoint(row.confidence, row.accuracy, row.count)
        for row in held.bins
        if row.confidence is not None and row.accuracy is not None and row.count > 0
    ]
    facts = {"temperature": held.temperature, "ece_before": held.ece_before, "ece_after": held.ece_after}
    if not full and all(value is None for value in facts.values()):
        return None
    table = [[f"{sure * 100:.0f} %", f"{right * 100:.0f} %", f"{count:,.0f}"] for sure, right, count in full]
    return {
        **{
            key: None if value is None else format_metric("ece" if key != "temperature" else "", value)
            for key, value in facts.items()
        },
        "chart": charts.reliability_chart("reliability", full) if full else None,
        "table": {"header": ["mean confidence", "share right", "answers"], "rows": table} if full else None,
    }
