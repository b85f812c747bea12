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
from unchoke.core.units import format_count
from unchoke.data.sample_set import Samples, places_in

if TYPE_CHECKING:
    import pandas as pd

MOVED = "moved"
"""A column beside those of the manifest: whether a sample is in another split than before, because it joined a group."""
LEFT_OUT_FILE = "left_out.json"
_COLUMNS = ("sample_id", "group", "split", "fold")
"""What a split depends on. Labels and values are those of today."""


@dataclass(frozen=True)
class EarlierSplits:
    """For each sample the split (or fold) to keep as text, "" for none; and how the reason of a split goes on."""

    splits: pd.Series[str]
    reason: str = ""


def recall_splits(previous: pd.DataFrame | None, samples: Samples, column: str, *, free: NDArray[np.bool_]) -> EarlierSplits:
    """Where `free` samples were, by `column` of the manifest (split or fold).

    Where that would divide groups that the manifest did not know as groups, none is kept.
    """
    import pandas as pd

    nowhere = pd.Series(np.full(len(samples), ""), dtype="str")
    if previous is None or column not in previous.columns or not len(previous):
        return EarlierSplits(nowhere)
    places = places_in(previous["sample_id"], samples.frame["sample_id"])
    splits = _at(previous[column], places)
    groups, known = samples.frame["group"], _at(previous["group"], places) if "group" in previous.columns else nowhere
    concerned = pd.DataFrame({"group": groups, "split": splits, "known": known})[free & (groups != "") & (splits != "")]
    several = concerned.groupby("group")["split"].nunique()
    torn = concerned["group"].isin(several.index[several > 1]) & (concerned["known"] != concerned["group"])
    if num_divided := int(concerned.loc[torn, "group"].nunique()):
        divided = f"{format_count(num_divided, 'group')} of {samples.group_name or 'group'!r}"
        return EarlierSplits(nowhere, f"; the earlier manifest divided {divided}, so all are drawn anew")
    moved = int(previous[MOVED].to_numpy()[places[places >= 0]].sum()) if MOVED in previous.columns else 0
    if not (num_kept := int((splits != "").sum())):
        return EarlierSplits(splits)
    kept = f"; {format_count(num_kept - moved, 'sample')} kept the {column} of the earlier manifest"
    return EarlierSplits(splits, kept + (f", {moved:,} changed it to be with their group" if moved else ""))


def _at(column: pd.Series[Any], places: NDArray[Any]) -> pd.Series[str]:
    """The cells at some places as text, "" for a place below 0."""
    found: pd.Series[str] = column.astype("str").iloc[np.maximum(places, 0)].reset_index(drop=True)
    return found.where(places >= 0, "")


def count_moved(previous: pd.DataFrame | None, samples: Samples) -> int:
    """How many of the samples that were in the manifest are in another split now; in another fold, where both have folds."""
    if previous is None or not len(previous):
        return 0
    column = "fold" if "fold" in previous.columns and "fold" in samples.frame.columns else "split"
    places = places_in(previous["sample_id"], samples.frame["sample_id"])
    now = samples.frame[column].astype("str").to_numpy()
    return int(((places >= 0) & (_at(previous[column], places).to_numpy() != now)).sum())


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
