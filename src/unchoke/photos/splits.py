"""Which side each sample is on: train, val or test. In: samples, options, the earlier manifest. Out: samples and the reason.

Given splits and folds are kept; rows of the earlier manifest stay where they were, unless it tears groups apart that it did not
know of: then all are drawn anew. The rest fill their class's quota in hash order. Samples of a group, or with the same bytes, are
never divided by us. What cannot be kept apart is left to `preflight` to report.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from unchoke.core.choices import Choice
from unchoke.core.errors import DataError, UsageError
from unchoke.core.fingerprint import hash_unit
from unchoke.core.units import format_count
from unchoke.photos.earlier_sides import EarlierSides, recall_sides
from unchoke.photos.quotas import OPEN, Unit, fill_quotas
from unchoke.photos.samples.sample_set import Samples

if TYPE_CHECKING:
    import pandas as pd

SIDES = ("train", "val", "test")
_ROWS_PER_BIN = 10
_MOST_BINS = 10


@dataclass(frozen=True)
class _Draw:
    """What a draw depends on: the seed, what ties samples beside their groups, and the target that is kept in proportion."""

    seed: int
    content: Sequence[str] | None
    target: str


@dataclass(frozen=True)
class _Plan:
    """Sides to fill with their shares, and for each row its side so far (an index, `OPEN`, or None: elsewhere, not ours)."""

    sides: tuple[str, ...]
    shares: tuple[float, ...]
    placed: list[int | None]
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
    content: Sequence[str] | None = None,
    weights: Mapping[str, float] | None = None,
) -> tuple[Samples, list[Choice]]:
    """Give every sample a split.

    `content` holds a digest per sample ("" where unknown): equal ones are kept on one side. With `folds`, or where the samples
    say their folds themselves, fold number `fold` is the test side, the next one validates, and a `fold` column is kept. Of
    several targets the one with the largest of `weights` is kept in proportion, else the first.
    """
    _refuse_shares(val_share, test_share)
    draw = _Draw(seed, content, _heaviest(samples, weights))
    if samples.fold_name:
        return _follow_folds(samples, folds=folds, fold=fold, draw=draw)
    if folds is not None:
        return _assign_folds(samples, folds=folds, fold=fold, previous=previous, draw=draw)
    if fold:
        raise UsageError(
            f"--fold {fold} was given without a number of folds",
            why="without folds there is one split, made by shares",
            try_=f"--folds 5 --fold {fold}",
        )
    given = samples.frame["split"].tolist()
    wanted = {"train": 1 - val_share - test_share, "val": val_share, "test": test_share}
    sides = _open_sides(given, wanted)
    shares = tuple(wanted[side] for side in sides)
    free = _free(given, sides)
    earlier = recall_sides(previous, samples, "split", free=free)
    placed = _place_known(samples, given, earlier.sides, sides, free=free)
    plan = _Plan(sides, tuple(share / sum(shares) for share in shares), placed, train=0)
    filled = _fill(samples, plan, draw)
    splits = [sides[side] if side is not None else old for side, old in zip(filled, given, strict=True)]
    if "train" not in splits:
        raise _no_train(splits)
    done = samples.with_columns(split=_text(splits))
    return done, [_describe(done, given, sides, shares=wanted, earlier=earlier, draw=draw)]


def _assign_folds(
    samples: Samples, *, folds: int, fold: int, previous: pd.DataFrame | None, draw: _Draw
) -> tuple[Samples, list[Choice]]:
    _refuse_folds(samples, folds, fold)
    earlier = recall_sides(previous, samples, "fold", free=[True] * len(samples))
    sticky = max(map(int, earlier.sides.values()), default=folds - 1) == folds - 1
    placed: list[int | None] = [int(earlier.sides.get(sample, OPEN)) if sticky else OPEN for sample in samples.frame["sample_id"]]
    done = _divide(samples, placed, folds=folds, fold=fold, draw=draw)
    value = f"{folds} folds, {_manner(samples, draw)}: fold {fold} tests, fold {(fold + 1) % folds} validates"
    reason = "k-fold division was asked for"
    if not sticky:
        reason += " with another number of folds than before, so they were made anew"
    return done, [Choice("split", value, reason + (earlier.words("fold") if sticky else ""), _evidence(done))]


def _follow_folds(samples: Samples, *, folds: int | None, fold: int, draw: _Draw) -> tuple[Samples, list[Choice]]:
    """The folds that the samples name, numbered in the order of their names; rows that name none fill the smallest."""
    labels, name = samples.frame["fold"].tolist(), samples.fold_name
    known = sort_naturally({label for label in labels if label})
    _refuse_folds(samples, len(known), fold, column=name)
    number = {label: place for place, label in enumerate(known)}
    done = _divide(samples, [number.get(label, OPEN) for label in labels], folds=len(known), fold=fold, draw=draw)
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


def _divide(samples: Samples, placed: list[int | None], *, folds: int, fold: int, draw: _Draw) -> Samples:
    """The samples with their fold, and the side that follows from which fold is tested."""
    plan = _Plan(tuple(map(str, range(folds))), (1 / folds,) * folds, placed, train=None)
    numbers = np.array(_fill(samples, plan, draw), dtype=np.int64)
    if len(set(numbers.tolist())) < folds:
        raise _too_many_folds(folds, len(set(numbers.tolist())))
    splits = np.where(numbers == fold, "test", np.where(numbers == (fold + 1) % folds, "val", "train"))
    return samples.with_columns(split=_text(splits.tolist()), fold=numbers)


def _free(given: Sequence[str], sides: tuple[str, ...]) -> list[bool]:
    """Which rows are ours to place: those without a given side, and a given "train" while train must yield a missing side."""
    yields = bool(set(given) - {""}) and any(side not in given for side in sides)
    return [not side or (side == "train" and yields) for side in given]


def _open_sides(given: Sequence[str], wanted: dict[str, float]) -> tuple[str, ...]:
    """The sides that may receive rows: all when nothing is given, else train and whatever the given splits lack."""
    present = set(given) - {""}
    lacking = [side for side in SIDES[1:] if wanted[side] > 0 and side not in present]
    if not present or not lacking:
        return tuple(side for side in SIDES if wanted[side] > 0)
    return ("train", *lacking)


def _place_known(
    samples: Samples, given: Sequence[str], earlier: Mapping[str, str], sides: tuple[str, ...], *, free: Sequence[bool]
) -> list[int | None]:
    """Where each row is already: as given, as before, or open."""
    index = {side: number for number, side in enumerate(sides)}
    rows = zip(samples.frame["sample_id"].tolist(), given, free, strict=True)
    return [index.get(earlier.get(sample, ""), OPEN) if ours else index.get(side) for sample, side, ours in rows]


def _fill(samples: Samples, plan: _Plan, draw: _Draw) -> list[int | None]:
    """A side for every open row; tied rows together, and with those of their kind that are placed already."""
    groups = samples.frame["group"].tolist()
    tied = tie_samples(groups, draw.content).tolist()
    placed = _follow(plan.placed, groups)
    placed = _follow(placed, [str(number) for number in tied])
    units, members = _units(samples, tied, placed, draw)
    for side, rows in zip(fill_quotas(units, plan.shares, train=plan.train), members, strict=True):
        for row in rows:
            placed[row] = side if placed[row] == OPEN else placed[row]
    return placed


def _follow(placed: list[int | None], kinds: Sequence[str]) -> list[int | None]:
    """Open rows join the side where most placed rows of their kind are."""
    votes: dict[str, Counter[int]] = defaultdict(Counter)
    for side, kind in zip(placed, kinds, strict=True):
        if kind and side is not None and side != OPEN:
            votes[kind][side] += 1
    leaders = {kind: min(count, key=lambda side: (-count[side], side)) for kind, count in votes.items()}
    return [leaders.get(kind, OPEN) if side == OPEN else side for side, kind in zip(placed, kinds, strict=True)]


def _units(
    samples: Samples, tied: Sequence[int], placed: Sequence[int | None], draw: _Draw
) -> tuple[list[Unit], list[list[int]]]:
    """Units with their rows: tied open rows together; placed rows one by one, since only their number counts."""
    rows_of: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row, (number, side) in enumerate(zip(tied, placed, strict=True)):
        if side is not None:
            rows_of[number, side].append(row)
    strata, names = _strata(samples, draw.target), samples.frame["sample_id"].tolist()
    groups = samples.frame["group"].tolist()
    units = []
    for (_, side), rows in rows_of.items():
        if len(rows) == 1:
            key, stratum = groups[rows[0]] or names[rows[0]], strata[rows[0]]
        else:
            key = min((groups[row] for row in rows if groups[row]), default="") or min(names[row] for row in rows)
            stratum = _commonest(strata[row] for row in rows)
        units.append(Unit(stratum, len(rows), (hash_unit(draw.seed, key), key), side))
    return units, list(rows_of.values())


def _commonest(names: Iterable[str]) -> str:
    counts = Counter(names)
    return min(counts, key=lambda name: (-counts[name], name))


def _heaviest(samples: Samples, weights: Mapping[str, float] | None) -> str:
    """The target that counts most, the first of equals; nothing for classes."""
    if samples.task.kind == "classification":
        return ""
    return max(samples.task.names, key=lambda name: (weights or {}).get(name, 0.0))


def _strata(samples: Samples, target: str) -> list[str]:
    """What is kept in proportion: the class, or the quantile bin of a target."""
    if samples.task.kind == "classification":
        return [str(label) for label in samples.frame["label"].tolist()]
    values = samples.frame[target].to_numpy(dtype=np.float64)
    bins = max(1, min(_MOST_BINS, len(values) // _ROWS_PER_BIN))
    edges = np.quantile(values, np.linspace(0, 1, bins + 1)[1:-1])
    return [f"{number:02d}" for number in np.searchsorted(edges, values, side="right")]


def _text(values: list[str]) -> pd.Series[str]:
    import pandas as pd

    return pd.Series(values, dtype="str")


def _describe(
    done: Samples,
    given: Sequence[str],
    sides: tuple[str, ...],
    *,
    shares: dict[str, float],
    earlier: EarlierSides,
    draw: _Draw,
) -> Choice:
    made = f"{'/'.join(f'{100 * share:.0f}' for share in shares.values())} {_manner(done, draw)}"
    memory = earlier.words("split")
    if not any(given):
        return Choice("split", made, f"no split was given{memory}", _evidence(done))
    missing = [side for side in sides if side not in given]
    if missing:
        value = f"as given, {' and '.join(missing)} taken from train ({made})"
        return Choice("split", value, f"the given splits have no {' and no '.join(missing)} side{memory}", _evidence(done))
    empty = sum(not side for side in given)
    reason = (
        f"{format_count(empty, 'sample')} had no split and filled the quotas{memory}" if empty else "every sample says its split"
    )
    return Choice("split", "as given", reason, _evidence(done))


def _manner(samples: Samples, draw: _Draw) -> str:
    words = [f"stratified by {draw.target}" if draw.target else "stratified"]
    if samples.frame["group"].ne("").any():
        words.append(f"grouped by {samples.group_name or 'group'}")
    known = [digest for digest in draw.content or () if digest]
    if len(set(known)) < len(known):
        words.append("equal images kept together")
    return ", ".join(words)


def _evidence(samples: Samples) -> dict[str, int]:
    counts = Counter(samples.frame["split"].tolist())
    return {side: counts[side] for side in SIDES}


def _refuse_shares(val_share: float, test_share: float) -> None:
    if val_share < 0 or test_share < 0 or val_share + test_share >= 1:
        raise UsageError(
            f"these shares leave nothing to train on: validation {val_share}, test {test_share}",
            why="each must be 0 or more, and together less than 1",
            try_="use 0.15 for each",
        )


def _refuse_folds(samples: Samples, folds: int, fold: int, *, column: str = "") -> None:
    if folds < 3 or not 0 <= fold < folds:
        own = f"--fold 0 to --fold {folds - 1}, or --fold all" if folds >= 3 else "a column with 3 values or more, or --folds 5"
        raise UsageError(
            f"fold {fold} of {folds} cannot be" + (f" ({column!r} has {format_count(folds, 'value')})" if column else ""),
            why="one fold tests, one validates and the rest trains, so there are at least 3, counted from 0",
            try_=own if column else "use 5 folds and a fold from 0 to 4",
        )
    if samples.frame["split"].ne("").any():
        raise UsageError(
            "folds were asked for, but the data says its splits itself",
            why="a sample cannot follow both",
            try_="leave out the number of folds, or the split column",
        )
    if len(samples) < folds:
        raise _too_many_folds(folds, len(samples))


def _too_many_folds(folds: int, possible: int) -> DataError:
    return DataError(
        f"{folds} folds cannot be filled",
        why=f"samples that must stay together leave only {format_count(possible, 'part')}",
        try_=f"use {max(3, possible)} folds" if possible >= 3 else "leave out the number of folds",
    )


def _no_train(splits: Sequence[str]) -> DataError:
    return DataError(
        "no sample is in the train split",
        why=f"the given splits are {', '.join(sorted(set(splits)))}",
        try_="mark some rows as train, or leave --split out to have the splits made",
    )


def tie_samples(groups: Sequence[str], contents: Sequence[str] | None) -> npt.NDArray[np.int64]:
    """A number per sample, equal for samples tied by group or content, directly or through others; "" ties nothing."""
    parent = list(range(len(groups)))
    for column in (groups, contents or ()):
        first: dict[str, int] = {}
        for row, value in enumerate(column):
            if value:
                _join(parent, first.setdefault(value, row), row)
    return np.fromiter((_root(parent, row) for row in range(len(parent))), dtype=np.int64, count=len(parent))


def _root(parent: list[int], row: int) -> int:
    while parent[row] != row:
        parent[row] = parent[parent[row]]
        row = parent[row]
    return row


def _join(parent: list[int], left: int, right: int) -> None:
    left, right = _root(parent, left), _root(parent, right)
    parent[max(left, right)] = min(left, right)
