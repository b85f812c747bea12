"""What a model must beat, in words: always answering the commonest class, or the mean.

In: a run's record, also one of before baselines were recorded, or its row of the database. Out: sentences: what the baseline
reaches, and, to be said before anything else, that a model does not beat it, or only by as much as chance gives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unchoke.core.metrics import format_metric, metric_label
from unchoke.core.units import format_number
from unchoke.runs.report.layout import visible

if TYPE_CHECKING:
    from unchoke.core.record import BaselineRecord, Interval, RecordedRun, RunRecord

BASELINE = "baseline/"
"""What the splits are called under which the database keeps the baseline's figures: ``baseline/test``."""
JUDGED_BY = ("accuracy", "weighted_r2", "r2")
"""What a model and its baseline are compared by: the first of these that there is."""
_SPLITS = ("test", "val")
_FOLDS = "; `--folds 5 --fold all` judges by every photo, and chance has less to say"


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


def baseline_answer(record: RunRecord) -> str:
    """``always answering “nv”, the commonest class``; empty for masks, and where nothing says so."""
    if record.task.kind == "regression":
        return "always answering the training mean"
    counts = (record.data.class_counts or {}).get("train", {})
    answer = (record.baseline.answer if record.baseline else "") or max(counts, key=lambda key: counts[key], default="")
    return f"always answering “{visible(answer)}”, the commonest class" if answer and record.task.kind == "classification" else ""


def reached_words(record: RunRecord, split: str, name: str) -> str:
    """For a headline: ``always answering “nv”, the commonest class, gets 66.9 %``; nothing where no baseline is known."""
    value, answer = baseline_value(record, split, name), baseline_answer(record)
    answer += "," if "“" in answer else ""
    return f"{answer} gets {format_metric(name, value)}" if value is not None and answer else ""


def warning(record: RunRecord) -> str:
    """What must be said first: the model is not better than the baseline, or not by more than chance gives. Else nothing."""
    found = _gain(record)
    if found is None:
        return ""
    split, name, gain = found
    answer, own, its = baseline_answer(record), record.metrics[split][name].value, baseline_value(record, split, name)
    if own is None or its is None or gain.value is None or not answer:
        return ""
    figures = f"{metric_label(name)} {format_metric(name, own)} against {format_metric(name, its)}"
    if gain.value <= 0:
        said = f"{visible(record.called)} does not beat {answer}: {figures}{_range(name, gain)}."
    elif gain.low is not None and gain.low <= 0:
        said = f"{visible(record.called)} may be no better than {answer}: {figures}, a difference that chance alone can give"
        said += f"{_range(name, gain)}."
    else:
        return ""
    return f"{said} {_advice(record, split)}"


def _gain(record: RunRecord) -> tuple[str, str, Interval] | None:
    for split in _SPLITS:
        gains = record.baseline.gains.get(split, {}) if record.baseline else {}
        for name in JUDGED_BY:
            if name in gains and name in record.metrics.get(split, {}):
                return split, name, gains[name]
    return None


def _range(name: str, gain: Interval) -> str:
    if gain.low is None or gain.high is None:
        return ""
    if name == "accuracy":
        return f" (95 % interval of the difference {gain.low * 100:+.1f} to {gain.high * 100:+.1f} points)"
    return f" (95 % interval of the difference {format_number(gain.low)} to {format_number(gain.high)})"


def _advice(record: RunRecord, split: str) -> str:
    own, its = record.metrics[split].get("balanced_accuracy"), baseline_value(record, split, "balanced_accuracy")
    if own is not None and own.value is not None and its is not None and own.low is not None and own.low > its:
        told = (
            f"balanced accuracy {format_metric('balanced_accuracy', own.value)} against {format_metric('balanced_accuracy', its)}"
        )
        if _class_weights(record) != "none":
            return f"It does tell the classes apart ({told}). Try --class-weights none, which counts every photo alike."
        folds = "" if record.settings.get("folds") or record.settings.get("fold_column") else _FOLDS
        return f"It does tell the classes apart ({told}). More photos would help, of the rare classes above all{folds}."
    cut = "" if record.training is not None else "--cut -4, "
    return f"Try `unchoke check` for wrong labels, more photos, {cut}or another --encoder."


def _class_weights(record: RunRecord) -> str:
    """What the run that was picked weighed its classes by, typed or chosen; "" where nothing says so."""
    loop = record.training.loop if record.training is not None else None
    picked = [row.config.get("class_weights") for row in record.sweep if row.picked]
    found = [loop.class_weights if loop is not None else None, *picked, record.settings.get("class_weights")]
    return str(next((one for one in found if one), ""))
