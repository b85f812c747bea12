"""Judges masks: predictions are stitched as they will be used and compared with the labels pixel by pixel.

In: patches of a split with their probabilities, and the scenes' labels. Out: figures per class. Patches of other
splits count for nothing where they overlap; a pixel that no patch of the split covers is not judged. Bands of the stitched mask
pass through one by one, so memory does not grow with the scene. Rules and trees over the bands of single pixels, without a
network, are judged on the very same pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.boxes import Box
from unchoke.core.record import BaselineRecord, BaselineScore, ClassRecord, Interval
from unchoke.masks.mask_objective import IGNORE, ious
from unchoke.masks.patches import Patch
from unchoke.masks.prepare_patches import PatchMaterial
from unchoke.masks.stitch import plan_stitch, stitch
from unchoke.scenes.expression import parse_expression
from unchoke.scenes.raster import read_box
from unchoke.scenes.scene_facts import SceneFacts
from unchoke.training.data import Positions
from unchoke.training.scoring.figures import class_rates, confusion_matrix

Predict = Callable[[Positions], NDArray[np.float32]]
"""Positions of patches to their probabilities (n, classes, side, side)."""
ReadMask = Callable[[str, Box], NDArray[np.uint8]]
Rule = Callable[[SceneFacts, Box], NDArray[np.uint8]]
JUDGED = ("val", "test")
_BATCH = 8
"""Patches that are judged at once."""
FEWEST_SCENES = 4
"""Drawing again from fewer scenes says nothing of others."""
_DRAWS = 1000


@dataclass(frozen=True)
class MaskScores:
    """What the masks of one split are worth. A class that neither labels nor masks have is None."""

    mean_iou: float | None
    macro_f1: float | None
    pixel_accuracy: float | None
    per_class: list[ClassRecord]
    confusion: list[list[int]]
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    """95 % intervals of figures by name, over scenes; none where there are few."""

    @property
    def num_pixels(self) -> int:
        return sum(map(sum, self.confusion))

    def metrics(self) -> dict[str, Interval]:
        """By name, as a record keeps them."""
        found = {"mean_iou": self.mean_iou, "macro_f1": self.macro_f1, "pixel_accuracy": self.pixel_accuracy}
        for row in self.per_class:
            found |= {f"iou/{row.name}": row.iou, f"f1/{row.name}": row.f1}
        return {name: Interval(value, *self.intervals.get(name, ())) for name, value in found.items()}


def mask_scores(by_scene: Sequence[NDArray[np.int64]], class_names: Sequence[str]) -> MaskScores:
    """Figures from each scene's counts of pixels by their true class (rows) and the mask's (columns)."""
    confusion = np.stack(by_scene).sum(axis=0)
    if not confusion.any():
        return MaskScores(None, None, None, [], confusion.tolist())
    truths, claims, rates = confusion.sum(axis=1), confusion.sum(axis=0), class_rates(confusion)
    seen = {"iou": truths + claims, "f1": truths + claims, "precision": claims, "recall": truths}
    rows = [
        ClassRecord(
            name=name,
            support=int(truths[place]),
            **{key: float(rates[key][place]) if counts[place] else None for key, counts in seen.items()},
        )
        for place, name in enumerate(class_names)
    ]

    def mean(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else None

    return MaskScores(
        mean_iou=mean([row.iou for row in rows]),
        macro_f1=mean([row.f1 for row in rows]),
        pixel_accuracy=float(np.trace(confusion) / confusion.sum()),
        per_class=rows,
        confusion=confusion.tolist(),
        intervals=_intervals(np.stack(by_scene), class_names) if len(by_scene) >= FEWEST_SCENES else {},
    )


def _intervals(by_scene: NDArray[np.int64], class_names: Sequence[str]) -> dict[str, tuple[float, float]]:
    """95 % intervals from scenes drawn again with replacement: pixels of one scene are alike, scenes are not."""
    num = len(by_scene)
    draws = np.random.default_rng(0).multinomial(num, np.full(num, 1 / num), size=_DRAWS)
    drawn = np.tensordot(draws, by_scene, axes=1).astype(np.float64)
    each = np.stack([ious(confusion) for confusion in drawn])
    each = each[np.isfinite(each).any(axis=1)]
    figures = {"mean_iou": np.nanmean(each, axis=1)}
    figures |= {f"iou/{name}": each[np.isfinite(each[:, place]), place] for place, name in enumerate(class_names)}
    limits = {name: np.percentile(values, (2.5, 97.5)) for name, values in figures.items() if len(values) > _DRAWS // 2}
    return {name: (float(low), float(high)) for name, (low, high) in limits.items()}


def stitched_bands(
    facts: SceneFacts, patches: Sequence[tuple[int, Patch]], predict: Predict, *, num_classes: int, overlap_px: int, batch: int
) -> Iterator[tuple[Box, NDArray[np.uint8]]]:
    """Bands of a scene's mask, stitched from these patches (with their positions) alone: 255 where none of them reaches."""
    side = patches[0][1].box.height
    plan = plan_stitch(facts.grid.height, facts.grid.width, patch_px=side, overlap_px=overlap_px, num_classes=num_classes)
    places = {patch.box: position for position, patch in patches}

    def answer(boxes: list[Box]) -> NDArray[np.float32]:
        """Patches of other splits say nothing: all their classes are as likely, namely not at all."""
        found = np.zeros((len(boxes), num_classes, side, side), np.float32)
        known = [place for place, box in enumerate(boxes) if box in places]
        if known:
            found[known] = predict(np.array([places[boxes[place]] for place in known], np.int64))
        return found

    def untouched(band: Box) -> bool:
        return not any(band.common(box) for box in places)

    for band, values in stitch(plan, answer, batch=batch, done=untouched):
        classes = values.argmax(axis=0).astype(np.uint8)
        classes[values.sum(axis=0) <= 0] = IGNORE
        yield band, classes


