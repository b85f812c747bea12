"""`unchoke curate` in a workspace of masks: scenes whose masks disagree with what the other scenes teach.

In: a session whose workspace `segment train` made. Out: findings. Patches, their masks and the out-of-fold answers of trees are
those that `segment train` keeps; missing ones are made. A scene that agrees far less with them than is usual is a finding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.errors import DataError
from unchoke.core.units import format_count
from unchoke.curation.data_finding import DataFinding
from unchoke.curation.odd_photos import robust
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
        positions: dict[str, list[int]] = {}
        for place, patch in enumerate(material.patches):
            positions.setdefault(patch.scene_id, []).append(place)
        confusions = {scene: _confusion(material, places) for scene, places in positions.items()}
        return find_odd_scenes(confusions, tuple(material.class_names)), len(confusions)


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


_DEVIATIONS, _LEAST_GAP = 2.0, 0.05


def mean_iou(confusion: NDArray[np.int64]) -> float:
    """The mean IoU of the classes that are there, from pixels by truth (rows) and answer (columns)."""
    right = np.diag(confusion).astype(np.float64)
    union = confusion.sum(axis=0) + confusion.sum(axis=1) - right
    there = confusion.sum(axis=1) > 0
    return float((right[there] / np.maximum(union[there], 1)).mean()) if there.any() else float("nan")


def find_odd_scenes(confusions: Mapping[str, NDArray[np.int64]], class_names: tuple[str, ...]) -> list[DataFinding]:
    """`confusions` has pixels by truth and answer for each scene."""
    scores = {scene: mean_iou(one) for scene, one in confusions.items() if one.sum()}
    middle, spread = robust(np.array([value for value in scores.values() if np.isfinite(value)]))
    limit = middle - max(_LEAST_GAP, _DEVIATIONS * spread)
    found = []
    for scene, value in sorted(scores.items(), key=lambda item: item[1]):
        if not np.isfinite(value) or value >= limit:
            continue
        confusion = confusions[scene]
        right = float(np.diag(confusion).sum() / confusion.sum())
        wrong = confusion.copy()
        np.fill_diagonal(wrong, 0)
        truth, answer = np.unravel_index(int(wrong.argmax()), wrong.shape)
        says = {"mask_says": class_names[int(truth)], "model_says": class_names[int(answer)]}
        worst = {**says, "pixels": int(wrong[truth, answer])}
        figures = {"mean_iou": value, "usual": middle, "right_pixels": right}
        evidence: dict[str, Any] = {name: round(figure, 4) for name, figure in figures.items()} | worst
        message = f"scene {scene!r}: its mask and a model of the other scenes agree on {100 * right:.0f} % of its pixels "
        message += f"(mean IoU {value:.2f}, usually {middle:.2f}), least where the mask says {worst['mask_says']!r}"
        score = float(np.clip(0.5 + (middle - value) / 2, 0, 0.98))
        found.append(DataFinding("scene", message, (), round(score, 4), evidence, about=(scene,)))
    return found
