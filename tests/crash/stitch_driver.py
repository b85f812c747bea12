"""A driver to be killed: stitches a mask from a cheap network that takes its time, and writes it. Usage: FOLDER."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from unchoke.core.boxes import Box
from unchoke.masks.stitch import BandValues, StitchPlan, stitch
from unchoke.masks.write_masks import PartStore, plan_files, to_part, write_masks
from unchoke.scenes.scene_facts import Grid

NAMES = ("land", "water")
PLAN = StitchPlan(height=700, width=900, patch_px=64, overlap_px=16, num_classes=2, strip_px=256, band_px=128)
GRID = Grid(900, 700, (10.0, 0.0, 500_000.0, 0.0, -10.0, 5_200_000.0), "")


def predict(patches: list[Box]) -> BandValues:
    """Neighbours disagree, so that a patch that is missing or added twice would show."""
    time.sleep(0.004)
    found = [np.random.default_rng([one.top, one.left]).random((2, one.height, one.width), np.float32) for one in patches]
    return np.stack(found)


def main(folder: Path) -> None:
    parts = PartStore(folder / "unfinished", made_from="the same every time", probabilities=True)
    for band, values in stitch(PLAN, predict, batch=4, done=parts.done):
        parts.save(band, to_part(values, probabilities=True))
    files = plan_files(folder, "scene", is_photo=False, probabilities=True)
    write_masks(PLAN, parts, grid=GRID, class_names=NAMES, files=files)
    parts.remove()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
