"""Square patches of scenes: where they lie, which split they are in, and what a network is shown of them.

In: inspected scenes. Out: patches with ids that never change, a manifest of them that is never overwritten, and by scene and box
their masks and their pixels: on the scene's scale, then with mean 0 and standard deviation 1 in each band, as float16. Windows
are read when asked for and nothing is kept here.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from unchoke.core import atomic, listing
from unchoke.core.boxes import Box, plan_boxes
from unchoke.core.clock import during
from unchoke.core.fingerprint import digest
from unchoke.core.remote import locate
from unchoke.jobs.cluster.file_transfer import with_paths
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.mask_sources import MaskSource
from unchoke.scenes.raster import read_box
from unchoke.scenes.scale import SceneScale, apply_scale
from unchoke.scenes.scene_facts import IGNORE, SceneFacts

MANIFEST_COLUMNS = ("patch_id", "parent_image", "bbox", "features_path", "split", "scene_id")
T = TypeVar("T", bound=Any)
NUM_TURNS = 8
"""The ways a square can be turned and mirrored, itself among them."""
_VERSION = re.compile(r"patch_manifest\.v(\d{3,})\.csv")
LIMIT = 8.0
"""Standardised values are kept within this many standard deviations: float16 holds them, and a hot pixel blinds no filter."""


@dataclass(frozen=True)
class Patch:
    """A square of a scene; at the right and lower edge its box may reach beyond. `split` is empty until it is assigned."""

    patch_id: str
    scene_id: str
    box: Box
    split: str = ""


def plan_patches(facts: Sequence[SceneFacts], *, patch_px: int, overlap_px: int) -> list[Patch]:
    """Patches that cover every scene, scene by scene, row by row; splits come later."""
    return [
        Patch(patch_id(scene.scene_id, box), scene.scene_id, box)
        for scene in facts
        for box in plan_boxes(scene.grid.height, scene.grid.width, size_px=patch_px, overlap_px=overlap_px, edges="padded")
    ]


def patch_id(scene_id: str, box: Box) -> str:
    """``<scene_id>_r<top>_c<left>``"""
    return f"{scene_id}_r{box.top}_c{box.left}"


def save_patch_manifest(
    folder: Path, patches: Sequence[Patch], *, parents: Mapping[str, str], features: Mapping[str, str]
) -> Path:
    """Write `patch_manifest.v001.csv`, or the next number; a version that says the very same is left and returned.

    `parents` maps scene ids to what the patches were cut from; `features` patch ids to the shard with their features.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(MANIFEST_COLUMNS)
    for patch in patches:
        corners = f"{patch.box.left},{patch.box.top},{patch.box.right},{patch.box.bottom}"
        place = features.get(patch.patch_id, "")
        writer.writerow([patch.patch_id, parents[patch.scene_id], corners, place, patch.split, patch.scene_id])
    content = text.getvalue().encode("utf-8")
    names = listing.names(folder, prefix="patch_manifest.v", suffix=".csv")
    versions = {int(match[1]): folder / name for name in names if (match := _VERSION.fullmatch(name))}
    for file in versions.values():
        if file.read_bytes() == content:
            return file
    file = folder / f"patch_manifest.v{max(versions, default=0) + 1:03d}.csv"
    atomic.write_bytes(file, content)
    return file


class PatchReader:
    """Pixels and masks of patches. May be used from several threads, and travels to other processes as its pool does."""

    def __init__(
        self,
        facts_by_scene: Mapping[str, SceneFacts],
        *,
        pool: HandlePool,
        scales: Mapping[str, SceneScale],
        standard: BandStandard,
        mask: MaskSource | None = None,
    ) -> None:
        self.facts = dict(facts_by_scene)
        self.pool = pool
        self.scales = dict(scales)
        self.standard = standard
        self.mask_source = mask

    def __getstate__(self) -> dict[str, Any]:
        """Whoever gets it may stand in another folder: the files of scenes are named in full."""
        names = {name for facts in self.facts.values() for name in facts.scene.paths}
        return {**vars(self), "facts": with_paths(self.facts, {name: str(locate(name).absolute()) for name in names})}

    def read(self, scene_id: str, box: Box) -> tuple[NDArray[np.float16], NDArray[np.bool_]]:
        """Standardised bands (B, h, w), 0 where not valid, and which pixels (h, w) are valid. A broken file is a `SceneError`."""
        bands, valid = read_scaled(self.facts[scene_id], box, pool=self.pool, scale=self.scales[scene_id])
        with during("transform"):
            return self.standard.apply(bands, valid), valid

    def mask(self, scene_id: str, box: Box) -> NDArray[np.uint8]:
        """The class of each pixel; 255 where none is known, the pixel is not valid, or it lies outside the scene."""
        if self.mask_source is None:
            return np.full((box.height, box.width), IGNORE, np.uint8)
        return read_mask(self.facts[scene_id], box, pool=self.pool, source=self.mask_source)


