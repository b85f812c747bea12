"""Dividing units among splits (or folds) so that every stratum gets its share: the arithmetic behind splits and folds. Pure.

A unit is one sample, or several that must stay together. Units already placed are never moved; open ones are taken in the order
of their hash and each goes to the split that lacks most. The result depends on neither the order of the input nor the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.signedinteger[Any]]
OPEN = -1


class Unit(NamedTuple):
    """`split` is an index into the splits, or `OPEN`; `order` sorts the open ones (a hash, then a name)."""

    stratum: str
    size: int
    order: tuple[float, str]
    split: int = OPEN


def fill_quotas(units: Sequence[Unit], shares: Sequence[float], *, train: int | None = None) -> list[int]:
    """A split for every unit. `train` is the split that no stratum may miss; None when all splits are alike (folds)."""
    number = {name: place for place, name in enumerate(sorted({unit.stratum for unit in units}))}
    order = np.empty(len(units))
    order[sorted(range(len(units)), key=lambda place: units[place].order)] = np.arange(len(units))
    strata, sizes = [number[unit.stratum] for unit in units], [unit.size for unit in units]
    columns = np.array([strata, sizes, [unit.split for unit in units]], np.int64)
    splits: list[int] = fill_columns(columns[0], columns[1], columns[2], order, shares, train=train).tolist()
    return splits


def fill_columns(
    stratum: Rows, size: Rows, split: Rows, order: NDArray[np.float64], shares: Sequence[float], *, train: int | None
) -> Rows:
    """`fill_quotas` for units in columns, of which there may be millions; strata are numbered in the order of their names."""
    splits, num_strata = split.copy(), int(stratum.max(initial=-1)) + 1
    placed = np.flatnonzero(split != OPEN)
    samples, counts = (np.zeros((num_strata, len(shares)), np.int64) for _ in range(2))
    np.add.at(samples, (stratum[placed], split[placed]), size[placed])
    np.add.at(counts, (stratum[placed], split[placed]), 1)
    total_samples = np.bincount(stratum, weights=size, minlength=num_strata).astype(np.int64)
    total_units = np.bincount(stratum, minlength=num_strata)
    overall = samples.sum(axis=0).tolist()
    waiting = np.flatnonzero(split == OPEN)
    waiting = waiting[np.lexsort((order[waiting], stratum[waiting]))]
    for chosen in np.split(waiting, np.flatnonzero(np.diff(stratum[waiting])) + 1):
        if len(chosen):
            number = int(stratum[chosen[0]])
            filled, held = samples[number].tolist(), counts[number].tolist()
            wanted = [share * int(total_samples[number]) for share in shares]
            few = int(total_units[number]) < len(shares)
            splits[chosen] = _fill_stratum(size[chosen].tolist(), wanted, filled, held, overall, few=few, train=train)
            samples[number], counts[number] = filled, held
    if train is not None and 0 in overall:  # every class is too small to give anything away: let single units go from train
        newest_first = np.flatnonzero(split == OPEN)
        newest_first = newest_first[np.argsort(order[newest_first])][::-1]
        for empty in range(len(overall) - 1, -1, -1):
            spare = (unit for unit in newest_first.tolist() if splits[unit] == train and counts[stratum[unit], train] > 1)
            if overall[empty] == 0 and (unit := next(spare, None)) is not None:
                counts[stratum[unit], [train, empty]] += [-1, 1]
                overall[empty] += int(size[unit])
                splits[unit] = empty
    return splits


def fill_labels(
    marks_ul: NDArray[np.float64], size: Rows, split: Rows, order: NDArray[np.float64], shares: Sequence[float]
) -> Rows:
    """A split for every unit whose samples have several labels each (`marks_ul` counts them): iterative stratification.

    Of the labels that open units have, the rarest comes first; each of its units goes to the split that lacks most of it, of
    equals to the one that lacks most samples (Sechidis, Tsoumakas and Vlahavas, 2011). Units without labels come last.
    """
    splits, share = split.copy(), np.asarray(shares, np.float64)
    counted = np.column_stack([marks_ul, size])  # the last column counts samples
    lacks = share[:, None] * counted.sum(axis=0)
    placed = split >= 0
    np.subtract.at(lacks, split[placed], counted[placed])
    waiting = np.flatnonzero(split == OPEN)
    waiting = waiting[np.argsort(order[waiting], kind="stable")]
    while len(waiting):
        left = counted[waiting].sum(axis=0)
        left[:-1][left[:-1] == 0] = np.inf
        label = len(left) - 1 if np.isinf(left[:-1]).all() else int(left[:-1].argmin())
        chosen = counted[waiting, label] > 0
        for unit in waiting[chosen].tolist():
            # rounded, since shares of equal counts must tie whatever was subtracted before
            best = max(range(len(share)), key=lambda place: (round(lacks[place, label], 6), round(lacks[place, -1], 6), -place))
            splits[unit] = best
            lacks[best] -= counted[unit]
        waiting = waiting[~chosen]
    return splits


def _fill_stratum(
    sizes: Sequence[int],
    wanted: Sequence[float],
    samples: list[int],
    units: list[int],
    overall: list[int],
    *,
    few: bool,
    train: int | None,
) -> list[int]:
    """A split for each of a stratum's open units, one after the other: the one that lacks most; but an empty one while only as
    many units are left as empty splits, train first. `samples`, `units` and `overall` count what each split holds; `few`: the
    stratum has fewer units than there are splits.
    """
    chosen = []
    for taken, size in enumerate(sizes):
        split, left = 0, len(sizes) - taken
        if 0 in units and (few or left <= len(wanted)):
            empty = [place for place, count in enumerate(units) if count == 0]
            if train in empty and (few or left <= len(empty)):
                split = empty[empty.index(train)]
            else:
                choosable = empty if train is not None and not few and left <= len(empty) else range(len(wanted))
                split = max(choosable, key=lambda place: (wanted[place] - samples[place], -overall[place], -place))
        else:
            most = wanted[0] - samples[0]
            for other in range(1, len(wanted)):
                lack = wanted[other] - samples[other]
                if lack > most or (lack == most and overall[other] < overall[split]):
                    split, most = other, lack
        samples[split] += size
        units[split] += 1
        overall[split] += size
        chosen.append(split)
    return chosen
