"""Judges masks: predictions are stitched as they will be used and compared with the labels pixel by pixel.

In: patches of a split with their probabilities, and the scenes' labels. Out: figures per class. Patches of other
splits count for nothing where they overlap; a pixel that no patch of the split covers is not judged. Bands of the stitched mask
pass through one by one, so memory does not grow with the scene.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.boxes import Box
from unchoke.core.record import ClassRecord
from unchoke.masks.mask_objective import IGNORE
from unchoke.masks.patches import Patch
from unchoke.masks.stitch import plan_stitch, stitch
from unchoke.scenes.scene_facts import SceneFacts
from unchoke.training.data import Positions
from unchoke.training.scoring.figures import class_rates, confusion_matrix

Predict = Callable[[Positions], NDArray[np.float32]]
"""Positions of patches to their probabilities (n, classes, side, side)."""
ReadMask = Callable[[str, Box], NDArray[np.uint8]]


@dataclass(frozen=True)
class MaskScores:
    """What the masks of one split are worth. A class that neither labels nor masks have is None."""

    mean_iou: float | None
    macro_f1: float | None
    pixel_accuracy: float | None
    per_class: list[ClassRecord]
    confusion: list[list[int]]

    @property
    def num_pixels(self) -> int:
        return sum(map(sum, self.confusion))

    def metrics(self) -> dict[str, float | None]:
        """By name, as a record keeps them."""
        found: dict[str, float | None] = {
            "mean_iou": self.mean_iou,
            "macro_f1": self.macro_f1,
            "pixel_accuracy": self.pixel_accuracy,
        }
        for row in self.per_class:
            found |= {f"iou/{row.name}": row.iou, f"f1/{row.name}": row.f1}
        return found


class MaskMeter:
    """Counts pixels, band by band."""

    def __init__(self, class_names: Sequence[str]) -> None:
        self._names = tuple(class_names)
        self._confusion = np.zeros((len(self._names), len(self._names)), np.int64)

    def add(self, found: NDArray[np.uint8], truth: NDArray[np.uint8]) -> None:
        """Classes of some pixels; those without a label, or without an answer, are passed over."""
        judged = (truth != IGNORE) & (found != IGNORE)
        self._confusion += confusion_matrix(truth[judged], found[judged], num_classes=len(self._names))

    def finish(self) -> MaskScores:
        confusion = self._confusion
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
            for place, name in enumerate(self._names)
        ]
        return MaskScores(
            mean_iou=_mean([row.iou for row in rows]),
            macro_f1=_mean([row.f1 for row in rows]),
            pixel_accuracy=float(np.trace(confusion) / confusion.sum()),
            per_class=rows,
            confusion=confusion.tolist(),
        )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


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
    splits: Sequence[str],
    *,
    predict: Predict,
    read_mask: ReadMask,
    class_names: Sequence[str],
    overlap_px: int,
    batch: int,
) -> dict[str, MaskScores]:
    """Figures for each split that has patches."""
    found: dict[str, MaskScores] = {}
    for split in splits:
        meter = MaskMeter(class_names)
        for scene in facts:
            own = [(number, one) for number, one in enumerate(patches) if one.split == split and one.scene_id == scene.scene_id]
            if own:
                options: dict[str, Any] = {"num_classes": len(class_names), "overlap_px": overlap_px, "batch": batch}
                for band, classes in stitched_bands(scene, own, predict, **options):
                    meter.add(classes, read_mask(scene.scene_id, band))
        scores = meter.finish()
        if scores.num_pixels:
            found[split] = scores
    return found
