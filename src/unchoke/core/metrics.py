"""The one list of metrics: what each is called, how it reads, which way is better, and how it is computed.

Scoring (`training/scoring`, `masks`) computes them, selection picks by them, the database ranks by them and reports show them:
all look names up here. A figure of one target or class is named ``r2/height``. Nothing is computed in this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unchoke.core.units import format_number

CLASSES, LABELS, VALUES, MASKS = "classification", "multi_label", "regression", "segmentation"


@dataclass(frozen=True)
class Metric:
    """`is_share` metrics are shown in percent; `high` is the best or worst value there can be, None where there is no end."""

    name: str
    label: str
    how: str
    tasks: tuple[str, ...]
    is_share: bool = False
    higher_is_better: bool = True
    low: float | None = 0.0
    high: float | None = 1.0
    curve: str = ""
    """The title of its learning curve, where it is followed during training."""

    @property
    def of_validation(self) -> str:
        """Its name in a history, where it is that of the validation split."""
        return f"val_{self.name}"


LOSSES = ("log_loss", "loss")
"""What heads and networks may be picked by of which less is better."""
METRICS = (
    Metric("accuracy", "accuracy", "right answers / samples", (CLASSES,), is_share=True, curve="Validation accuracy"),
    Metric(
        "balanced_accuracy",
        "balanced accuracy",
        "the mean recall of the classes that occur",
        (CLASSES,),
        is_share=True,
        curve="Balanced accuracy",
    ),
    Metric("mean_ap", "mAP", "the mean of the labels' average precision", (LABELS,), is_share=True),
    Metric("mean_iou", "mean IoU", "the mean IoU of the classes there are", (MASKS,), is_share=True, curve="Validation mean IoU"),
    Metric("macro_f1", "macro F1", "the mean F1 of the classes there are", (CLASSES, LABELS, MASKS), is_share=True),
    Metric("micro_f1", "micro F1", "F1 over all pairs of sample and label", (LABELS,), is_share=True),
    Metric("ap", "average precision", "Σ recall gained · precision, down the ranking by probability", (LABELS,), is_share=True),
    Metric("pixel_accuracy", "pixel accuracy", "right pixels / labelled pixels", (MASKS,), is_share=True),
    Metric("iou", "IoU", "hits / (in truth or in the answer)", (MASKS,), is_share=True),
    Metric("f1", "F1", "2 · hits / (in truth + in the answer)", (CLASSES, LABELS, MASKS), is_share=True),
    Metric(
        "log_loss",
        "log loss",
        "the mean of −log(probability of the true class)",
        (CLASSES, LABELS),
        higher_is_better=False,
        high=None,
    ),
    Metric(
        "ece",
        "calibration error",
        "|confidence − share right| over 15 bins of confidence, averaged over samples",
        (CLASSES, LABELS),
        is_share=True,
        higher_is_better=False,
    ),
    Metric(
        "weighted_r2",
        "weighted R²",
        "1 − Σ w·(y − ŷ)² / Σ w·(y − ȳ)² over all pairs of sample and target",
        (VALUES,),
        low=None,
        curve="Validation weighted R²",
    ),
    Metric(
        "weighted_mean_r2",
        "weighted mean R²",
        "Σ w·R² / Σ w over the targets, each R² with its target's own mean",
        (VALUES,),
        low=None,
    ),
    Metric("r2", "R²", "1 − Σ (y − ŷ)² / Σ (y − ȳ)²", (VALUES,), low=None, curve="Validation R²"),
    Metric("mae", "mean absolute error", "the mean of |y − ŷ|", (VALUES,), higher_is_better=False, high=None),
    Metric("rmse", "root mean squared error", "√ of the mean of (y − ŷ)²", (VALUES,), higher_is_better=False, high=None),
    Metric("precision", "precision", "hits / in the answer", (CLASSES, LABELS, MASKS), is_share=True),
    Metric("recall", "recall", "hits / in truth", (CLASSES, LABELS, MASKS), is_share=True),
    Metric(
        "loss",
        "loss",
        "what training brings down, on the validation split",
        (CLASSES, LABELS, VALUES, MASKS),
        False,
        False,
        None,
        None,
    ),
)
"""In the order a reader wants them."""
LEADING = ("mean_iou", "mean_ap", "accuracy", "weighted_r2", "r2", "balanced_accuracy", "macro_f1", "mae")
"""What a report puts first where a record does not say what its run was picked by."""
BEST_BY = ("balanced_accuracy", "accuracy", "mean_ap", "mean_iou", "weighted_r2", "r2", "mae", "loss")
"""What the best run is when nobody says: the first of these that was recorded."""
_BY_NAME = {metric.name: metric for metric in METRICS}


def find_metric(name: str) -> Metric:
    """The metric that ``r2/height`` is a value of; one we do not know is any number, better the higher."""
    stem = name.partition("/")[0]
    return _BY_NAME.get(stem) or Metric(stem, stem.replace("_", " "), "", (), low=None)


def metric_label(name: str) -> str:
    """``r2/height`` as ``R² of height``."""
    target = name.partition("/")[2]
    label = find_metric(name).label
    return f"{label} of {target}" if target else label


def format_metric(name: str, value: float) -> str:
    """Shares in percent, everything else with three digits that matter."""
    return f"{value * 100:.1f} %" if find_metric(name).is_share else format_number(value)


def metric_order(name: str) -> tuple[int, str]:
    """A sort key: metrics as listed, others after them by name."""
    return in_order(name, tuple(_BY_NAME))


def in_order(name: str, known: Sequence[str]) -> tuple[int, str]:
    """A sort key: known names as listed, others after them by name, so that nothing depends on the order of keys in a file."""
    return (known.index(name) if name in known else len(known), name)
