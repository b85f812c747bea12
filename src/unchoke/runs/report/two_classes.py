"""Of a run on two classes: how its answers change with the threshold, from what it said of single samples.

In: `predictions.csv` of a run. Out: the points of the ROC curve and of the precision-recall curve, and the areas below them.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from unchoke.core.input_file import read_plain
from unchoke.runs.report import summary

if TYPE_CHECKING:
    from unchoke.core.record import RunRecord

_MOST_POINTS = 400
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class ThresholdCurves:
    """`positive` is the class that the curves are about: the rarer one."""

    positive: str
    split: str
    num_positive: int
    num_samples: int
    roc: Points
    """Share of the others that are called so, share of the positive ones that are found."""
    roc_area: float
    precision_recall: Points
    """Share of the positive ones that are found, share of those called so that are."""
    average_precision: float


def load_threshold_curves(folder: Path, record: RunRecord) -> ThresholdCurves | None:
    """The curves of test, else of val; None for other tasks, and where the file does not say enough."""
    names = list(record.task.names)
    try:
        rows = list(csv.DictReader(io.StringIO(read_plain(folder / "predictions.csv").decode("utf-8"))))
        for split in summary.SPLITS if record.task.kind == "classification" and len(names) == 2 else ():
            found = [row for row in rows if row["split"] == split]
            counts = Counter(row["truth"] for row in found)
            if set(counts) == set(names):
                positive = min(reversed(names), key=lambda name: counts[name])
                scored = [(float(row[f"p/{positive}"]), row["truth"] == positive) for row in found]
                return threshold_curves(scored, positive, split)
    except (OSError, ValueError, KeyError, TypeError, csv.Error):  # a page is drawn without
        pass
    return None


def threshold_curves(scored: Sequence[tuple[float, bool]], positive: str, split: str) -> ThresholdCurves:
    """From each sample's probability of the positive class, and whether it is of that class; equal ones fall together."""
    num = sum(is_one for _, is_one in scored)
    hits = misses = 0
    roc, curve, average = [(0.0, 0.0)], list[tuple[float, float]](), 0.0
    ordered = sorted(scored, key=lambda one: -one[0])
    for place, (score, is_one) in enumerate(ordered):
        hits, misses = hits + is_one, misses + (not is_one)
        if place + 1 < len(ordered) and ordered[place + 1][0] == score:
            continue
        recall, precision = hits / num, hits / (hits + misses)
        average += (recall - roc[-1][1]) * precision
        roc.append((misses / (len(scored) - num), recall))
        curve.append((recall, precision))
    area = sum((right[0] - left[0]) * (left[1] + right[1]) / 2 for left, right in pairwise(roc))
    curve.insert(0, (0.0, curve[0][1]))
    thin = max(1, len(roc) // _MOST_POINTS)
    kept = ([*points[:-1:thin], points[-1]] for points in (roc, curve))
    return ThresholdCurves(positive, split, num, len(scored), next(kept), area, next(kept), average)
