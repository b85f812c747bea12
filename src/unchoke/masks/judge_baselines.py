"""Masks without a network: rules and trees over the bands of single pixels, judged on the very pixels that judge the network.

In: patches with their sides, bands and scores. Out: for the record, what each baseline scores on val and test: an expression of
the user's, the best threshold of a normalised difference of two bands (found on the train side), and gradient-boosted trees.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.record import BaselineRecord, BaselineScore
from unchoke.masks.judge_masks import MaskMeter, MaskScores, Predict, judge_masks, stitched_bands
from unchoke.masks.mask_objective import IGNORE
from unchoke.masks.pixel_trees import PixelTrees
from unchoke.masks.prepare_patches import PatchMaterial
from unchoke.scenes.expression import parse_expression
from unchoke.scenes.raster import read_box

JUDGED = ("val", "test")
TREES = "gradient-boosted trees on the bands of each pixel"
_BATCH = 8


def judge_trees(material: PatchMaterial, trees: PixelTrees) -> BaselineRecord:
    """Trees over the bands of single pixels, by themselves."""

    def predict(positions: NDArray[np.int64]) -> NDArray[np.float32]:
        scores = np.stack([trees.scores(patch) for patch in material.arrays.pixels(positions)]).astype(np.float32)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        probabilities: NDArray[np.float32] = shares / shares.sum(axis=1, keepdims=True)
        return probabilities

    found = judge_masks(
        material.facts,
        material.patches,
        JUDGED,
        predict=predict,
        read_mask=material.reader.mask,
        class_names=material.class_names,
        overlap_px=material.overlap_px,
        batch=_BATCH,
    )
    return _recorded(TREES, found)


def judge_expression(material: PatchMaterial, text: str) -> BaselineRecord:
    """An expression over bands that says class 1 where it is true."""
    expression = parse_expression(text, material.facts[0].band_names)
    found: dict[str, MaskScores] = {}
    for split in JUDGED:
        meter = MaskMeter(material.class_names)
        for scene in material.facts:
            own = [(n, one) for n, one in enumerate(material.patches) if (one.split, one.scene_id) == (split, scene.scene_id)]
            if not own:
                continue
            everywhere = _everywhere(len(material.class_names), own[0][1].box.height)
            options = {"num_classes": len(material.class_names), "overlap_px": material.overlap_px, "batch": _BATCH}
            for band, covered in stitched_bands(scene, own, everywhere, **options):
                bands, _ = read_box(scene, band, pool=material.reader.pool)
                says = expression.evaluate(dict(zip(scene.band_names, bands, strict=True))).astype(np.uint8)
                meter.add(np.where(covered == IGNORE, IGNORE, says).astype(np.uint8), material.reader.mask(scene.scene_id, band))
        found[split] = meter.finish()
    return _recorded(text, found)


def _everywhere(num_classes: int, side_px: int) -> Predict:
    """Stands in for a network, to learn which pixels are judged."""

    def predict(positions: NDArray[np.int64]) -> NDArray[np.float32]:
        return np.ones((len(positions), num_classes, side_px, side_px), np.float32)

    return predict


def _recorded(name: str, found: dict[str, MaskScores]) -> BaselineRecord:
    """The IoU of class 1, and the mean over all classes, on each side that has both."""
    scores: dict[str, Any] = {}
    for split, one in found.items():
        if one.num_pixels and len(one.per_class) > 1:
            row = one.per_class[1]
            scores[split] = BaselineScore(
                **{"class": row.name, "iou": row.iou, "mean_iou": one.mean_iou, "confusion": one.confusion}
            )
    return BaselineRecord(name=name, **scores)
