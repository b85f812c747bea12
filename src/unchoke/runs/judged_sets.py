"""Which runs were judged on the same photos. In: runs as the database knows them and their folders. Out: the same runs, each with
a digest of the samples it was validated and tested on; and those that can be compared with the newest.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from unchoke.core.fingerprint import digest_ids
from unchoke.core.record import StoredRun, stored_versions
from unchoke.core.remembered import DIVIDING
from unchoke.core.settings import NO_GROUP

_PREDICTIONS = "predictions.csv"
T = TypeVar("T")


def with_judged_sets(run: StoredRun, folder: Path) -> StoredRun:
    """The run with its digests; one recorded before there were any is told by its predictions."""
    if run.status != "done" or "split_digests" in run.data:
        return run
    return run.model_copy(update={"data": {**run.data, "split_digests": _of_predictions(folder / _PREDICTIONS)}})


def _of_predictions(file: Path) -> dict[str, str]:
    if not file.is_file():
        return {}
    ids: dict[str, list[str]] = defaultdict(list)
    with file.open(encoding="utf-8", newline="") as text:
        for row in csv.DictReader(text):
            ids[row.get("split") or ""].append(row.get("sample_id") or "")
    return {split: digest_ids(ids[split]) for split in ("val", "test") if split in ids}


def divided_alike(rows: Sequence[T], settings_of: Callable[[T], dict[str, Any]]) -> list[T]:
    """Those of `rows`, oldest first, whose samples were divided as the newest one's were: by the same groups, folds or column."""
    if not rows:
        return []
    newest = _division(settings_of(rows[-1]))
    return [row for row in rows if _division(settings_of(row)) == newest]


def judged_alike(rows: Sequence[T], data_of: Callable[[T], dict[str, Any]]) -> list[T]:
    """Those of `rows`, oldest first, that have no other contents or labels than the newest under the ids it was judged on."""
    newest = data_of(rows[-1]) if rows else {}
    return [row for row in rows if not _clash(data_of(row), newest)]


def _clash(one: dict[str, Any], other: dict[str, Any]) -> bool:
    ours, theirs = stored_versions(one), stored_versions(other)
    ids = [data.get("split_digests", {}) for data in (one, other)]
    return any(ids[0].get(split) == ids[1].get(split) and ours[split] != theirs[split] for split in ours if split in theirs)


def _division(settings: dict[str, Any]) -> list[Any]:
    group = settings.get("group")
    return [None if group == NO_GROUP else group, *(settings.get(name) for name in DIVIDING)]
