"""Which split each sample is in: train, val or test. In: samples, options, the earlier manifest. Out: samples and the reason.

Given splits and folds are kept; rows of the earlier manifest stay where they were, unless that would divide groups it did not
know of: then all are drawn anew. The rest fill their class's quota in hash order. Samples of a group, or with the same bytes, are
never divided by us. What cannot be kept apart is left to `file_findings.py` to report.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from unchoke.core.choices import Choice
from unchoke.core.errors import DataError, UsageError
from unchoke.core.fingerprint import hash_unit
from unchoke.core.units import format_count
from unchoke.data.earlier_splits import recall_splits
from unchoke.data.quotas import OPEN, Rows, fill_columns, fill_labels
from unchoke.data.sample_set import SPLITS, Samples
from unchoke.data.several_labels import MULTI_LABEL, label_matrix

if TYPE_CHECKING:
    import pandas as pd

_ROWS_PER_BIN = 10
_MOST_BINS = 10
_ELSEWHERE = OPEN - 1
"""A row in a split that is not ours to fill."""


def assign_splits(
    samples: Samples,
    *,
    val_share: float = 0.15,
    test_share: float = 0.15,
    folds: int | None = None,
    fold: int = 0,
    seed: int = 0,
    previous: pd.DataFrame | None = None,
    content: Sequence[str] | pd.Series[str] | None = None,
    weights: Mapping[str, float] | None = None,
) -> tuple[Samples, list[Choice]]:
    """Give every sample a split.

    `content` holds a digest per sample ("" where unknown): equal ones stay in one split. With `folds`, or where the samples
    say their folds themselves, fold number `fold` is the test split, the next one validates, and a `fold` column is kept. Of
    several targets the one with the largest of `weights` is kept in proportion, else the first.
    """
    _refuse_shares(val_share, test_share)
    alike = None if content is None else _first_alike(content)
    target = ""
    if samples.task.kind == "regression":
        target = max(samples.task.names, key=lambda name: (weights or {}).get(name, 0.0))
    several = samples.task.kind == MULTI_LABEL
    manner = [f"stratified by {target}" if target else "stratified label by label" if several else "stratified"]
    if samples.frame["group"].ne("").any():
        manner.append(f"grouped by {samples.group_name or 'group'}")
    if alike is not None and (alike[alike >= 0] != np.flatnonzero(alike >= 0)).any():
        manner.append("equal images kept together")
    fill = partial(_fill, samples, alike=alike, strata=_strata(samples, target), seed=seed)
    if samples.fold_name:
        return _follow_folds(samples, fill, folds=folds, fold=fold)
    if folds is not None:
        return _assign_folds(samples, fill, folds=folds, fold=fold, previous=previous, manner=", ".join(manner))
    if fold:
        raise UsageError(
            f"--fold {fold} was given without a number of folds",
            code="folds-missing",
            why="without folds there is one split, made by shares",
            try_=f"--folds 5 --fold {fold}",
        )
    given = samples.frame["split"]
    there = set(given.unique()) - {""}
    wanted = {"train": 1 - val_share - test_share, "val": val_share, "test": test_share}
    to_fill = [split for split in SPLITS if wanted[split] > 0]  # all when nothing is given, else train and what is lacking
    lacking = [split for split in to_fill if split != "train" and split not in there]
    if there and lacking:
        to_fill = ["train", *lacking]
    missing = [split for split in to_fill if split not in there]
    free = (given == "").to_numpy() | ((given == "train").to_numpy() & bool(there and missing))
    earlier = recall_splits(previous, samples, "split", free=free)
    own = _codes(given, to_fill)
    placed = np.where(free, _codes(earlier.splits, to_fill), np.where(own == OPEN, _ELSEWHERE, own))
    shares = [wanted[split] for split in to_fill]
    filled = fill(placed, [share / sum(shares) for share in shares], train=0)
    splits = given.where(filled == _ELSEWHERE, np.array(to_fill, dtype=object)[np.maximum(filled, 0)])
    if not splits.eq("train").any():
        raise DataError(
            "no sample is in the train split",
            code="no-training-samples",
            why=f"the given splits are {', '.join(sorted(splits.unique()))}",
            try_="mark some rows as train, or leave --split out to have the splits made",
        )
    done = samples.with_columns(split=splits)
    value = f"{'/'.join(f'{100 * share:.0f}' for share in wanted.values())} {', '.join(manner)}"
    reason = "no split was given"
    if there and missing:
        value = f"as given, {' and '.join(missing)} taken from train ({value})"
        reason = f"the given splits have no {' and no '.join(missing)} split"
    elif there and (num_open := int(given.eq("").sum())):
        value, reason = "as given", f"{format_count(num_open, 'sample')} had no split and filled the quotas"
    elif there:
        return done, [Choice("split", "as given", "every sample says its split", _counts(done))]
    return done, [Choice("split", value, reason + earlier.reason, _counts(done))]


def _codes(cells: pd.Series[str], names: Sequence[str]) -> Rows:
    """Text as numbers into `names`; `OPEN` for what is not among them."""
    import pandas as pd

    return np.asarray(pd.Categorical(cells, categories=list(names)).codes, np.int64)


def _counts(samples: Samples) -> dict[str, int]:
    counts = samples.frame["split"].value_counts()
    return {split: int(counts.get(split, 0)) for split in SPLITS}


def _assign_folds(
    samples: Samples, fill: Any, *, folds: int, fold: int, previous: pd.DataFrame | None, manner: str
) -> tuple[Samples, list[Choice]]:
    _refuse_folds(samples, folds, fold)
    earlier = recall_splits(previous, samples, "fold", free=np.ones(len(samples), bool))
    num_before = folds if previous is None or "fold" not in previous.columns else int(previous["fold"].max()) + 1
    placed = _codes(earlier.splits, [str(number) for number in range(folds)] if num_before == folds else [])
    done = _divide(samples, fill, placed, folds=folds, fold=fold)
    value = f"{folds} folds, {manner}: fold {fold} tests, fold {(fold + 1) % folds} validates"
    reason = "k-fold division was asked for"
    reason += earlier.reason if num_before == folds else " with another number of folds than before, so they were made anew"
    return done, [Choice("split", value, reason, _counts(done))]


def _follow_folds(samples: Samples, fill: Any, *, folds: int | None, fold: int) -> tuple[Samples, list[Choice]]:
    """The folds that the samples name, numbered in the order of their names; rows that name none fill the smallest."""
    labels, name = samples.frame["fold"], samples.fold_name
    known = sort_naturally(set(labels.unique()) - {""})
    _refuse_folds(samples, len(known), fold, column=name)
    done = _divide(samples, fill, _codes(labels, known), folds=len(known), fold=fold)
    tests, validates = (f"{known[place % len(known)]!r} (fold {place % len(known)})" for place in (fold, fold + 1))
    value = f"{len(known)} folds as {name!r} says: {tests} tests, {validates} validates"
    reason = f"--fold-column was given; {len(known)} values, in their order"
    if empty := int(labels.eq("").sum()):
        reason += f"; {format_count(empty, 'sample')} without one filled the smallest folds"
    if folds not in (None, len(known)):
        reason += f"; the number of folds asked for, {folds}, is not used"
    return done, [Choice("split", value, reason, _counts(done))]


def sort_naturally(labels: Iterable[str]) -> list[str]:
    """Labels in the order a person would count them: ``2`` before ``10``, ``site 2`` before ``site 10``."""

    def key(label: str) -> list[tuple[int, float, str]]:
        return [(0, float(part), part) if part.isdecimal() else (1, 0.0, part) for part in re.split(r"(\d+)", label) if part]

    return sorted(labels, key=lambda label: (key(label), label))


def _divide(samples: Samples, fill: Any, placed: Rows, *, folds: int, fold: int) -> Samples:
    """The samples with their fold, and the split that follows from which fold is tested."""
    import pandas as pd

    numbers = fill(placed, [1 / folds] * folds, train=None)
    if (num_filled := len(np.unique(numbers))) < folds:
        raise _too_many_folds(folds, num_filled)
    splits = np.where(numbers == fold, "test", np.where(numbers == (fold + 1) % folds, "val", "train"))
    return samples.with_columns(split=pd.Series(splits, dtype="str"), fold=numbers)


def _fill(
    samples: Samples, placed: Rows, shares: Sequence[float], *, alike: Rows | None, strata: Rows, seed: int, train: int | None
) -> Rows:
    """A split for every open row; tied rows together, and with those of their kind that are placed already.

    A unit is what is tied and in one split. It is hashed by its first group, else by its first name.
    """

    groups = _first_alike(samples.frame["group"])
    tied = _tie(groups, alike)
    for kinds in (groups, tied):  # open rows join the split where most placed rows of their kind are
        voting, waiting = (placed >= 0) & (kinds >= 0), np.flatnonzero((placed == OPEN) & (kinds >= 0))
        known, leaders = _commonest(kinds[voting], placed[voting])
        if len(known) and len(waiting):
            at = np.minimum(np.searchsorted(known, kinds[waiting]), len(known) - 1)
            same = known[at] == kinds[waiting]
            placed = placed.copy()
            placed[waiting[same]] = leaders[at[same]]
    rows = np.flatnonzero(placed != _ELSEWHERE)
    keys, first, unit_of, sizes = np.unique(
        tied[rows] * (int(placed.max(initial=0)) + 2) + placed[rows] + 1,
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    stratum, split = strata[rows[first]], placed[rows[first]]
    frame = samples.frame[["group", "sample_id"]].iloc[rows].reset_index(drop=True)
    names = frame["group"].where(frame["group"] != "", frame["sample_id"]).to_numpy(dtype=object)[first]
    if len(keys) < len(rows):
        members = np.flatnonzero(sizes[unit_of] > 1)
        units, most = _commonest(unit_of[members], strata[rows[members]])
        stratum[units] = most
        least = frame.iloc[members].assign(unit=unit_of[members], lacks=lambda line: line["group"] == "")
        least = least.sort_values(["unit", "lacks", "group", "sample_id"]).drop_duplicates("unit")
        names[least["unit"]] = least["group"].where(~least["lacks"], least["sample_id"])
    hashed, waiting = np.zeros(len(keys)), np.flatnonzero(split == OPEN)
    hashed[waiting] = [hash_unit(seed, name) for name in names[waiting]]
    if samples.task.kind == MULTI_LABEL:
        marks = label_matrix(samples.frame["label"].iloc[rows].tolist(), samples.task.names)
        counts = np.zeros((len(keys), marks.shape[1]))
        np.add.at(counts, unit_of, marks)
        filled = fill_labels(counts, sizes, split, hashed, shares)
    else:
        filled = fill_columns(stratum, sizes, split, hashed, shares, train=train)
    placed = placed.copy()
    placed[rows] = filled[unit_of]
    return placed


def _commonest(kinds: Rows, values: Rows) -> tuple[Rows, Rows]:
    """Each of `kinds`, ascending, and the value it has most often; of equals the least."""
    width = int(values.max(initial=0)) + 1
    pairs, counts = np.unique(kinds * width + values, return_counts=True)
    order = np.lexsort((pairs % width, -counts, pairs // width))
    found, first = np.unique(pairs[order] // width, return_index=True)
    return found, pairs[order][first] % width


def _strata(samples: Samples, target: str) -> Rows:
    """What is kept in proportion: the class, or the quantile bin of a target."""
    if not target:
        return _codes(samples.frame["label"], sorted(samples.frame["label"].unique()))
    values = samples.frame[target].to_numpy(dtype=np.float64)
    bins = max(1, min(_MOST_BINS, len(values) // _ROWS_PER_BIN))
    edges = np.quantile(values, np.linspace(0, 1, bins + 1)[1:-1])
    return np.searchsorted(edges, values, side="right").astype(np.int64)


def _refuse_shares(val_share: float, test_share: float) -> None:
    if val_share < 0 or test_share < 0 or val_share + test_share >= 1:
        raise UsageError(
            f"these shares leave nothing to train on: validation {val_share}, test {test_share}",
            code="bad-split-shares",
            why="each must be 0 or more, and together less than 1",
            try_="use 0.15 for each",
        )


def _refuse_folds(samples: Samples, folds: int, fold: int, *, column: str = "") -> None:
    if folds < 3 or not 0 <= fold < folds:
        own = f"--fold 0 to --fold {folds - 1}, or --fold all" if folds >= 3 else "a column with 3 values or more, or --folds 5"
        raise UsageError(
            f"fold {fold} of {folds} cannot be" + (f" ({column!r} has {format_count(folds, 'value')})" if column else ""),
            code="no-such-fold",
            why="one fold tests, one validates and the rest trains, so there are at least 3, counted from 0",
            try_=own if column else "use 5 folds and a fold from 0 to 4",
        )
    if samples.frame["split"].ne("").any():
        raise UsageError(
            "folds were asked for, but the data says its splits itself",
            code="folds-and-splits",
            why="a sample cannot follow both",
            try_="leave out the number of folds, or the split column",
        )
    if len(samples) < folds:
        raise _too_many_folds(folds, len(samples))


def _too_many_folds(folds: int, possible: int) -> DataError:
    return DataError(
        f"{folds} folds cannot be filled",
        code="too-many-folds",
        why=f"samples that must stay together leave only {format_count(possible, 'part')}",
        try_=f"use {max(3, possible)} folds" if possible >= 3 else "leave out the number of folds",
    )


def _first_alike(cells: Sequence[str] | pd.Series[str]) -> Rows:
    """For each row the first one that holds the same text; -1 where there is none."""
    import pandas as pd

    codes, texts = pd.factorize(pd.Series(cells, dtype="str", copy=False))
    first = np.zeros(len(texts) + 1, np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # of several the last assignment counts, which is the first row
    return np.where(np.append(np.asarray(texts == "", bool), True)[codes], -1, first[codes])


def tie_samples(groups: Sequence[str], contents: Sequence[str] | None) -> Rows:
    """A number per sample, equal for samples tied by group or content, directly or through others; "" ties nothing."""
    return _tie(_first_alike(groups), None if contents is None else _first_alike(contents))


def _tie(groups: Rows, contents: Rows | None) -> Rows:
    """The same, of rows that name the first row of their kind: the first row of all that are tied."""
    parent: Rows = np.arange(len(groups), dtype=np.int64)

    def root(row: int) -> int:
        while parent[row] != row:
            parent[row] = parent[parent[row]]
            row = int(parent[row])
        return row

    for first in (groups, contents):
        if first is not None:
            tied = np.flatnonzero((first >= 0) & (first != np.arange(len(first))))
            for left, right in zip(first[tied].tolist(), tied.tolist(), strict=True):
                low, high = sorted((root(left), root(right)))
                parent[high] = low
    while not np.array_equal(above := parent[parent], parent):
        parent = above
    return parent
