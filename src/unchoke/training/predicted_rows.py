"""What `predict` says of each image: rows of one shape, also for images that cannot be read.

In: what was asked for (further guesses, all probabilities, abstention, the level of intervals), outputs of a model, and the run's
own predictions of val and test. Out: rows, and what the run's own photos say of the threshold or the intervals asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unchoke.core.errors import UsageError
from unchoke.core.metrics import format_metric
from unchoke.core.record import Interval, ValueIntervalRecord
from unchoke.training.scoring.predicted_columns import class_columns
from unchoke.training.scoring.proportions import wilson
from unchoke.training.scoring.value_intervals import LEVEL, fewest_samples, value_intervals

UNSURE = "unsure"
ERROR = "error"


@dataclass(frozen=True)
class RowOptions:
    """`top` guesses, every probability, "unsure" below a confidence; and for values the level of their intervals."""

    probabilities: bool = False
    top: int | None = None
    unsure_below: float | None = None
    level: float | None = None

    def __post_init__(self) -> None:
        if self.top is not None and self.top < 1:
            raise UsageError(
                f"--top {self.top} asks for no guess",
                code="out-of-range",
                why="it counts guesses, the likeliest first",
                try_="--top 3",
            )
        for option, share in (("--unsure-below", self.unsure_below), ("--level", self.level)):
            if share is not None and not 0 < share < 1:
                raise UsageError(
                    f"{option} {share:g} is out of range",
                    code="out-of-range",
                    why="it is above 0 and below 1",
                    try_=f"{option} 0.8",
                )

    def refuse_kind(self, kind: str, names: Sequence[str], run: str) -> None:
        """Refuse what does not go with a run of this kind."""
        asked = {"--probabilities": self.probabilities or None, "--top": self.top, "--unsure-below": self.unsure_below}
        if kind == "classification":
            asked = {"--level": self.level}
        wrong = [option for option, value in asked.items() if value is not None]
        if wrong:
            learnt = "classes, which have probabilities" if kind == "classification" else "values, which have intervals"
            try_ = "leave it out" if kind == "classification" else "leave it out, or --level 0.8 for another interval"
            raise UsageError(
                f"{wrong[0]} does not go with {run}", code="option-not-for-task", why=f"it was trained on {learnt}", try_=try_
            )
        if self.unsure_below is not None and UNSURE in names:
            raise UsageError(
                f"--unsure-below would call photos {UNSURE!r}, which is a class of {run}",
                code="class-name-taken",
                why="the two could not be told apart",
                try_="--probabilities, and a threshold of your own",
            )


@dataclass(frozen=True)
class ThresholdFacts:
    """What a threshold of confidence did to the run's own photos: how many were at least as sure, and how many of these right."""

    threshold: float
    split: str
    num_photos: int
    coverage: Interval
    accuracy: Interval

    def words(self) -> str:
        share = format_metric("accuracy", self.coverage.value or 0.0)
        sure = f"{share} of the run's {self.num_photos:,} {self.split} photos were at least that sure"
        if self.accuracy.value is None or self.accuracy.low is None or self.accuracy.high is None:
            return sure
        limits = f"95 % interval {self.accuracy.low * 100:.1f}–{self.accuracy.high * 100:.1f} %"
        return f"{sure}, and {format_metric('accuracy', self.accuracy.value)} of these were right ({limits})"


def threshold_facts(table: pd.DataFrame, threshold: float) -> ThresholdFacts | None:
    """From a run's `predictions.csv`: of its test split, else of val; None where it judged nothing."""
    for split in ("test", "val"):
        rows = table[table["split"] == split]
        if len(rows):
            sure = rows["confidence"].to_numpy(np.float64) >= threshold
            hits = (rows["truth"] == rows["predicted"]).to_numpy()[sure]
            return ThresholdFacts(threshold, split, len(rows), _share(sure), _share(hits))
    return None


def _share(hits: NDArray[np.bool_]) -> Interval:
    if len(hits) == 0:
        return Interval(None, None, None)
    low, high = wilson(hits.mean(), len(hits))
    return Interval(float(hits.mean()), float(low), float(high))


def run_intervals(table: pd.DataFrame, names: Sequence[str], level: float | None) -> tuple[ValueIntervalRecord | None, str]:
    """From a run's `predictions.csv`: intervals of its values and what is to be said of them."""
    level = LEVEL if level is None else level
    pairs = {split: _values(table[table["split"] == split], names) for split in ("val", "test")}
    found = value_intervals(names, pairs["val"], pairs["test"], level=level)
    num_val = len(pairs["val"][1])
    if found is None:
        return None, f"none: the run has {num_val:,} val photos, and {level * 100:g} % takes {fewest_samples(level):,}"
    return found, interval_words(found)


def interval_words(found: ValueIntervalRecord) -> str:
    """Where intervals come from, and how often they held."""
    said = f"{found.level * 100:g} % from the errors on {found.num_val:,} val photos"
    shares = [one.value for one in found.coverage.values() if one.value is not None]
    if not shares:
        return said
    return f"{said}; on the run's {found.num_test:,} test photos they held {float(np.mean(shares)) * 100:.1f} % of the values"


def _values(rows: pd.DataFrame, names: Sequence[str]) -> tuple[NDArray[Any], NDArray[Any]]:
    predicted, truth = (rows[[f"{what}/{name}" for name in names]].to_numpy(np.float64) for what in ("predicted", "truth"))
    return predicted, truth


def class_rows(
    paths: Sequence[str], outputs: NDArray[np.float32], names: tuple[str, ...], temperature: float, options: RowOptions
) -> list[dict[str, Any]]:
    """One row for each image; below the threshold it is "unsure", and the class is a `guess`."""
    columns = class_columns(outputs, names, temperature, top=options.top or 1, every_class=options.probabilities)
    if options.unsure_below is not None:
        sure = columns["confidence"] >= options.unsure_below
        guesses = columns["predicted"]
        columns = {"predicted": np.where(sure, guesses, UNSURE), "confidence": columns.pop("confidence"), "guess": guesses} | {
            name: column for name, column in columns.items() if name != "predicted"
        }
    plain = {name: column.tolist() for name, column in columns.items()}
    return [
        {"path": path, **{name: column[place] for name, column in plain.items()}, ERROR: ""} for place, path in enumerate(paths)
    ]


def value_rows(
    paths: Sequence[str],
    outputs: NDArray[np.float32],
    names: tuple[str, ...],
    widened: ValueIntervalRecord | None,
    *,
    positive: bool = False,
) -> list[dict[str, Any]]:
    """One row for each image: each target, then the ends of its interval where there is one (not below 0 if nothing is)."""
    rows = []
    for path, values in zip(paths, outputs.tolist(), strict=True):
        row: dict[str, Any] = {"path": path, **dict(zip(names, values, strict=True))}
        for name, value in zip(names, values, strict=True) if widened else ():
            low = value - widened.half_widths[name] if widened else value
            high = value + widened.half_widths[name] if widened else value
            row |= {f"{name}/low": max(0.0, low) if positive else low, f"{name}/high": high}
        rows.append({**row, ERROR: ""})
    return rows


def whole_table(paths: Sequence[str], rows: dict[int, dict[str, Any]], failed: dict[str, str]) -> list[dict[str, Any]]:
    """Rows by place, in the order of the images: one that cannot be read has its reason, and nothing else."""
    shape = next(iter(rows.values()), {"path": "", ERROR: ""})
    empty = dict.fromkeys(shape)
    return [rows.get(place) or {**empty, "path": path, ERROR: failed.get(path, "")} for place, path in enumerate(paths)]
