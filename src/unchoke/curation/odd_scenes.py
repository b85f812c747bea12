"""Scenes whose masks disagree with what the other scenes teach.

In: for each scene, how its mask agrees with a model that never saw it. Out: a finding for each that agrees far less than is
usual.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.curation.data_finding import DataFinding
from unchoke.curation.odd_photos import robust

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
        worst = _worst(confusion, class_names)
        figures = {"mean_iou": value, "usual": middle, "right_pixels": right}
        evidence: dict[str, Any] = {name: round(figure, 4) for name, figure in figures.items()} | worst
        message = f"scene {scene!r}: its mask and a model of the other scenes agree on {100 * right:.0f} % of its pixels "
        message += f"(mean IoU {value:.2f}, usually {middle:.2f}), least where the mask says {worst['mask_says']!r}"
        score = float(np.clip(0.5 + (middle - value) / 2, 0, 0.98))
        found.append(DataFinding("scene", message, (), round(score, 4), evidence, about=(scene,)))
    return found


def _worst(confusion: NDArray[np.int64], class_names: tuple[str, ...]) -> dict[str, Any]:
    """Between which classes most pixels are contradicted."""
    wrong = confusion.copy()
    np.fill_diagonal(wrong, 0)
    truth, answer = np.unravel_index(int(wrong.argmax()), wrong.shape)
    return {"mask_says": class_names[int(truth)], "model_says": class_names[int(answer)], "pixels": int(wrong[truth, answer])}
