"""What is said of masks beside masks without a network: those that the spectrum of single pixels gives.

In: a record with `pixel_baselines`. Out: a warning that comes first where the network does not beat them, and a sentence with
all of them. Of two classes the IoU of the second is compared, of more the mean over them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from unchoke.core.metrics import format_metric
from unchoke.runs.report import summary
from unchoke.runs.report.layout import visible

if TYPE_CHECKING:
    from unchoke.core.record import BaselineScore, RunRecord


def pixel_warning(record: RunRecord) -> str:
    """That a baseline is as good as the network or better, said plainly; else nothing."""
    split, own, name = _own(record)
    better = [(value, words) for value, words in _reached(record, split) if own is not None and value >= own]
    if not better or own is None:
        return ""
    value, words = max(better)
    reached, against = format_metric("iou", own), format_metric("iou", value)
    where = f"on the {summary.SPLIT_WORDS[split]} patches"
    return f"The network does not beat {visible(words)} {where}: {name} {reached} against {against}."


def pixel_sentence(record: RunRecord) -> str:
    """What each baseline reaches, and the network."""
    split, own, name = _own(record)
    found = [f"{visible(words)} {format_metric('iou', value)}" for value, words in _reached(record, split)]
    if not found or own is None:
        return ""
    against = f"{', '.join(found)}; the network {format_metric('iou', own)}"
    return f"Pixel by pixel, on the same {summary.SPLIT_WORDS[split]} patches, {name}: {against}."


def _own(record: RunRecord) -> tuple[str, float | None, str]:
    """The side that judges, the network's figure there, and what the figure is called."""
    for split in ("test", "val"):
        score = next((one for one in _scores(record, split)), None)
        if score is not None:
            two = len(record.task.names) == 2
            figure = f"iou/{score.class_}" if two else "mean_iou"
            own = next((metric.value for metric in summary.metrics_of(record, split) if metric.name == figure), None)
            return split, own, f"IoU of {visible(score.class_)}" if two else "mean IoU"
    return "test", None, ""


def _scores(record: RunRecord, split: str) -> Iterator[BaselineScore]:
    for held in record.pixel_baselines:
        score = held.test if split == "test" else held.val
        if score is not None:
            yield score


def _reached(record: RunRecord, split: str) -> Iterator[tuple[float, str]]:
    """The figure and the name of every baseline that was judged on that side."""
    for held in record.pixel_baselines:
        score = held.test if split == "test" else held.val
        value = None if score is None else score.iou if len(record.task.names) == 2 else score.mean_iou
        if value is not None:
            yield value, held.name
