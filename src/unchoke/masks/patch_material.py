"""Patches of scenes with all that training on them needs, as one value, and what their numbers depend on, as digests.

Nothing is read or written here; `segment_patches.py` makes the value, `segment_features.py` adds the features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.findings import Finding
from unchoke.core.fingerprint import digest
from unchoke.features.pyramid import PyramidSpec
from unchoke.jobs.quarantine import Quarantined
from unchoke.masks.band_standard import BandStandard
from unchoke.masks.patch_arrays import PatchArrays
from unchoke.masks.patches import Patch, PatchReader
from unchoke.scenes.scale import SceneScale
from unchoke.scenes.scene_facts import SceneFacts

if TYPE_CHECKING:
    from torch import nn

READING = "windows of scenes, scaled, standardised, clipped at 8 deviations; version 1"
"""How pixels come about, for digests."""


@dataclass
class PatchMaterial:
    """All that training on patches needs. `patches`, `arrays` and rows of features share their positions.

    `patches` are those of train, val and test only: buffer and unlabelled ones are left out. `pyramid` is the pretrained network.
    The manifest says where features lie, so it is written once they are planned; with `--cut none`, at once.
    """

    facts: list[SceneFacts]
    patches: list[Patch]
    spec: PyramidSpec
    pyramid: nn.Module
    standard: BandStandard
    scales: dict[str, SceneScale]
    reader: PatchReader
    class_names: tuple[str, ...]
    arrays: PatchArrays
    overlap_px: int
    normalise: str
    mask_facts: dict[str, Any]
    findings: list[Finding] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)
    manifest_file: Path | None = None

    @property
    def manifest(self) -> Path:
        """`patches/patch_manifest.v….csv`, once it is written."""
        if self.manifest_file is None:
            raise ValueError("the manifest is written with the features")
        return self.manifest_file

    @property
    def band_names(self) -> tuple[str, ...]:
        return self.facts[0].band_names

    @property
    def facts_by_scene(self) -> dict[str, SceneFacts]:
        return {scene.scene_id: scene for scene in self.facts}

    @property
    def digest(self) -> str:
        """Of everything a run depends on: files, masks, boxes, splits, scaling."""
        pixels = patch_contents(self)
        files = {scene.scene_id: scene.content for scene in self.facts}
        patches = [[pixels[patch.patch_id], files[patch.scene_id], patch.patch_id, patch.split] for patch in self.patches]
        rest = {"mask": self.mask_facts, "classes": list(self.class_names), "standard": self.standard.to_dict()}
        return digest([READING, patches, rest])

    def keep(self, positions: NDArray[np.int64]) -> None:
        """Leave out all other patches."""
        self.patches = [self.patches[position] for position in positions.tolist()]
        self.arrays = self.arrays.keep(positions)


def patch_contents(material: PatchMaterial) -> dict[str, str]:
    """What the pixels of each patch depend on: its scene's bands, grid and scale, and its box. Labels play no part."""
    scenes = {scene.scene_id: [pixels_key(scene), material.scales[scene.scene_id].to_dict()] for scene in material.facts}
    return {patch.patch_id: digest([*scenes[patch.scene_id], list(patch.box)])[:32] for patch in material.patches}


def pixels_key(facts: SceneFacts) -> str:
    """A scene's band files and how its pixels come out of them; new labels leave it as it is."""
    label = None if facts.label is None else facts.label.path
    files = [[Path(stamp.path).name, stamp.size_bytes, stamp.mtime_ns] for stamp in facts.stamps if stamp.path != label]
    return digest([files, asdict(facts.grid), list(facts.band_names), facts.resampling])


def parents_of(facts: Sequence[SceneFacts]) -> dict[str, str]:
    """What the patches of each scene were cut from: its file, or the first of its bands."""
    return {scene.scene_id: scene.scene.paths[0] for scene in facts}
