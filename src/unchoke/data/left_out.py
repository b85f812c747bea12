"""Photos that decisions leave out keep their side of the split: one that comes back must not be judged on what it taught.

In: the earlier manifest, and which photos are left out now. Out: the manifest with those in it that came back. Their sides are
kept in `curation/left_out.json` of the workspace; without a manifest there are no sides, and what was kept is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unchoke.core import atomic
from unchoke.core.checksums import recall_json

if TYPE_CHECKING:
    import pandas as pd

FILE = "left_out.json"
_COLUMNS = ("sample_id", "group", "split", "fold")
"""What a side depends on. Labels and values are those of today."""


def keep_left_out(
    previous: pd.DataFrame | None, *, dropped: Collection[str], folder: Path, warn: Callable[[str], object]
) -> pd.DataFrame | None:
    """Note the sides of those in `dropped`, and add those that were left out before and are not any more."""
    file = folder / FILE
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
    return _with_rows(previous[columns], [row for name, row in kept.items() if name not in dropped]) if kept else previous


def _with_rows(previous: pd.DataFrame, rows: list[dict[str, Any]]) -> pd.DataFrame:
    """The manifest with rows that it has no more; those of a time before there were folds have none to keep."""
    import pandas as pd

    there = set(previous["sample_id"][previous["sample_id"].isin([row["sample_id"] for row in rows])].tolist())
    back = [row for row in rows if row["sample_id"] not in there and set(previous.columns) <= set(row)]
    if not back:
        return previous
    return pd.concat([previous, pd.DataFrame(back)[list(previous.columns)].astype(previous.dtypes.to_dict())], ignore_index=True)
