"""What of the earlier manifest still stands: on which side, or in which fold, a sample was. In: that manifest and the samples of
now. Out: the sides to keep, or why none of them can be kept, and how many samples changed theirs in the end. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unchoke.core.text_column import TextColumn
from unchoke.core.units import format_count
from unchoke.data.alike import NONE, Rows, codes_of, first_alike, places_in
from unchoke.data.sample_set import Samples

if TYPE_CHECKING:
    import pandas as pd


MOVED = "moved"
"""A column beside those of the manifest: whether a sample's side is not the one it had, because it joined a group."""


@dataclass(frozen=True)
class EarlierSides:
    """For each sample the side to keep, an index into `names`, or `NONE`.

    Where `num_torn` groups would be torn apart by them, which the manifest did not know as groups, none is kept.
    """

    sides: Rows
    names: tuple[str, ...] = ()
    num_torn: int = 0
    group_name: str = ""
    num_moved: int = 0
    """Of those that keep a side, how many were moved to it because decisions put them in a group."""

    @property
    def num_kept(self) -> int:
        """How many of the samples there are keep their side."""
        return int(np.count_nonzero(self.sides != NONE))

    def words(self, what: str) -> str:
        """How the choice of a split goes on; nothing where there was no manifest."""
        if self.num_torn:
            torn = f"{format_count(self.num_torn, 'group')} of {self.group_name!r}"
            return f"; the earlier manifest tore {torn} apart, so all are drawn anew"
        if not self.num_kept:
            return ""
        kept = f"; {format_count(self.num_kept - self.num_moved, 'sample')} kept the {what} of the earlier manifest"
        return kept + (f", {self.num_moved:,} changed it to be with their group" if self.num_moved else "")


def recall_sides(previous: pd.DataFrame | None, samples: Samples, column: str, *, free: NDArray[np.bool_]) -> EarlierSides:
    """Where `free` samples were, by `column` of the manifest (split or fold)."""
    nowhere: Rows = np.full(len(samples), NONE, np.int32)
    if previous is None or column not in previous.columns:
        return EarlierSides(nowhere)
    places = places_in(previous["sample_id"], samples.frame["sample_id"])
    codes, names = _sides_in(previous, column)
    sides = nowhere
    if len(codes):
        sides = codes[places]
        sides[places < 0] = NONE
    if num_torn := _count_torn(previous, samples, places, sides, free=free):
        return EarlierSides(nowhere, num_torn=num_torn, group_name=samples.group_name or "group")
    moved = previous[MOVED].to_numpy()[places[places >= 0]].sum() if MOVED in previous.columns else 0
    return EarlierSides(sides, tuple(names), num_moved=int(moved))


def _sides_in(frame: pd.DataFrame, column: str) -> tuple[Rows, list[str]]:
    """Sides, or folds, which are numbers."""
    return codes_of(frame[column] if column == "split" else frame[column].astype("str"))


def _count_torn(previous: pd.DataFrame, samples: Samples, places: Rows, sides: Rows, *, free: NDArray[np.bool_]) -> int:
    """Groups that the manifest did not know as such and has on several sides."""
    group_of = first_alike(samples.frame["group"])
    rows = np.flatnonzero((group_of >= 0) & free & (sides >= 0))
    if not len(rows):
        return 0
    groups = TextColumn(samples.frame["group"])
    known = TextColumn(previous["group"]) if "group" in previous.columns else [""] * len(previous)
    pairs = np.unique(group_of[rows].astype(np.int64) * (int(sides.max()) + 1) + sides[rows])
    of_group, num_sides = np.unique(pairs // (int(sides.max()) + 1), return_counts=True)
    torn = set(of_group[num_sides > 1].tolist())
    unknown = {int(group_of[row]) for row in rows.tolist() if group_of[row] in torn and known[int(places[row])] != groups[row]}
    return len(unknown)


def count_moved(previous: pd.DataFrame | None, samples: Samples) -> int:
    """How many of the samples that were in the manifest are on another side now; in another fold, where both have folds."""
    if previous is None or not len(previous):
        return 0
    folds = "fold" in previous.columns and "fold" in samples.frame.columns
    column = "fold" if folds else "split"
    places = places_in(previous["sample_id"], samples.frame["sample_id"])
    codes, names = _sides_in(previous, column)
    now, names_now = _sides_in(samples.frame, column)
    number = {name: place for place, name in enumerate(names)}
    as_before = np.array([number.get(name, NONE) for name in names_now], np.int64)[now]
    return int(np.count_nonzero((places >= 0) & (codes[places] != as_before)))
