"""The plain serial way to cut tiles, as a notebook does it: the yardstick of `unchoke profile tile`, never used to make tiles.

In: a scene's facts, its scale and its mask. Out: one NPZ for each window. For every window every band is opened, read, divided
and closed again; the mask is made, and `np.savez_compressed` writes bands and mask alone. Each stage is a function of its own, so
that a profile can tell them apart: numpy's operators are no calls that it would see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.io import DatasetReader
from rasterio.windows import Window

from unchoke.core.boxes import Box
from unchoke.core.stages import Marker
from unchoke.core.urls import is_url
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.mask_sources import MaskSource
from unchoke.scenes.raster import read_box
from unchoke.scenes.scale import SceneScale
from unchoke.scenes.scene_facts import BandFacts, SceneFacts

_FILE = "scenes/tiling/plain_tile.py"
PLAIN_MARKERS = (
    Marker("open", "rasterio/__init__.py", "open"),
    Marker("open", "scenes/handles.py", "open", counted=False),
    Marker("open", _FILE, "open_band", counted=False),
    Marker("open", _FILE, "close_band", counted=False),
    Marker("read", _FILE, "read_band"),
    Marker("normalise", _FILE, "normalise"),
    Marker("mask", _FILE, "make_mask"),
    Marker("write", _FILE, "save_tile"),
)


@dataclass(frozen=True)
class PlainTiler:
    """What the plain way needs to know of one scene."""

    facts: SceneFacts
    scale: SceneScale
    mask: MaskSource | None
    folder: Path

    def run(self, boxes: Sequence[Box]) -> list[Path]:
        """Write the tiles of these windows, one after the other; their files in the same order."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return [self.tile(box) for box in boxes]

    def tile(self, box: Box) -> Path:
        """One window from opening its files to its own file."""
        bands, valid = self._read(box)
        mask = None if self.mask is None else make_mask(self.mask, self.facts, box, bands, valid)
        bands = normalise(bands, self.scale, valid)
        path = self.folder / f"{self.facts.scene_id}_{box.top}_{box.left}.npz"
        save_tile(path, {"bands": bands} if mask is None else {"bands": bands, "mask": mask})
        return path

    def _read(self, box: Box) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Bands as physical values, and where all of them are valid; what lies beyond the scene is not."""
        grid = self.facts.grid
        inside = box.within(grid.height, grid.width)
        place = inside.slices_in(box)
        bands = np.zeros((len(self.facts.bands), box.height, box.width), np.float32)
        valid = np.zeros((box.height, box.width), np.bool_)
        valid[place] = True
        for number, band in enumerate(self.facts.bands):
            opened = open_band(band)
            bands[number][place], seen = read_band(opened, band, self.facts, inside)
            valid[place] &= seen
            close_band(opened)
        return bands, valid


def open_band(band: BandFacts) -> DatasetReader | HandlePool:
    """The band's file; for one that is fetched, resampled or turned upright a pool of its own, which opens it when read."""
    if band.warped or band.upright or is_url(band.path):
        return HandlePool(limit=2)
    return rasterio.open(band.path)


def read_band(
    opened: DatasetReader | HandlePool, band: BandFacts, facts: SceneFacts, inside: Box
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """One window of one band as physical values, and where it is valid."""
    if isinstance(opened, HandlePool):
        values, valid = read_box(replace(facts, bands=(band,)), inside, pool=opened)
        return values[0], valid
    top, left = band.origin
    window = Window(inside.left + left, inside.top + top, inside.width, inside.height)
    stored = opened.read(band.number, window=window)
    physical = stored.astype(np.float32)
    if band.scale != 1 or band.offset != 0:
        physical = physical * np.float32(band.scale) + np.float32(band.offset)
    valid = np.isfinite(stored) if stored.dtype.kind == "f" else np.ones(stored.shape, np.bool_)
    if band.nodata is not None:
        valid &= stored != band.nodata
    if band.masked:
        valid &= opened.read_masks(band.number, window=window) > 0
    return physical, valid


def close_band(opened: DatasetReader | HandlePool) -> None:
    opened.close()


def make_mask(
    mask: MaskSource, facts: SceneFacts, box: Box, bands: NDArray[np.float32], valid: NDArray[np.bool_]
) -> NDArray[np.uint8]:
    """The window's mask; a label's file is opened for this window alone, as the bands are."""
    pool = HandlePool(limit=4)
    try:
        return mask.mask(facts, box, bands, valid, pool)
    finally:
        pool.close()


def normalise(bands: NDArray[np.float32], scale: SceneScale, valid: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Divide by the scene's scale; what is not valid becomes 0."""
    low = np.array(scale.low, np.float32)[:, None, None]
    divide = np.array(scale.divide, np.float32)[:, None, None]
    scaled: NDArray[np.float32] = (bands - low) / divide if low.any() else bands / divide
    if scale.kind == "percentile":
        scaled = scaled.clip(0, 1)
    if not valid.all():
        scaled[:, ~valid] = 0
    return scaled


def save_tile(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]  # unchoke: ignore[compressed-npz]  the plain way, to be timed
