"""Near-copies across splits: photos of val and test that are nearly the same as others are leakage, and must not count.

In: samples that can be read, their contents and features. Out: contents, equal for nearly the same photos, and findings. What
looks like what is found in `features/near_copies.py`, in some ten seconds of the processor for 10,000 photos.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core import atomic
from unchoke.core.errors import list_some
from unchoke.core.findings import Finding
from unchoke.core.fingerprint import digest
from unchoke.core.units import format_count
from unchoke.core.urls import is_url
from unchoke.core.workspace import out_option
from unchoke.data.sample_set import Samples
from unchoke.features.near_copies import LOOK_PX, NEAREST, Looks, find_pairs, join_pairs, read_looks
from unchoke.features.nearest import find_nearest
from unchoke.runs.session import Session
from unchoke.training.data import FeatureSource

ACROSS, CONFLICT = "near-copies-across-splits", "near-copies-labels"
_MOST = 50_000
"""Photos, beyond which comparing each with each takes minutes."""
_FILE = "looks.npz"


def join_near_copies(
    session: Session, samples: Samples, contents: list[str], features: FeatureSource | None
) -> tuple[list[str], list[Finding]]:
    """The contents, with those of near-copies in several splits or under several labels made equal; and what was found."""
    frame = samples.frame
    paths = frame["path"].tolist()
    if len(paths) > _MOST or session.cluster is not None or any(map(is_url, paths[:1])):
        where = "in more than 50,000 photos" if len(paths) > _MOST else "in photos that lie elsewhere"
        finding = Finding("near-copies-unsearched", f"nearly the same photos {where} are not looked for", severity="info")
        return contents, [replace(finding, fix="`unchoke curate` finds them")]
    with session.stage("copies", "photos that look the same in several splits"):
        nearest = None
        if features is not None:
            feats = features.rows(np.arange(len(paths), dtype=np.int64))
            feats = feats.reshape(len(feats), -1, feats.shape[-1])
            nearest = find_nearest(feats.mean(axis=1, dtype=np.float32).astype(np.float16), num=NEAREST)
        pairs = find_pairs(_looks(session, paths, contents), contents, nearest).rows
    splits = frame["split"].tolist()
    values: list[Any] = frame["label"].tolist() if samples.task.kind != "regression" else [""] * len(paths)
    differ = [splits[one] != splits[other] or values[one] != values[other] for one, other in pairs.tolist()]
    sets = join_pairs(pairs[np.array(differ, bool)])
    joined = list(contents)
    for rows in sets:
        for row in rows:
            joined[row] = contents[rows[0]]
    near = [rows for rows in sets if len({contents[row] for row in rows}) > 1]
    found = []
    for code, column, how in ((ACROSS, splits, "in several splits"), (CONFLICT, values, "under several labels")):
        some = [rows for rows in near if len({column[row] for row in rows}) > 1]
        if some:
            shown = [" = ".join(repr(frame["sample_id"].iloc[row]) for row in rows[:3]) for rows in some]
            photos = tuple(paths[row] for rows in some for row in rows)
            found.append(
                Finding(
                    code,
                    f"{format_count(len(some), 'photo')} stored {how}, resized, cropped, mirrored or otherwise nearly the same: "
                    f"{list_some(shown, limit=3)}; the val and test photos among them are left out of the score",
                    severity="warning",
                    path=photos[0],
                    paths=photos,
                    evidence={"sets": len(some), "files": len(photos)},
                    fix="look at them and decide which to keep, or keep them in one split",
                    command=f"unchoke curate{out_option(session.workspace.root)}",
                )
            )
    return joined, found


def _looks(session: Session, paths: list[str], contents: list[str]) -> Looks:
    """Read once for the same files, and kept in the workspace."""
    file, key = session.workspace.root / _FILE, digest([LOOK_PX, contents])
    try:
        with np.load(file, allow_pickle=False) as kept:
            if str(kept["key"]) == key:
                known: NDArray[np.uint8] = kept["looks"]
                return known
    except (OSError, ValueError, KeyError):  # absent, or cut short: they are read again
        pass
    looks = read_looks(paths, threads=max(1, session.policy.workers))
    atomic.write_with(file, lambda handle: np.savez(handle, allow_pickle=False, key=np.array(key), looks=looks), durable=False)
    return looks
