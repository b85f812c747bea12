"""The photos that a run was judged on, found again: a model is handed over only after it answered for them.

In: a run in its workspace. Out: paths, with the run's own rows of `predictions.csv`, and paths of its train side. Nothing is
decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd

from unchoke.core.errors import DataError, UsageError, list_some
from unchoke.data.manifest import load_manifest
from unchoke.runs.lookup import FoundRun
from unchoke.training.scoring.predictions import load_predictions

MOST_CHECKED = 1000
"""Of more test photos so many are compared, at even distances."""
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class JudgedPhotos:
    """Photos the run was judged on, with its own rows of `predictions.csv`."""

    split: str
    paths: list[str]
    rows: pd.DataFrame
    train_paths: list[str]


def find_judged_photos(found: FoundRun) -> JudgedPhotos:
    """Those of the test split, or of val where there is no test."""
    refuse_away(found)
    assert found.workspace is not None, "it was refused"
    table = load_predictions(found.folder / "predictions.csv")
    split = next((split for split in ("test", "val") if (table["split"] == split).any()), None)
    manifest = load_manifest(found.workspace.manifest_file)
    if split is None or manifest is None:
        raise judged_on_nothing(found.record.run, "photos")
    rows = table[table["split"] == split]
    rows = rows.iloc[spread(range(len(rows)), MOST_CHECKED)]
    known = dict(zip(manifest["sample_id"], manifest["path"], strict=True))
    lost = [sample_id for sample_id in rows["sample_id"] if sample_id not in known or not Path(known[sample_id]).is_file()]
    if lost:
        raise DataError(
            f"photos the run was judged on are gone: {list_some(lost)}",
            code="photos-gone",
            why="a file is handed over only after it answered for them",
            try_="put the files back where manifest.csv says they are",
        )
    train = manifest[manifest["split"] == "train"]["path"] if "split" in manifest else manifest["path"]
    return JudgedPhotos(split, [str(known[sample_id]) for sample_id in rows["sample_id"]], rows, [str(path) for path in train])


def refuse_away(found: FoundRun) -> None:
    """Refuse a run that is not in the workspace it was trained in."""
    if found.workspace is None:
        raise UsageError(
            f"{found.record.run} is away from its photos",
            code="photos-gone",
            why="a file is handed over only after it answered for the photos the run was tested on",
            try_="unchoke export in the workspace where it was trained",
        )


def judged_on_nothing(run: str, what: str) -> DataError:
    """There is nothing to compare a file on."""
    return DataError(
        f"{run} was judged on no {what}",
        code="nothing-to-compare",
        why="a file is handed over only after it answered for some of them",
        try_="train with a test or val split",
    )


def spread(items: Sequence[T], most: int) -> list[T]:
    """At most so many of them, at even distances."""
    return [items[place] for place in np.unique(np.linspace(0, len(items) - 1, min(len(items), most)).round().astype(int))]