def read_scaled(
    facts: SceneFacts, box: Box, *, pool: HandlePool, scale: SceneScale
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The bands of a box on the scene's scale, and which pixels are valid."""
    bands, valid = read_box(facts, box, pool=pool)
    apply_scale(bands, scale, valid)
    return bands, valid


def read_mask(facts: SceneFacts, box: Box, *, pool: HandlePool, source: MaskSource) -> NDArray[np.uint8]:
    """The mask of a box; 255 wherever a pixel is not valid in every band."""
    bands, valid = read_box(facts, box, pool=pool)
    return source.mask(facts, box, bands, valid, pool)


@dataclass(frozen=True)
class BandStandard:
    """Mean and standard deviation of each band, in the order of the bands."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def apply(self, bands_chw: NDArray[np.float32], valid_hw: NDArray[np.bool_]) -> NDArray[np.float16]:
        """The standardised bands; `bands_chw` is worked on in place. Pixels that are not valid become 0, every band's mean."""
        bands_chw -= np.array(self.mean, np.float32)[:, None, None]
        bands_chw /= np.array(self.std, np.float32)[:, None, None]
        np.clip(bands_chw, -LIMIT, LIMIT, out=bands_chw)
        bands_chw[:, ~valid_hw] = 0
        return bands_chw.astype(np.float16)

    def to_dict(self) -> dict[str, Any]:
        return {"mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> BandStandard:
        return cls(tuple(map(float, value["mean"])), tuple(map(float, value["std"])))


def measure_standard(parts: Iterable[tuple[NDArray[np.float32], NDArray[np.bool_]]], *, num_bands: int) -> BandStandard:
    """Mean and deviation over the valid pixels of all `parts`, pairs of bands (B, h, w) and valid (h, w).

    A band that is the same everywhere keeps a deviation of 1, as do all where no pixel is valid.
    """
    count, mean, squares = 0, np.zeros(num_bands), np.zeros(num_bands)
    for bands, valid in parts:
        values = bands[:, valid].astype(np.float64)
        if added := values.shape[1]:
            # sums of squared distances are merged: exact where plain sums of squares would cancel
            total, its_mean = count + added, values.mean(axis=1)
            its_squares = ((values - its_mean[:, None]) ** 2).sum(axis=1)
            shift = its_mean - mean
            squares = squares + its_squares + shift**2 * (count * added / total)
            count, mean = total, mean + shift * (added / total)
    std = np.sqrt(squares / max(count, 1))
    std[std <= 1e-12 * np.maximum(1.0, np.abs(mean))] = 1.0
    return BandStandard(tuple(mean.tolist()), tuple(std.tolist()))


def pixels_key(facts: SceneFacts) -> str:
    """A scene's band files and how its pixels come out of them; new labels leave it as it is."""
    label = None if facts.label is None else facts.label.path
    files = [[Path(stamp.path).name, stamp.size_bytes, stamp.mtime_ns] for stamp in facts.stamps if stamp.path != label]
    return digest([files, asdict(facts.grid), list(facts.band_names), facts.resampling])


def turn(picture: T, way: int) -> T:
    """`way` 0 is the picture itself; bit 1 mirrors left and right, bit 2 top and bottom, bit 4 then swaps rows and columns."""
    turned: Any = picture
    for bit, axis in ((1, -1), (2, -2)):
        if way & bit:  # tensors have no negative steps, arrays no `flip` of their own
            turned = turned.flip(axis) if hasattr(turned, "flip") else np.flip(turned, axis)
    return turned.swapaxes(-1, -2) if way & 4 else turned  # type: ignore[no-any-return]