def judge_masks(
    facts: Sequence[SceneFacts],
    patches: Sequence[Patch],
    splits: Sequence[str] = JUDGED,
    *,
    predict: Predict,
    read_mask: ReadMask,
    class_names: Sequence[str],
    overlap_px: int,
    batch: int,
    rule: Rule | None = None,
) -> dict[str, MaskScores]:
    """Figures for each split that has patches. A `rule` answers in the place of `predict`, for the pixels that this covers."""
    found: dict[str, MaskScores] = {}
    num_classes = len(class_names)
    for split in splits:
        by_scene = []
        for scene in facts:
            own = [(number, one) for number, one in enumerate(patches) if (one.split, one.scene_id) == (split, scene.scene_id)]
            if not own:
                continue
            confusion = np.zeros((num_classes, num_classes), np.int64)
            bands = stitched_bands(scene, own, predict, num_classes=num_classes, overlap_px=overlap_px, batch=batch)
            for band, classes in bands:
                answer = classes if rule is None else np.where(classes == IGNORE, IGNORE, rule(scene, band))
                truth = read_mask(scene.scene_id, band)
                judged = (truth != IGNORE) & (answer != IGNORE)
                confusion += confusion_matrix(truth[judged], answer[judged], num_classes=num_classes)
            if confusion.any():
                by_scene.append(confusion)
        if by_scene:
            found[split] = mask_scores(by_scene, class_names)
    return found


def judge_material(material: PatchMaterial, predict: Predict, *, rule: Rule | None = None) -> dict[str, MaskScores]:
    """The figures of val and test on the patches of a training."""
    return judge_masks(
        material.facts,
        material.patches,
        predict=predict,
        read_mask=material.reader.mask,
        class_names=material.class_names,
        overlap_px=material.overlap_px,
        batch=_BATCH,
        rule=rule,
    )


def judge_trees(material: PatchMaterial, predict: Predict) -> BaselineRecord:
    """Trees over the bands of pixels and their surroundings, by themselves."""
    return _recorded(
        "gradient-boosted trees on the bands of each pixel and their means around it", judge_material(material, predict)
    )


def judge_expression(material: PatchMaterial, text: str) -> BaselineRecord:
    """An expression over bands that says class 1 where it is true."""
    expression = parse_expression(text, material.facts[0].band_names)
    side_px, num_classes = material.spec.patch_px, len(material.class_names)

    def everywhere(positions: NDArray[np.int64]) -> NDArray[np.float32]:
        return np.ones((len(positions), num_classes, side_px, side_px), np.float32)

    def rule(scene: SceneFacts, band: Box) -> NDArray[np.uint8]:
        bands, _ = read_box(scene, band, pool=material.reader.pool)
        return expression.evaluate(dict(zip(scene.band_names, bands, strict=True))).astype(np.uint8)

    return _recorded(text, judge_material(material, everywhere, rule=rule))


def _recorded(name: str, found: dict[str, MaskScores]) -> BaselineRecord:
    """The IoU of class 1, and the mean over all classes, on each split that has both."""
    scores: dict[str, Any] = {}
    for split, one in found.items():
        if len(one.per_class) > 1:
            row = one.per_class[1]
            figures = {"class": row.name, "iou": row.iou, "mean_iou": one.mean_iou, "confusion": one.confusion}
            scores[split] = BaselineScore(**figures)
    return BaselineRecord(name=name, **scores)
