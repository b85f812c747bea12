from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unchoke.core.boxes import Box
from unchoke.masks.grow_trees import NUM_FOLDS, fold_patches, sample_pixels
from unchoke.masks.patch_arrays import PatchArrays, build_masks, build_rows
from unchoke.masks.patches import Patch, patch_id

SIDE = 32


def make_patches(num_scenes: int, each: int, *, train: int | None = None) -> list[Patch]:
    """`each` patches of every scene; those of the first `train` scenes train, the others are for test."""
    boxes = [Box(0, SIDE * number, SIDE, SIDE) for number in range(each)]
    return [
        Patch(patch_id(f"s{scene}", box), f"s{scene}", box, "train" if train is None or scene < train else "test")
        for scene in range(num_scenes)
        for box in boxes
    ]


def make_arrays(folder: Path, patches: list[Patch]) -> PatchArrays:
    """One band that holds the number of its patch; the upper half of each mask says nothing."""
    numbers = {patch.patch_id: number for number, patch in enumerate(patches)}

    def read_mask(patch: Patch) -> NDArray[np.uint8]:
        mask = np.full((SIDE, SIDE), 255, np.uint8)
        mask[SIDE // 2 :] = numbers[patch.patch_id] % 2
        return mask

    def read(patch: Patch) -> NDArray[np.float16]:
        return np.full((1, SIDE, SIDE), numbers[patch.patch_id], np.float16)

    arrays, _ = build_masks(folder, patches, read_mask, key="0123456789", patch_px=SIDE, threads=1)
    shape, blank = (1, SIDE, SIDE), np.float16(0)
    rows, _ = build_rows(folder, "pixels", patches, read, key="0123456789", shape=shape, blank=blank, threads=1)
    return PatchArrays(arrays.mask_rows, arrays.count_rows, rows)


def test_only_labelled_training_pixels_drawn(tmp_path: Path) -> None:
    patches = make_patches(5, 2, train=4)
    sample = sample_pixels(make_arrays(tmp_path, patches), patches)
    assert set(sample.classes.tolist()) == {0, 1}
    assert set(sample.positions.tolist()) == set(range(8))
    assert len(sample.bands) == 8 * SIDE**2 // 2
    assert np.array_equal(sample.bands[:, 0], sample.positions)
    assert np.array_equal(sample.of([2]).positions, np.full(SIDE**2 // 2, 2))


def test_a_fold_has_whole_scenes_where_there_are_enough() -> None:
    patches = make_patches(7, 3, train=6)
    folds = fold_patches(patches)
    assert set(folds[18:].tolist()) == {-1}
    assert set(folds[:18].tolist()) == set(range(NUM_FOLDS))
    assert all(len(set(folds[3 * scene : 3 * scene + 3].tolist())) == 1 for scene in range(6))


def test_of_few_scenes_neighbours_share_a_fold() -> None:
    folds = fold_patches(make_patches(1, 12)).tolist()
    assert folds == sorted(folds) and set(folds) == set(range(NUM_FOLDS))
