"""The splits of an earlier run: which split, or which fold, a sample was in, and whether it stays there.

In: the earlier manifest and the samples of now. Out: the splits to keep, or why none of them can be kept, and how many samples
changed theirs in the end. Photos that decisions leave out keep their split, too: one that comes back must not be judged on what
it taught. Their splits are kept in `curation/left_out.json` of the workspace, as long as there is a manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core import atomic
from unchoke.core.checksums import recall_json
from unchoke.core.text_column import TextColumn
from unchoke.core.units import format_count
from unchoke.data.alike import NONE, Rows, codes_of, first_alike, places_in
from unchoke.data.sample_set import Samples

if TYPE_CHECKING:
    import pandas as pd

MOVED = "moved"
"""A column beside those of the manifest: whether a sample is in another split than before, because it joined a group."""
LEFT_OUT_FILE = "left_out.json"
_COLUMNS = ("sample_id", "group", "split", "fold")
"""What a split depends on. Labels and values are those of today."""


@dataclass(frozen=True)
class EarlierSplits:
    """For each sample the split (or fold) to keep, an index into `names`, or `NONE`.

    Where they would divide `num_divided` groups that the manifest did not know as groups, none is kept.
    """

    splits: Rows
    names: tuple[str, ...] = ()
    num_divided: int = 0
    group_name: str = ""
    num_moved: int = 0
    """How many of those that keep a split were moved to it because decisions put them in a group."""

    def describe(self, what: str) -> str:
        """How the reason of a split goes on; nothing where there was no manifest."""
        if self.num_divided:
            divided = f"{format_count(self.num_divided, 'group')} of {self.group_name!r}"
            return f"; the earlier manifest divided {divided}, so all are drawn anew"
        num_kept = int(np.count_nonzero(self.splits != NONE))
        if not num_kept:
            return ""
        kept = f"; {format_count(num_kept - self.num_moved, 'sample')} kept the {what} of the earlier manifest"
        return kept + (f", {self.num_moved:,} changed it to be with their group" if self.num_moved else "")


def recall_splits(previous: pd.DataFrame | None, samples: Samples, column: str, *, free: NDArray[np.bool_]) -> EarlierSplits:
    """Where `free` samples were, by `column` of the manifest (split or fold)."""
    nowhere: Rows = np.full(len(samples), NONE, np.int32)
    if previous is None or column not in previous.columns:
        return EarlierSplits(nowhere)
    places = places_in(previous["sample_id"], samples.frame["sample_id"])
    codes, names = _codes(previous, column)
    splits = nowhere
    if len(codes):
        splits = codes[places]
        splits[places < 0] = NONE
    if num_divided := _count_divided(previous, samples, places, splits, free=free):
        return EarlierSplits(nowhere, num_divided=num_divided, group_name=samples.group_name or "group")
    moved = previous[MOVED].to_numpy()[places[places >= 0]].sum() if MOVED in previous.columns else 0
    return EarlierSplits(splits, tuple(names), num_moved=int(moved))


def _codes(frame: pd.DataFrame, column: str) -> tuple[Rows, list[str]]:
    """Splits, or folds, which are numbers."""
    return codes_of(frame[column] if column == "split" else frame[column].astype("str"))


def _count_divided(previous: pd.DataFrame, samples: Samples, places: Rows, splits: Rows, *, free: NDArray[np.bool_]) -> int:
    """Groups that the manifest did not know as such and has in several splits."""
    group_of = first_alike(samples.frame["group"])
    rows = np.flatnonzero((group_of >= 0) & free & (splits >= 0))
    if not len(rows):
        return 0
    groups = TextColumn(samples.frame["group"])
    known = TextColumn(previous["group"]) if "group" in previous.columns else [""] * len(previous)
    num = int(splits.max()) + 1
    of_group, counts = np.unique(np.unique(group_of[rows].astype(np.int64) * num + splits[rows]) // num, return_counts=True)
    several = set(of_group[counts > 1].tolist())
    unknown = {int(group_of[row]) for row in rows.tolist() if group_of[row] in several and known[int(places[row])] != groups[row]}
    return len(unknown)


def count_moved(previous: pd.DataFrame | None, samples: Samples) -> int:
    """How many of the samples that were in the manifest are in another split now; in another fold, where both have folds."""
    if previous is None or not len(previous):
        return 0
    column = "fold" if "fold" in previous.columns and "fold" in samples.frame.columns else "split"
    places = places_in(previous["sample_id"], samples.frame["sample_id"])
    codes, names = _codes(previous, column)
    now, names_now = _codes(samples.frame, column)
    number = {name: place for place, name in enumerate(names)}
    as_before = np.array([number.get(name, NONE) for name in names_now], np.int64)[now]
    return int(np.count_nonzero((places >= 0) & (codes[places] != as_before)))


def keep_left_out(
    previous: pd.DataFrame | None, *, dropped: Collection[str], folder: Path, warn: Callable[[str], object]
) -> pd.DataFrame | None:
    """Note the splits of those in `dropped`, and add those that were left out before and are not any more."""
    import pandas as pd

    file = folder / LEFT_OUT_FILE
    if previous is None:
        file.unlink(missing_ok=True)
        return None
    kept = recall_json(file, warn)
    columns = [name for name in _COLUMNS if name in previous.columns]
    here = previous.loc[previous["sample_id"].isin(list(dropped)), columns] if dropped else previous.iloc[:0]
    new: dict[str, Any] = {str(row["sample_id"]): row for row in here.to_dict("records")}
    if any(kept.get(name) != row for name, row in new.items()):
        kept |= new
        atomic.write_json(file, kept)
    if not kept:
        return previous
    previous = previous[columns]
    there = set(previous["sample_id"][previous["sample_id"].isin(list(kept))].tolist())
    back = [row for name, row in kept.items() if name not in dropped and name not in there]
    back = [row for row in back if set(columns) <= set(row)]  # a row of a time before there were folds has none to keep
    if not back:
        return previous
    return pd.concat([previous, pd.DataFrame(back)[columns].astype(previous.dtypes.to_dict())], ignore_index=True)
