"""Dividing units among sides so that every stratum gets its share: the arithmetic behind splits and folds. Pure.

A unit is one sample, or several that must stay together. Units already placed are never moved; open ones are taken in the order
of their hash and each goes to the side that lacks most. The result depends on neither the order of the input nor the machine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

OPEN = -1


class Unit(NamedTuple):
    """`side` is an index into the sides, or `OPEN`; `order` sorts the open ones (a hash, then a name)."""

    stratum: str
    size: int
    order: tuple[float, str]
    side: int = OPEN


@dataclass
class _Stratum:
    """How full each side is, in samples and in units."""

    samples: list[int]
    units: list[int]
    total_samples: int = 0
    total_units: int = 0
    open: list[int] = field(default_factory=list)


def fill_quotas(units: Sequence[Unit], shares: Sequence[float], *, train: int | None = None) -> list[int]:
    """A side for every unit. `train` is the side that no stratum may miss; None when all sides are alike (folds)."""
    sides = [unit.side for unit in units]
    overall = [0] * len(shares)
    strata = _count(units, shares, overall)
    for name in sorted(strata):
        stratum = strata[name]
        stratum.open.sort(key=lambda index: units[index].order)
        for taken, index in enumerate(stratum.open):
            side = _next_side(stratum, shares, overall, left=len(stratum.open) - taken, train=train)
            _place(stratum, overall, side, size=units[index].size)
            sides[index] = side
    if train is not None:
        _feed_empty_sides(units, sides, strata, overall, train=train)
    return sides


def _count(units: Sequence[Unit], shares: Sequence[float], overall: list[int]) -> dict[str, _Stratum]:
    strata: dict[str, _Stratum] = defaultdict(lambda: _Stratum([0] * len(shares), [0] * len(shares)))
    for index, unit in enumerate(units):
        stratum = strata[unit.stratum]
        stratum.total_samples += unit.size
        stratum.total_units += 1
        if unit.side == OPEN:
            stratum.open.append(index)
        else:
            _place(stratum, overall, unit.side, size=unit.size)
    return strata


def _place(stratum: _Stratum, overall: list[int], side: int, *, size: int) -> None:
    stratum.samples[side] += size
    stratum.units[side] += 1
    overall[side] += size


def _next_side(stratum: _Stratum, shares: Sequence[float], overall: list[int], *, left: int, train: int | None) -> int:
    """The side that lacks most; but an empty one while there are only as many units left as empty sides, and train before all."""
    empty = [side for side, count in enumerate(stratum.units) if count == 0]
    if train in empty and (stratum.total_units < len(shares) or left <= len(empty)):
        return empty[empty.index(train)]
    choosable = empty if train is not None and stratum.total_units >= len(shares) and left <= len(empty) else range(len(shares))
    return max(choosable, key=lambda side: (shares[side] * stratum.total_samples - stratum.samples[side], -overall[side], -side))


def _feed_empty_sides(
    units: Sequence[Unit], sides: list[int], strata: dict[str, _Stratum], overall: list[int], *, train: int
) -> None:
    """When every class is too small to give anything away, let single units go from train to a side that would be empty."""
    newest_first = sorted((i for i, unit in enumerate(units) if unit.side == OPEN), key=lambda i: units[i].order, reverse=True)
    for side in range(len(overall) - 1, -1, -1):
        spare = (i for i in newest_first if sides[i] == train and strata[units[i].stratum].units[train] > 1)
        index = next(spare, None) if overall[side] == 0 else None
        if index is not None:
            strata[units[index].stratum].units[train] -= 1
            _place(strata[units[index].stratum], overall, side, size=units[index].size)
            sides[index] = side
