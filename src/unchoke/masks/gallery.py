"""The gallery of a run: which pieces of the stitched masks are shown, and each of them as pictures.

In come patches with their splits and the numbers of some windows; out come plain dictionaries of data URIs for the record, which
`runs/report/sections.py:gallery` shows. Pieces are chosen by a hash, never by how well they came out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unchoke.core.boxes import Box, plan_boxes
from unchoke.core.fingerprint import hash_int
from unchoke.core.metrics import in_order
from unchoke.masks.paint import IGNORED, as_hex, class_colours, paint_bands, paint_error, paint_mask, paint_overlay
from unchoke.masks.stitch import blend_window
from unchoke.runs.report.page import make_sharp_thumbnail, make_thumbnail
from unchoke.runs.report.summary import SPLIT_WORDS

if TYPE_CHECKING:
    from unchoke.masks.patches import Patch, PatchReader

Predict = Callable[[NDArray[np.float16]], NDArray[np.float32]]
"""Patches (n, B, p, p) to probabilities (n, C, p, p)."""
ENOUGH = 20
"""A gallery has at least this many pieces, where the scenes are large enough for them."""
_SIDE_PX = 176
_SMALLEST_PX = 32
_HELD_BYTES = 64 << 20
_SPLITS = ("test", "val", "train")


@dataclass(frozen=True)
class GalleryWindow:
    """A piece of a scene to show, and the split all of its pixels belong to."""

    scene_id: str
    box: Box
    split: str

    @property
    def title(self) -> str:
        rows = f"rows {self.box.top}–{self.box.bottom - 1}"
        columns = f"columns {self.box.left}–{self.box.right - 1}"
        return f"{self.scene_id}, {rows}, {columns}, {SPLIT_WORDS.get(self.split, self.split)}"


@dataclass(frozen=True)
class GallerySample:
    """A piece with its numbers: bands (B, h, w) as measured, `truth` and `prediction` (h, w) with 255 for no class."""

    title: str
    bands: NDArray[np.float32]
    band_names: Sequence[str]
    valid: NDArray[np.bool_]
    truth: NDArray[np.uint8]
    prediction: NDArray[np.uint8]


def choose_samples(
    patches: Iterable[Patch], *, sizes: Mapping[str, tuple[int, int]], limit: int = 24, seed: int = 0
) -> list[GalleryWindow]:
    """Windows to show: parts of test patches first, then of validation's, then of training's, each in the order of a hash.

    `sizes` has (height, width) of each scene. A window is a whole patch; where fewer than `ENOUGH` of those do not overlap,
    patches are quartered, and quartered again, down to 32 px; where that is not enough either, some may overlap. Patches that
    were left out of all splits are not shown.
    """
    shown = [patch for patch in patches if patch.split in _SPLITS]

    def windows(parts: int) -> list[GalleryWindow]:
        """Every patch in `parts` × `parts` windows, in the order they are to be shown."""
        cut: set[GalleryWindow] = set()
        for patch in shown:
            (top, left, height, width), size = patch.box, sizes[patch.scene_id]
            side = -(-max(height, width) // parts)
            for one in plan_boxes(height, width, size_px=side) if side >= _SMALLEST_PX or parts == 1 else []:
                box = Box(top + one.top, left + one.left, one.height, one.width).common(Box(0, 0, *size))
                if box is not None and min(box.height, box.width) >= min(_SMALLEST_PX, *size):
                    cut.add(GalleryWindow(patch.scene_id, box, patch.split))
        return sorted(cut, key=lambda one: (in_order(one.split, _SPLITS), hash_int(seed, "gallery", one.scene_id, *one.box)))

    best: list[GalleryWindow] = []
    for parts in (1, 2, 4, 8):
        kept: list[GalleryWindow] = []
        for window in windows(parts):
            near = (other.box for other in kept if other.scene_id == window.scene_id)
            if len(kept) < limit and not any(box.common(window.box) for box in near):
                kept.append(window)
        best = max(best, kept, key=len)
        if len(best) >= min(ENOUGH, limit):
            break
    further = (window for window in windows(1) if window not in best)
    return [*best, *islice(further, max(0, min(ENOUGH, limit) - len(best)))]


def stitched_samples(
    windows: Iterable[GalleryWindow],
    *,
    reader: PatchReader,
    predict: Predict,
    patch_px: int,
    overlap_px: int,
    batch: int = 8,
) -> Iterator[GallerySample]:
    """Each window with its truth, and the very piece of the mask that stitching the whole scene would give there.

    Windows are taken as many at a time as 64 MB of sums allow, and a patch that several of these meet is predicted once.
    """
    from unchoke.scenes.raster import read_box

    left, at_once, weights = list(windows), 1, blend_window(patch_px, overlap_px)
    while left:
        taken, left = left[:at_once], left[at_once:]
        sums = _blend(taken, reader, predict, weights, overlap_px=overlap_px, batch=batch)
        at_once = max(1, _HELD_BYTES // max(one.nbytes for one in sums))  # the first one tells how many classes there are
        for window, values in zip(taken, sums, strict=True):
            scene = reader.facts[window.scene_id]
            bands, valid = read_box(scene, window.box, pool=reader.pool)
            # the weights, by whose sum stitching divides, are the same for all classes of a pixel
            prediction = np.where(valid, values.argmax(axis=0), IGNORED).astype(np.uint8)
            truth = reader.mask(window.scene_id, window.box)
            yield GallerySample(window.title, bands, scene.band_names, valid, truth, prediction)


def _blend(
    windows: Sequence[GalleryWindow],
    reader: PatchReader,
    predict: Predict,
    weights: NDArray[np.float32],
    *,
    overlap_px: int,
    batch: int,
) -> list[NDArray[np.float32]]:
    """For each window the weighted sum (C, h, w) of what the patches that meet it say of its pixels."""
    meeting: dict[tuple[str, Box], list[int]] = {}
    for place, window in enumerate(windows):
        grid = reader.facts[window.scene_id].grid
        for box in plan_boxes(grid.height, grid.width, size_px=len(weights), overlap_px=overlap_px, edges="padded"):
            if box.common(window.box):
                meeting.setdefault((window.scene_id, box), []).append(place)
    sums: list[NDArray[np.float32]] = []
    for start in range(0, len(meeting), batch):
        patches = list(meeting)[start : start + batch]
        answers = predict(np.stack([reader.read(scene_id, box)[0] for scene_id, box in patches]))
        sums = sums or [np.zeros((answers.shape[1], one.box.height, one.box.width), np.float32) for one in windows]
        for patch, answer in zip(patches, answers, strict=True):
            for place in meeting[patch]:
                common = windows[place].box.common(patch[1])
                assert common is not None
                weighted = (answer * weights)[:, *common.slices_in(patch[1])]
                sums[place][:, *common.slices_in(windows[place].box)] += weighted
    return sums


def build_gallery(
    samples: Iterable[GallerySample], *, class_names: Sequence[str], limit: int = 24
) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The record's `gallery` (title, note and five pictures for each of at most `limit` samples) and its `legend`."""
    gallery = [_pictures(sample, class_names) for sample in islice(samples, limit)]
    colours = class_colours(len(class_names))
    return gallery, [{"name": name, "colour": as_hex(colour)} for name, colour in zip(class_names, colours, strict=True)]


