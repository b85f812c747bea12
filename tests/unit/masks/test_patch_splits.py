from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from unchoke.core.boxes import plan_boxes
from unchoke.masks.patch_arrays import PatchArrays, build_masks
from unchoke.masks.patch_splits import LabelReach, measure_reach
from unchoke.masks.patches import Patch, patch_id

SIDE = 256


def arrays_of(folder: Path, labels: NDArray[np.uint8], *, patch_px: int = 64) -> tuple[PatchArrays, list[Patch]]:
    boxes = plan_boxes(*labels.shape, size_px=patch_px, overlap_px=16, edges="padded")
    patches = [Patch(patch_id("s", box), "s", box) for box in boxes]

    def read(patch: Patch) -> NDArray[np.uint8]:
        mask = np.full((patch_px, patch_px), 255, np.uint8)
        own = labels[patch.box.top : patch.box.bottom, patch.box.left : patch.box.right]
        mask[: own.shape[0], : own.shape[1]] = own
        return mask

    arrays, _ = build_masks(folder, patches, read, key="0123456789", patch_px=patch_px, threads=1)
    return arrays, patches


def reach(folder: Path, labels: NDArray[np.uint8]) -> LabelReach | None:
    return measure_reach(*arrays_of(folder, labels), {"s": labels.shape})


@pytest.mark.parametrize("cell_px", [8, 16, 32])
def test_random_cells_reach_as_far_as_they_are_large(tmp_path: Path, cell_px: int) -> None:
    coarse = np.random.default_rng(cell_px).integers(0, 2, (SIDE // cell_px, SIDE // cell_px), np.uint8)
    found = reach(tmp_path, np.kron(coarse, np.ones((cell_px, cell_px), np.uint8)))
    assert found is not None and not found.at_least
    assert 0.4 * cell_px <= found.pixels <= cell_px


def test_noise_reaches_no_further_than_its_neighbour(tmp_path: Path) -> None:
    found = reach(tmp_path, np.random.default_rng(0).integers(0, 3, (SIDE, SIDE), np.uint8))
    assert found == LabelReach(1)


def test_two_halves_reach_over_the_scene(tmp_path: Path) -> None:
    labels = np.zeros((SIDE, SIDE), np.uint8)
    labels[:, SIDE // 2 :] = 1
    found = reach(tmp_path, labels)
    assert found is not None and found.pixels > SIDE // 4


def test_one_class_alone_has_no_reach(tmp_path: Path) -> None:
    assert reach(tmp_path, np.ones((SIDE, SIDE), np.uint8)) is None
    assert reach(tmp_path / "b", np.full((SIDE, SIDE), 255, np.uint8)) is None
