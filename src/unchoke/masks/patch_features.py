"""Patches of scenes through the frozen pyramid: what `features/extraction.py` does for photos, done for patches.

In: a session and a `PatchMaterial`. Out: an `Extraction` whose rows follow the material's patches. A scene that breaks on the way
is named, its patches are set aside, and the others go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.clock import during
from unchoke.core.errors import DataError, list_some
from unchoke.core.findings import Finding
from unchoke.core.units import format_count
from unchoke.features.extraction import Extraction, InputSet, extract
from unchoke.features.prepare_engine import OF_PYRAMIDS, prepare_engine, sample_inputs
from unchoke.features.pyramid import Pyramid
from unchoke.features.recipe import PatchRecipe
from unchoke.masks.patches import Patch, PatchReader, save_patch_manifest, turn
from unchoke.masks.prepare_patches import READING, PatchMaterial, parents_of, patch_contents
from unchoke.runs.session import Session
from unchoke.scenes.open_scenes import set_aside, warn_of
from unchoke.scenes.scene_facts import SceneError


def extract_pyramids(session: Session, material: PatchMaterial) -> Extraction:
    """Encode whatever is not cached yet, and open the store. Patches that cannot be read leave the material, with a finding."""
    pyramid = Pyramid(material.pyramid, material.spec)
    patches = {patch.patch_id: patch for patch in material.patches}
    with session.stage("engine", session.settings.encoder):
        sample = partial(sample_inputs, pyramid, patches, PatchInputs(material.reader, patches))
        engine, _ = prepare_engine(session, pyramid, sample, rules=OF_PYRAMIDS, shown="patches")
    recipe = PatchRecipe(
        material.spec,
        READING,
        material.band_names,
        material.standard.to_dict(),
        engine.name,
        engine.precision,
        session.settings.views,
    )
    contents = patch_contents(material)
    inputs = InputSet(
        recipe,
        list(patches),
        [contents[patch_id] for patch_id in patches],
        PatchInputs(material.reader, patches, recipe.num_views),
        may_pass=lambda _: True,
        network=lambda: pyramid,
    )
    extraction = extract(session, inputs, engine)
    parents = parents_of(material.facts)
    if not extraction.present.all():  # those that could not be read are reported scene by scene
        reasons: dict[str, list[str]] = {}
        for position in np.flatnonzero(~extraction.present).tolist():
            patch = material.patches[position]
            reasons.setdefault(patch.scene_id, []).append(extraction.failed[patch.patch_id])
        findings = [
            Finding(
                "broken-scene",
                f"{format_count(len(why), 'patch', 'patches')} of scene {scene_id} could not be read: {why[0]}",
                severity="error",
                path=parents[scene_id],
                stage="extract",
                evidence={"scene": scene_id, "patches": len(why)},
                fix="mend the file and run the same command again",
            )
            for scene_id, why in reasons.items()
        ]
        warn_of(session, findings)
        material.keep(np.flatnonzero(extraction.present))
        material.findings += findings
        material.quarantined += set_aside(findings)
        if not any(patch.split == "train" for patch in material.patches):
            raise DataError(
                "no patch is left to train on",
                code="no-training-patches",
                why=list_some([finding.message for finding in findings], limit=3),
                try_="mend the files named above and run the same command again",
            )
    root, placement = session.workspace.root, extraction.placement
    shards = [shard.relative_to(root).as_posix() for shard in placement.shards]
    places = zip(material.patches, placement.shard_of.tolist(), strict=True)
    features = {patch.patch_id: shards[shard] for patch, shard in places}
    material.manifest_file = save_patch_manifest(root / "patches", material.patches, parents=parents, features=features)
    return extraction


@dataclass(frozen=True)
class PatchInputs:
    """Reads patches for an `Extractor`: the window of each, then the same turned and mirrored for its further views."""

    reader: PatchReader
    patches: Mapping[str, Patch]
    num_views: int = 1

    def __call__(self, patch_id: str, _content: str) -> list[NDArray[Any]] | str:
        """The planned content is not looked at: the reader itself notices files that changed."""
        patch = self.patches.get(patch_id)
        if patch is None:
            return "it is no longer among the patches"
        try:
            with during("read"):
                pixels = self.reader.read(patch.scene_id, patch.box)[0]
        except SceneError as error:
            return f"{error.what}: {error.why}"
        return [turn(pixels, view) for view in range(self.num_views)]
