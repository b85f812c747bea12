"""Which split each sample is in: train, val or test. In: samples, options, the earlier manifest. Out: samples and the reason.

Given splits and folds are kept; rows of the earlier manifest stay where they were, unless it tears groups apart that it did not
know of: then all are drawn anew. The rest fill their class's quota in hash order. Samples of a group, or with the same bytes, are
never divided by us. What cannot be kept apart is left to `preflight` to report.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unchoke.core.choices import Choice
from unchoke.core.errors import DataError, UsageError
from unchoke.core.fingerprint import hash_unit
from unchoke.core.text_column import TextColumn
from unchoke.core.units import format_count
from unchoke.data.alike import Rows, codes_of, first_alike, row_type, text_of
from unchoke.data.earlier_splits import EarlierSplits, recall_splits
from unchoke.data.quotas import OPEN, UnitColumns, fill_columns
from unchoke.data.sample_set import SPLITS, Samples

if TYPE_CHECKING:
    import pandas as pd

_ROWS_PER_BIN = 10
_MOST_BINS = 10
_ELSEWHERE = OPEN - 1
_ROWS_AT_ONCE = 100_000


@dataclass(frozen=True)
class _Draw:
    """What a draw depends on: the seed, what ties samples beside their groups (for each row the first of the same content), and
    the target that is kept in proportion.
    """

    seed: int
    content: Rows | None
    target: str


@dataclass(frozen=True)
class _Plan:
    """Splits to fill with their shares, and for each row its split so far (an index, `OPEN`, or `_ELSEWHERE`: not ours)."""

    to_fill: tuple[str, ...]
    shares: tuple[float, ...]
    placed: Rows
    train: int | None


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
    draw = _Draw(seed, None if content is None else first_alike(content), _heaviest(samples, weights))
    if samples.fold_name:
        return _follow_folds(samples, folds=folds, fold=fold, draw=draw)
    if folds is not None:
        return _assign_folds(samples, folds=folds, fold=fold, previous=previous, draw=draw)
    if fold:
        raise UsageError(
            f"--fold {fold} was given without a number of folds",
            code="folds-missing",
            why="without folds there is one split, made by shares",
            try_=f"--folds 5 --fold {fold}",
        )
    codes, names = codes_of(samples.frame["split"])
    wanted = {"train": 1 - val_share - test_share, "val": val_share, "test": test_share}
    to_fill = _splits_to_fill(names, wanted)
    shares = tuple(wanted[split] for split in to_fill)
    free = np.isin(codes, [place for place, name in enumerate(names) if _is_free(name, names, to_fill)])
    earlier = recall_splits(previous, samples, "split", free=free)
    placed = np.where(free, _renamed(earlier.splits, earlier.names, to_fill, OPEN), _renamed(codes, names, to_fill, _ELSEWHERE))
    plan = _Plan(to_fill, tuple(share / sum(shares) for share in shares), placed, train=0)
    filled = _fill(samples, plan, draw)
    every = [*to_fill, *(name for name in names if name not in to_fill)]
    splits = np.where(filled == _ELSEWHERE, _renamed(codes, names, every, OPEN), filled)
    if not (splits == 0).any():
        raise _no_train(sorted({every[place] for place in np.unique(splits).tolist()}))
    done = samples.with_columns(split=text_of(splits, every))
    return done, [_describe(done, names, to_fill, shares=wanted, earlier=earlier, draw=draw, num_open=_count(codes, names, ""))]


def _renamed(codes: Rows, names: Sequence[str], to_fill: Sequence[str], other: int) -> Rows:
    """Numbers into `names` as numbers into `splits`; `other` for what is not there, or has no number."""
    index = {split: number for number, split in enumerate(to_fill)}
    return np.array([*(index.get(name, other) for name in names), other], np.int32)[codes]


def _count(codes: Rows, names: Sequence[str], name: str) -> int:
    return int(np.count_nonzero(codes == names.index(name))) if name in names else 0


def _assign_folds(
    samples: Samples, *, folds: int, fold: int, previous: pd.DataFrame | None, draw: _Draw
) -> tuple[Samples, list[Choice]]:
    _refuse_folds(samples, folds, fold)
    earlier = recall_splits(previous, samples, "fold", free=np.ones(len(samples), bool))
    sticky = max(map(int, earlier.names), default=folds - 1) == folds - 1
    placed = _renamed(earlier.splits, earlier.names if sticky else (), list(map(str, range(folds))), OPEN) if sticky else None
    done = _divide(samples, placed, folds=folds, fold=fold, draw=draw)
    value = f"{folds} folds, {_manner(samples, draw)}: fold {fold} tests, fold {(fold + 1) % folds} validates"
    reason = "k-fold division was asked for"
    if not sticky:
        reason += " with another number of folds than before, so they were made anew"
    return done, [Choice("split", value, reason + (earlier.describe("fold") if sticky else ""), _evidence(done))]


def _follow_folds(samples: Samples, *, folds: int | None, fold: int, draw: _Draw) -> tuple[Samples, list[Choice]]:
    """The folds that the samples name, numbered in the order of their names; rows that name none fill the smallest."""
    labels, name = samples.frame["fold"].tolist(), samples.fold_name
    known = sort_naturally({label for label in labels if label})
    _refuse_folds(samples, len(known), fold, column=name)
    number = {label: place for place, label in enumerate(known)}
    placed = np.array([number.get(label, OPEN) for label in labels], np.int32)
    done = _divide(samples, placed, folds=len(known), fold=fold, draw=draw)
    tests, validates = (f"{known[place % len(known)]!r} (fold {place % len(known)})" for place in (fold, fold + 1))
    value = f"{len(known)} folds as {name!r} says: {tests} tests, {validates} validates"
    reason = f"--fold-column was given; {len(known)} values, in their order"
    if empty := sum(not label for label in labels):
        reason += f"; {format_count(empty, 'sample')} without one filled the smallest folds"
    if folds not in (None, len(known)):
        reason += f"; the number of folds asked for, {folds}, is not used"
    return done, [Choice("split", value, reason, _evidence(done))]


def sort_naturally(labels: Iterable[str]) -> list[str]:
    """Labels in the order a person would count them: ``2`` before ``10``, ``site 2`` before ``site 10``."""

    def key(label: str) -> list[tuple[int, float, str]]:
        return [(0, float(part), part) if part.isdecimal() else (1, 0.0, part) for part in re.split(r"(\d+)", label) if part]

    return sorted(labels, key=lambda label: (key(label), label))


def _divide(samples: Samples, placed: Rows | None, *, folds: int, fold: int, draw: _Draw) -> Samples:
    """The samples with their fold, and the split that follows from which fold is tested."""
    placed = np.full(len(samples), OPEN, np.int32) if placed is None else placed
    numbers = _fill(samples, _Plan(tuple(map(str, range(folds))), (1 / folds,) * folds, placed, train=None), draw)
    if (num_filled := len(np.unique(numbers))) < folds:
        raise _too_many_folds(folds, num_filled)
    splits = np.where(numbers == fold, 2, np.where(numbers == (fold + 1) % folds, 1, 0))
    return samples.with_columns(split=text_of(splits, SPLITS), fold=numbers)


def _is_free(name: str, names: Sequence[str], to_fill: tuple[str, ...]) -> bool:
    """Whether rows of a given split are ours to place: those without one, and a given "train" that must yield a missing split."""
    yields = bool(set(names) - {""}) and any(split not in names for split in to_fill)
    return not name or (name == "train" and yields)


def _splits_to_fill(given: Sequence[str], wanted: dict[str, float]) -> tuple[str, ...]:
    """The splits that may receive rows: all when nothing is given, else train and whatever the given splits lack."""
    present = set(given) - {""}
    lacking = [split for split in SPLITS[1:] if wanted[split] > 0 and split not in present]
    if not present or not lacking:
        return tuple(split for split in SPLITS if wanted[split] > 0)
    return ("train", *lacking)


def _fill(samples: Samples, plan: _Plan, draw: _Draw) -> Rows:
    """A split for every open row; tied rows together, and with those of their kind that are placed already."""
    groups = first_alike(samples.frame["group"])
    tied = _tie(groups, draw.content)
    placed = _follow(_follow(plan.placed, groups), tied)
    units, unit_of = _units(samples, tied, placed, draw)
    filled = fill_columns(units, plan.shares, train=plan.train)
    waiting = placed == OPEN
    placed = placed.copy()
    placed[waiting] = filled[unit_of[waiting]]
    return placed


def _follow(placed: Rows, kinds: Rows) -> Rows:
    """Open rows join the split where most placed rows of their kind are; a kind is a number, below 0 for none."""
    voting, waiting = np.flatnonzero((placed >= 0) & (kinds >= 0)), np.flatnonzero((placed == OPEN) & (kinds >= 0))
    if not len(voting) or not len(waiting):
        return placed
    num_splits = int(placed.max()) + 1
    votes, counts = np.unique(kinds[voting].astype(np.int64) * num_splits + placed[voting], return_counts=True)
    kind, split = votes // num_splits, votes % num_splits
    ranked = np.lexsort((split, -counts, kind))
    leaders = ranked[np.flatnonzero(np.diff(kind[ranked], prepend=-1))]
    found = np.searchsorted(kind[leaders], kinds[waiting])
    found = np.minimum(found, len(leaders) - 1)
    known = kind[leaders][found] == kinds[waiting]
    followed = placed.copy()
    followed[waiting[known]] = split[leaders][found[known]]
    return followed


def _units(samples: Samples, tied: Rows, placed: Rows, draw: _Draw) -> tuple[UnitColumns, Rows]:
    """Units, and the unit of each row: tied rows in one split together, hashed by their first group, else by their first name.

    A row that is elsewhere is in no unit; its number means nothing.
    """
    first_row, unit_of, sizes = _numbered(tied, placed)
    names, groups = TextColumn(samples.frame["sample_id"]), TextColumn(samples.frame["group"])
    strata = _strata(samples, draw.target)
    stratum, split = strata[first_row], placed[first_row]
    several: dict[int, str] = {}
    in_units = np.flatnonzero(placed != _ELSEWHERE)
    for unit, members in _members(unit_of, in_units[sizes[unit_of[in_units]] > 1]):
        stratum[unit] = _commonest(strata[members].tolist())
        if split[unit] == OPEN:
            several[unit] = min((groups[row] for row in members.tolist() if groups[row]), default="") or min(
                names[row] for row in members.tolist()
            )

    def name(unit: int) -> str:
        row = int(first_row[unit])
        return several.get(unit) or groups[row] or names[row]

    hashed, waiting = np.zeros(len(sizes), np.float64), np.flatnonzero(split == OPEN)
    for start in range(0, len(waiting), _ROWS_AT_ONCE):
        some = waiting[start : start + _ROWS_AT_ONCE]
        keys = zip(some.tolist(), groups.at(first_row[some]), names.at(first_row[some]), strict=True)
        hashed[some] = [hash_unit(draw.seed, several.get(unit) or group or sample) for unit, group, sample in keys]
    return UnitColumns(stratum, sizes, split, hashed, name), unit_of


def _numbered(tied: Rows, placed: Rows) -> tuple[Rows, Rows, Rows]:
    """Units in the order of what ties them and of their splits: the first row of each, the unit of each row, and their sizes."""
    kind = row_type(len(tied))
    rows = np.flatnonzero(placed != _ELSEWHERE).astype(kind)
    key = tied[rows].astype(np.int64)
    key *= int(placed.max(initial=0)) + 2
    key += placed[rows]
    order = np.argsort(key, kind="stable")
    rows, key = rows[order], key[order]
    begins = np.append(True, key[1:] != key[:-1])[: len(rows)]
    number_of = np.zeros(len(tied), kind)
    number_of[rows] = np.cumsum(begins, dtype=kind) - 1
    return rows[begins], number_of, np.diff(np.flatnonzero(begins), append=len(rows)).astype(kind)


def _members(unit_of: Rows, rows: Rows) -> Iterator[tuple[int, Rows]]:
    """The units of `rows`, each with those of them that are its own."""
    rows = rows[np.argsort(unit_of[rows], kind="stable")]
    for part in np.split(rows, np.flatnonzero(np.diff(unit_of[rows])) + 1):
        if len(part):
            yield int(unit_of[part[0]]), part


def _commonest(numbers: Iterable[int]) -> int:
    counts = Counter(numbers)
    return min(counts, key=lambda number: (-counts[number], number))


def _heaviest(samples: Samples, weights: Mapping[str, float] | None) -> str:
    """The target that counts most, the first of equals; nothing for classes."""
    if samples.task.kind == "classification":
        return ""
    return max(samples.task.names, key=lambda name: (weights or {}).get(name, 0.0))


def _strata(samples: Samples, target: str) -> Rows:
    """What is kept in proportion: the class, or the quantile bin of a target."""
    if samples.task.kind == "classification":
        return codes_of(samples.frame["label"])[0]
    values = samples.frame[target].to_numpy(dtype=np.float64)
    bins = max(1, min(_MOST_BINS, len(values) // _ROWS_PER_BIN))
    edges = np.quantile(values, np.linspace(0, 1, bins + 1)[1:-1])
    return np.searchsorted(edges, values, side="right").astype(np.int32)


def _describe(
    done: Samples,
    given: Sequence[str],
    to_fill: tuple[str, ...],
    *,
    shares: dict[str, float],
    earlier: EarlierSplits,
    draw: _Draw,
    num_open: int,
) -> Choice:
    made = f"{'/'.join(f'{100 * share:.0f}' for share in shares.values())} {_manner(done, draw)}"
    memory = earlier.describe("split")
    if not any(given):
        return Choice("split", made, f"no split was given{memory}", _evidence(done))
    missing = [split for split in to_fill if split not in given]
    if missing:
        value = f"as given, {' and '.join(missing)} taken from train ({made})"
        return Choice("split", value, f"the given splits have no {' and no '.join(missing)} split{memory}", _evidence(done))
    reason = (
        f"{format_count(num_open, 'sample')} had no split and filled the quotas{memory}"
        if num_open
        else "every sample says its split"
    )
    return Choice("split", "as given", reason, _evidence(done))


def _manner(samples: Samples, draw: _Draw) -> str:
    words = [f"stratified by {draw.target}" if draw.target else "stratified"]
    if samples.frame["group"].ne("").any():
        words.append(f"grouped by {samples.group_name or 'group'}")
    if draw.content is not None and (draw.content[draw.content >= 0] != np.flatnonzero(draw.content >= 0)).any():
        words.append("equal images kept together")
    return ", ".join(words)


def _evidence(samples: Samples) -> dict[str, int]:
    codes, names = codes_of(samples.frame["split"])
    return {split: _count(codes, names, split) for split in SPLITS}


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


def _no_train(splits: Sequence[str]) -> DataError:
    return DataError(
        "no sample is in the train split",
        code="no-training-samples",
        why=f"the given splits are {', '.join(sorted(set(splits)))}",
        try_="mark some rows as train, or leave --split out to have the splits made",
    )


def tie_samples(groups: Sequence[str], contents: Sequence[str] | None) -> Rows:
    """A number per sample, equal for samples tied by group or content, directly or through others; "" ties nothing."""
    return _tie(first_alike(groups), None if contents is None else first_alike(contents))


def _tie(groups: Rows, contents: Rows | None) -> Rows:
    """The same, of rows that name the first row of their kind: the first row of all that are tied."""
    parent: Rows = np.arange(len(groups), dtype=row_type(len(groups)))
    for first in (groups, contents):
        if first is not None:
            tied = np.flatnonzero((first >= 0) & (first != np.arange(len(first))))
            for left, right in zip(first[tied].tolist(), tied.tolist(), strict=True):
                _join(parent, left, right)
    while not np.array_equal(above := parent[parent], parent):
        parent = above
    return parent


def _root(parent: Rows, row: int) -> int:
    while parent[row] != row:
        parent[row] = parent[parent[row]]
        row = int(parent[row])
    return row


def _join(parent: Rows, left: int, right: int) -> None:
    left, right = _root(parent, left), _root(parent, right)
    parent[max(left, right)] = min(left, right)
