"""Dividing units among splits (or folds) so that every stratum gets its share: the arithmetic behind splits and folds. Pure.

A unit is one sample, or several that must stay together. Units already placed are never moved; open ones are taken in the order
of their hash and each goes to the split that lacks most. The result depends on neither the order of the input nor the machine.
Units come as columns, since there may be millions, or as values, where there are few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unchoke.data.alike import Rows

OPEN = -1


class Unit(NamedTuple):
    """`split` is an index into the splits, or `OPEN`; `order` sorts the open ones (a hash, then a name)."""

    stratum: str
    size: int
    order: tuple[float, str]
    split: int = OPEN


@dataclass(frozen=True)
class UnitColumns:
    """Units as columns: `stratum` numbers the strata in the order of their names, `name` gives that of a unit.

    `hashed` counts for open units alone, and `name` where two hashes are equal.
    """

    stratum: Rows
    size: Rows
    split: Rows
    hashed: NDArray[np.float64]
    name: Callable[[int], str]

    def order(self, unit: int) -> tuple[float, str]:
        return float(self.hashed[unit]), self.name(unit)


def fill_quotas(units: Sequence[Unit], shares: Sequence[float], *, train: int | None = None) -> list[int]:
    """A split for every unit. `train` is the split that no stratum may miss; None when all splits are alike (folds)."""
    number = {name: place for place, name in enumerate(sorted({unit.stratum for unit in units}))}
    columns = UnitColumns(
        np.array([number[unit.stratum] for unit in units], np.int64),
        np.array([unit.size for unit in units], np.int64),
        np.array([unit.split for unit in units], np.int64),
        np.array([unit.order[0] for unit in units], np.float64),
        lambda unit: units[unit].order[1],
    )
    splits: list[int] = fill_columns(columns, shares, train=train).tolist()
    return splits


def fill_columns(units: UnitColumns, shares: Sequence[float], *, train: int | None = None) -> Rows:
    """`fill_quotas` for units in columns."""
    splits, num_splits = units.split.copy(), len(shares)
    placed = np.flatnonzero(units.split != OPEN)
    num_strata = int(units.stratum.max(initial=-1)) + 1
    cells = units.stratum[placed].astype(np.int64) * num_splits + units.split[placed]
    samples = np.bincount(cells, weights=units.size[placed], minlength=num_strata * num_splits).astype(np.int64)
    counts = np.bincount(cells, minlength=num_strata * num_splits)
    total_samples = np.bincount(units.stratum, weights=units.size, minlength=num_strata).astype(np.int64)
    total_units = np.bincount(units.stratum, minlength=num_strata)
    overall = samples.reshape(num_strata, num_splits).sum(axis=0).tolist()
    waiting = _in_order(units)
    ends = np.cumsum(np.bincount(units.stratum[waiting], minlength=num_strata))
    for number, end in enumerate(ends.tolist()):
        chosen = waiting[ends[number - 1] if number else 0 : end]
        if len(chosen):
            part = slice(number * num_splits, (number + 1) * num_splits)
            stratum = _Stratum(
                samples[part].tolist(), counts[part].tolist(), int(total_samples[number]), int(total_units[number])
            )
            splits[chosen] = _fill_stratum(stratum, units.size[chosen].tolist(), shares, overall, train=train)
            samples[part], counts[part] = stratum.samples, stratum.units
    if train is not None and 0 in overall:
        _feed_empty_splits(units, splits, counts.reshape(num_strata, num_splits), overall, train=train)
    return splits


def _in_order(units: UnitColumns) -> NDArray[np.int64]:
    """The open units, stratum by stratum, in the order they are taken."""
    waiting = np.flatnonzero(units.split == OPEN)
    waiting = waiting[np.lexsort((units.hashed[waiting], units.stratum[waiting]))]
    same = np.diff(units.hashed[waiting]) == 0
    for place in np.flatnonzero(same & (np.diff(units.stratum[waiting]) == 0)).tolist():
        end = place + 2  # a few at most: their names decide, and what is sorted once stays so
        while end < len(waiting) and units.hashed[waiting[end]] == units.hashed[waiting[place]]:
            end += 1
        alike = [unit for unit in waiting[place:end].tolist() if units.stratum[unit] == units.stratum[waiting[place]]]
        waiting[place : place + len(alike)] = sorted(alike, key=units.name)
    return waiting


@dataclass
class _Stratum:
    """How full each split is, in samples and in units."""

    samples: list[int]
    units: list[int]
    total_samples: int = 0
    total_units: int = 0


def _fill_stratum(
    stratum: _Stratum, sizes: Sequence[int], shares: Sequence[float], overall: list[int], *, train: int | None
) -> list[int]:
    """A split for each of the open units, one after the other: the one that lacks most."""
    chosen, samples = [], stratum.samples
    wanted = [share * stratum.total_samples for share in shares]
    some_empty = 0 in stratum.units
    last_ones = len(sizes) if stratum.total_units < len(wanted) else len(wanted)
    """From so many on an empty split may come before the one that lacks most."""
    for taken, size in enumerate(sizes):
        if some_empty and len(sizes) - taken <= last_ones:
            split = _next_split(stratum, wanted, overall, left=len(sizes) - taken, train=train)
        else:
            split, most = 0, wanted[0] - samples[0]
            for other in range(1, len(wanted)):
                lack = wanted[other] - samples[other]
                if lack > most or (lack == most and overall[other] < overall[split]):
                    split, most = other, lack
        samples[split] += size
        stratum.units[split] += 1
        overall[split] += size
        chosen.append(split)
        some_empty = some_empty and 0 in stratum.units
    return chosen


def _next_split(stratum: _Stratum, wanted: Sequence[float], overall: list[int], *, left: int, train: int | None) -> int:
    """The split that lacks most; but an empty one while only as many units are left as empty splits, train first."""
    empty = [split for split, count in enumerate(stratum.units) if count == 0]
    if train in empty and (stratum.total_units < len(wanted) or left <= len(empty)):
        return empty[empty.index(train)]
    choosable = empty if train is not None and stratum.total_units >= len(wanted) and left <= len(empty) else range(len(wanted))
    return max(choosable, key=lambda split: (wanted[split] - stratum.samples[split], -overall[split], -split))


def _feed_empty_splits(units: UnitColumns, splits: Rows, counts: NDArray[np.int64], overall: list[int], *, train: int) -> None:
    """When every class is too small to give anything away, let single units go from train to a split that would be empty."""
    newest_first = sorted(np.flatnonzero(units.split == OPEN).tolist(), key=units.order, reverse=True)
    for split in range(len(overall) - 1, -1, -1):
        spare = (unit for unit in newest_first if splits[unit] == train and counts[units.stratum[unit], train] > 1)
        unit = next(spare, None) if overall[split] == 0 else None
        if unit is not None:
            counts[units.stratum[unit], train] -= 1
            counts[units.stratum[unit], split] += 1
            overall[split] += int(units.size[unit])
            splits[unit] = split
