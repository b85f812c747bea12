"""Scores of several labels: average precision of each, F1 at a threshold of its own, and their 95 % intervals.

In: calibrated logits (n, labels) and 0 and 1; the logit from which on each label counts as given. Thresholds are chosen on val:
the highest F1, or a wanted precision or recall. Figures of val are those of thresholds that did not see the sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unchoke.core.record import Interval
from unchoke.training.scoring.figures import as_pairs, expected_calibration_error, log_losses, reliability_bins
from unchoke.training.scoring.intervals import (
    Figures,
    Sums,
    effective_sizes,
    intervals,
    mean_limits,
    resamples,
    sum_units,
    widened,
    wilson,
)

Wanted = tuple[Literal["precision", "recall"], float] | None
_FOLDS = 5
_FEWEST_WITH = 3
"""Photos with a label that a threshold of its own takes; below that it is a probability of one half."""
_MOST_WORK = 3e8
"""Resamples · samples · labels, about a second or two; beyond, fewer resamples are drawn, but 100 at least."""


def average_precision(scores_n: NDArray[Any], marks_n: NDArray[Any], weights_rn: NDArray[Any]) -> Sums:
    """Σ recall gained · precision down the ranking, for each row of sample weights; equal scores fall together. NaN without 1."""
    order = np.argsort(-scores_n, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(scores_n[order]) != 0, True))
    weights = weights_rn[:, order].astype(np.float64)
    hits = np.cumsum(weights * marks_n[order], axis=1)[:, ends]
    called = np.cumsum(weights, axis=1)[:, ends]
    gained = np.diff(hits, axis=1, prepend=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Sums = (gained * hits / np.maximum(called, 1)).sum(axis=1) / hits[:, -1]
    return found


def choose_cuts(logits: NDArray[Any], targets: NDArray[Any], wanted: Wanted = None) -> NDArray[np.float32]:
    """For each label the logit from which on it counts as given: that of the highest F1, or of the most recall at a wanted
    precision, or of the most precision at a wanted recall. 0 (a probability of one half) where too few samples have the label.
    """
    cuts = np.zeros(logits.shape[1], np.float32)
    for place in range(logits.shape[1]):
        marks = targets[:, place] > 0
        if marks.sum() < _FEWEST_WITH or marks.all():
            continue
        order = np.argsort(-logits[:, place], kind="stable")
        ranked = logits[order, place].astype(np.float64)
        ends = np.flatnonzero(np.append(np.diff(ranked) != 0, True))
        hits, called = np.cumsum(marks[order])[ends], ends + 1
        precision, recall = hits / called, hits / marks.sum()
        worth = 2 * hits / (called + marks.sum())
        if wanted is not None:
            held, other = (precision, recall) if wanted[0] == "precision" else (recall, precision)
            # where the wanted share is out of reach, as near to it as can be
            worth = np.where(held >= wanted[1], 1 + other, np.minimum(held, wanted[1]))
        best = int(ends[np.argmax(worth)])
        below = ranked[best + 1] if best + 1 < len(ranked) else ranked[best] - 1
        cuts[place] = (ranked[best] + below) / 2
    return cuts


def cuts_apart(logits: NDArray[Any], targets: NDArray[Any]) -> NDArray[np.float32]:
    """For each val sample (n, labels) the cuts that were chosen without it."""
    folds, found = np.arange(len(logits)) % _FOLDS, np.zeros(logits.shape, np.float32)
    for fold in range(_FOLDS):
        found[folds == fold] = choose_cuts(logits[folds != fold], targets[folds != fold])
    return found


def score_labels(
    names: Sequence[str],
    logits: NDArray[np.float32],
    targets: NDArray[Any],
    groups: NDArray[np.int64] | None,
    cuts: NDArray[Any] | None,
    *,
    seed: int,
    bootstrap: int,
) -> tuple[dict[str, Interval], list[str]]:
    """mean_ap, macro_f1, micro_f1, log_loss and ece; and ap, f1, precision and recall of each label as `ap/NAME`. And notes."""
    marks, called = targets > 0, logits >= (0.0 if cuts is None else cuts)
    counts = np.concatenate([marks & called, marks, called], axis=1).astype(np.float32)
    units = sum_units(counts, groups).astype(np.float64)
    hits, truths, claims = np.split(units, 3, axis=1)
    pairs, flat = as_pairs(logits), marks.reshape(-1).astype(np.int64)
    losses = log_losses(pairs, flat).reshape(logits.shape).mean(axis=1)
    whole = label_figures(names, np.ones((1, len(logits)), np.float32), logits, marks, called, losses)
    points: dict[str, float | None] = {
        **{name: float(values[0]) if np.isfinite(values[0]) else None for name, values in whole.items()},
        "ece": expected_calibration_error(reliability_bins(pairs, flat)),
    }
    drawn: dict[str, list[Sums]] = {}
    number = np.arange(len(logits)) if groups is None else np.unique(groups, return_inverse=True)[1]
    num_resamples = int(min(bootstrap, max(100, _MOST_WORK / max(1, logits.size))))
    for weights in resamples(len(units), seed=seed, num_resamples=num_resamples if bootstrap else 0):
        for name, values in label_figures(names, weights[:, number], logits, marks, called, losses).items():
            drawn.setdefault(name, []).append(values)
    found = intervals(points, {name: np.concatenate(parts) for name, parts in drawn.items()}, num_units=len(units))
    if drawn:
        for figure, of in (("recall", truths), ("precision", claims), ("f1", truths + claims - hits)):
            shares = hits.sum(axis=0) / np.maximum(of.sum(axis=0), 1)
            low, high = wilson(shares, effective_sizes(hits, of))
            if figure == "f1":  # it rises with hits / (in truth or in the answer), which is a share
                shares, low, high = (2 * one / (1 + one) for one in (shares, low, high))
                seen = of.sum(axis=0) > 0
                found["macro_f1"] = widened(found["macro_f1"], *mean_limits(shares[seen], low[seen], high[seen]))
            for place, name in enumerate(names):
                if points[f"{figure}/{name}"] is not None:
                    found[f"{figure}/{name}"] = Interval(points[f"{figure}/{name}"], float(low[place]), float(high[place]))
    without = [name for name in names if points[f"ap/{name}"] is None]
    return found, [f"no sample has the label {name!r}: it counts in no average" for name in without]


def label_figures(
    names: Sequence[str],
    weights: NDArray[np.float32],
    logits: NDArray[Any],
    marks: NDArray[np.bool_],
    called: NDArray[np.bool_],
    losses: NDArray[Any],
) -> Figures:
    """Each figure for each row of sample weights (r, n); NaN where it is undefined."""
    hits, truths, claims = (weights @ one.astype(np.float32) for one in (marks & called, marks, called))
    with np.errstate(divide="ignore", invalid="ignore"):
        f1, recall = np.where(truths > 0, 2 * hits / (truths + claims), np.nan), hits / truths
        each = {"f1": f1, "precision": hits / claims, "recall": recall}
        figures: Figures = {"micro_f1": 2 * hits.sum(axis=1) / (truths + claims).sum(axis=1)}
    each["ap"] = np.stack([average_precision(logits[:, place], marks[:, place], weights) for place in range(len(names))], axis=1)
    known = np.isfinite(each["ap"])
    num = np.maximum(known.sum(axis=1), 1)
    for name, figure in (("mean_ap", "ap"), ("macro_f1", "f1")):  # of the labels that occur
        figures[name] = np.where(known.any(axis=1), np.where(known, each[figure], 0).sum(axis=1) / num, np.nan)
    figures["log_loss"] = (weights @ losses.astype(np.float32)) / weights.sum(axis=1)
    return figures | {f"{figure}/{name}": values[:, i] for figure, values in each.items() for i, name in enumerate(names)}


def gain_in_map(
    names: Sequence[str],
    logits: NDArray[np.float32],
    constant: NDArray[np.float32],
    targets: NDArray[Any],
    groups: NDArray[np.int64] | None,
    *,
    seed: int,
) -> Interval:
    """How much higher the mean average precision is than that of a constant answer, which is how frequent labels are."""
    marks = targets > 0

    def gain(weights: NDArray[np.float32]) -> Sums:
        differences = np.stack(
            [
                average_precision(logits[:, i], marks[:, i], weights) - average_precision(constant[:, i], marks[:, i], weights)
                for i in range(len(names))
            ]
        )
        known = np.isfinite(differences)
        total: Sums = np.where(known, differences, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        return total

    number = np.arange(len(logits)) if groups is None else np.unique(groups, return_inverse=True)[1]
    num_units, num = int(number.max()) + 1, int(min(1000, max(100, _MOST_WORK / max(1, 2 * logits.size))))
    drawn = [gain(weights[:, number]) for weights in resamples(num_units, seed=seed, num_resamples=num)]
    point: dict[str, float | None] = {"mean_ap": float(gain(np.ones((1, len(logits)), np.float32))[0])}
    return intervals(point, {"mean_ap": np.concatenate(drawn)} if drawn else {}, num_units=num_units)["mean_ap"]
