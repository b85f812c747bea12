"""`unchoke curate` in a workspace of masks: scenes whose masks disagree with what the other scenes teach.

In: a session whose workspace `segment train` made. Out: findings. Patches, their masks and what trees say that never saw the
patch's scene are those that `segment train` keeps; what is missing of them is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.errors import DataError
from unchoke.core.units import format_count
from unchoke.curation.data_finding import DataFinding
from unchoke.curation.odd_scenes import find_odd_scenes
from unchoke.masks.grow_trees import keep_scores
from unchoke.masks.prepare_patches import PatchMaterial, prepare_patches
from unchoke.runs.session import Session
from unchoke.scenes.scene_facts import IGNORE

_CHUNK = 16


def curate_scenes(session: Session) -> tuple[list[DataFinding], int]:
    """Findings, and how many scenes were looked at."""
    material = prepare_patches(session)
    if keep_scores(session, material) is None:
        raise DataError(
            "the masks hold one class alone",
            code="single-class",
            why="there is nothing that a model of other scenes could contradict",
            try_="name masks with --label, --mask or --polygons in `unchoke segment train`",
        )
    with session.stage("curate", format_count(len(material.facts), "scene")):
        confusions = {scene: _confusion(material, positions) for scene, positions in _positions(material).items()}
        return find_odd_scenes(confusions, tuple(material.class_names)), len(confusions)


def _positions(material: PatchMaterial) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for place, patch in enumerate(material.patches):
        found.setdefault(patch.scene_id, []).append(place)
    return found


def _confusion(material: PatchMaterial, positions: Sequence[int]) -> NDArray[np.int64]:
    """Pixels of a scene by what its mask says (rows) and what the trees say (columns)."""
    num = len(material.class_names)
    counts: NDArray[Any] = np.zeros(num * num, np.int64)
    for start in range(0, len(positions), _CHUNK):
        where = np.array(positions[start : start + _CHUNK], np.int64)
        masks, said = material.arrays.masks(where), material.arrays.scores(where).argmax(axis=1)
        known = (masks != IGNORE) & (masks < num)
        counts += np.bincount(masks[known].astype(np.int64) * num + said[known], minlength=num * num)
    return counts.reshape(num, num)
