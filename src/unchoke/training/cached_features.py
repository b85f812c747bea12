"""Cached features of a workspace, found without a session: those of a run, or of the newest that has some.

In: a workspace. Out: a `FeatureStore` and the ids of its rows. Nothing is extracted here, and no encoder is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unchoke.core.workspace import Workspace
from unchoke.data.manifest import load_manifest
from unchoke.features.feature_store import FeatureStore, first_member, map_member, open_stored
from unchoke.jobs.queue import JobQueue
from unchoke.runs.lookup import stored_runs


@dataclass(frozen=True)
class CachedFeatures:
    """Rows of the store belong to `ids`, in this order."""

    fingerprint: str
    ids: list[str]
    store: FeatureStore


def find_cached(
    workspace: Workspace, *, of: str | None = None, fits: Callable[[tuple[int, ...]], bool] = bool
) -> CachedFeatures | None:
    """Those of the fingerprint `of`; else of the newest run whose rows have a shape that `fits`, or what was extracted last."""
    manifest = load_manifest(workspace.manifest_file)
    if manifest is None:
        return None
    queue = JobQueue.load(workspace.features)
    extracted = list(dict.fromkeys(job.fingerprint for job in queue.jobs()))
    runs = stored_runs(out=workspace.root)[::-1] if workspace.experiments_file.exists() else []
    of_runs = [run.fingerprint for run in runs if run.fingerprint in extracted]
    names = manifest["sample_id"].tolist()
    for fingerprint in dict.fromkeys([*of_runs, *extracted[::-1]] if of is None else [of]):
        stored = open_stored(queue, fingerprint, names)
        shapes = [map_member(shard, first_member(shard)).shape[1:] for shard in stored.placement.shards[:1]]
        if shapes and fits(shapes[0]) and stored.present.any():
            ids = [name for name, there in zip(names, stored.present, strict=True) if there]
            return CachedFeatures(fingerprint, ids, FeatureStore(stored.placement, row_shape=shapes[0]))
    return None