def _pictures(sample: GallerySample, class_names: Sequence[str]) -> dict[str, str]:
    """Images shrink smoothly; masks are sampled first and painted then, so that no colour is between two classes."""
    number = len(class_names)
    picture = paint_bands(sample.bands, sample.band_names, sample.valid)
    small, truth, prediction = (_sampled(one) for one in (picture, sample.truth, sample.prediction))
    return {
        "title": sample.title,
        "note": score_note(sample, class_names),
        "image": make_thumbnail(picture, side_px=_SIDE_PX),
        "overlay": make_thumbnail(paint_overlay(picture, sample.prediction, number), side_px=_SIDE_PX),
        "prediction": make_sharp_thumbnail(paint_mask(prediction, number)),
        "truth": make_sharp_thumbnail(paint_mask(truth, number)),
        "error": make_sharp_thumbnail(paint_error(small, prediction, truth, number)),
    }


def _sampled(array: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """At most `_SIDE_PX` rows and columns of it, evenly chosen, proportions kept."""
    height, width = array.shape[:2]
    shrink = max(1.0, max(height, width) / _SIDE_PX)
    rows = ((np.arange(max(1, round(height / shrink))) + 0.5) * shrink).astype(int).clip(0, height - 1)
    columns = ((np.arange(max(1, round(width / shrink))) + 0.5) * shrink).astype(int).clip(0, width - 1)
    sampled: NDArray[np.uint8] = array[rows][:, columns]
    return sampled


def score_note(sample: GallerySample, class_names: Sequence[str]) -> str:
    """``mean IoU 81.2 %, 96.0 % of the pixels right``: over the classes that occur here, in truth or in the answer."""
    number = len(class_names)
    judged = (sample.truth < number) & (sample.prediction < number)
    if not judged.any():
        return "no labelled pixel here"
    truth, prediction = sample.truth[judged], sample.prediction[judged]
    both = np.bincount(truth[truth == prediction], minlength=number)
    either = np.bincount(truth, minlength=number) + np.bincount(prediction, minlength=number) - both
    there = either > 0
    iou, right = float((both[there] / either[there]).mean()), both.sum() / len(truth)
    return f"mean IoU {100 * iou:.1f} %, {100 * right:.1f} % of the pixels right"
