"""Scenes to labelled patches, ready to be encoded or trained on.

In: a session. Out: a `PatchMaterial`: scenes, patches with their splits, masks kept on disk, scales, the bands' standard and the
network's pyramid. Every choice is said with its reason; a scene that breaks is named and set aside, and the others go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core import atomic
from unchoke.core.choices import Choice
from unchoke.core.errors import DataError, MachineError, list_some
from unchoke.core.findings import Finding
from unchoke.core.fingerprint import digest, hash_int
from unchoke.core.units import format_bytes, format_count
from unchoke.data.file_findings import measure_room
from unchoke.features.cut import NONE
from unchoke.features.prepare_engine import OF_PYRAMIDS, refuse_unknown_precision
from unchoke.features.pyramid import PyramidSpec, load_pyramid
from unchoke.jobs.records import QuarantineRow
from unchoke.masks.patch_arrays import (
    PatchArrays,
    build_pixels,
    holds,
    keep_masks,
    labelled_only,
    name_classes,
    open_mask_source,
    teller,
    with_labels,
)
from unchoke.masks.patch_splits import choose_sizes, split_patches
from unchoke.masks.patches import (
    BandStandard,
    Patch,
    PatchReader,
    measure_standard,
    pixels_key,
    plan_patches,
    read_scaled,
    refuse_more_views,
    save_patch_manifest,
)
from unchoke.runs.session import Session
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.open_scenes import broken_scene, find_scenes, measure_scales, open_scenes, set_aside, warn_of
from unchoke.scenes.scale import SceneScale, sampling_text
from unchoke.scenes.scene_facts import SceneError, SceneFacts

if TYPE_CHECKING:
    from torch import nn


READING = "windows of scenes, scaled, standardised, clipped at 8 deviations; version 1"
"""How pixels come about, for digests."""
_MEASURED_PATCHES = 64
_MARGIN_BYTES = 2**30


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
    quarantined: list[QuarantineRow] = field(default_factory=list)
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


def parents_of(facts: Sequence[SceneFacts]) -> dict[str, str]:
    """What the patches of each scene were cut from: its file, or the first of its bands."""
    return {scene.scene_id: scene.scene.paths[0] for scene in facts}


def prepare_patches(session: Session) -> PatchMaterial:
    """Scan, open, cut, label, split and measure; what an earlier run kept of the same data is used again."""
    settings = session.settings
    if settings.cut != NONE:
        refuse_more_views(settings.views)
        refuse_unknown_precision(settings, OF_PYRAMIDS)
    folder = session.workspace.root / "patches"
    atomic.sweep_temporaries(folder)
    pool = HandlePool()
    with session.stage("scenes", settings.data):
        threads = session.policy.workers
        facts, findings = open_scenes(session, find_scenes(session), pool=pool, threads=threads, same_bands=True)
        warn_of(session, findings)
        source = open_mask_source(settings, facts)
        facts = with_labels(session, facts)
        normalise = settings.normalise or "none"  # bands are standardised anyway: it matters where scenes differ in brightness
        scales, broken = measure_scales(facts, normalise, pool=pool, threads=threads)
        if sampled := sampling_text(facts, normalise):
            session.chose(Choice("normalise", normalise, sampled))
    session.remember_settings()
    facts = _without(session, facts, broken)
    patch_px, overlap_px = choose_sizes(session, facts)
    with session.stage("encoder", settings.encoder):
        module, spec = load_pyramid(
            settings.encoder,
            weights=Path(settings.weights) if settings.weights else None,
            num_bands=facts[0].num_bands,
            patch_px=patch_px,
            strides=tuple(settings.strides),
        )
    patches = plan_patches(facts, patch_px=patch_px, overlap_px=overlap_px)
    kept, lost = keep_masks(session, folder, facts, patches, source, pool=pool, patch_px=patch_px)
    facts = _without(session, facts, lost)
    by_scene = {scene.scene_id: scene for scene in facts}
    kept = kept.chosen([patch.scene_id in by_scene for patch in kept.patches])
    class_names = name_classes(settings, kept)
    kept = split_patches(session, facts, labelled_only(session, kept), patch_px=patch_px, overlap_px=overlap_px)
    standard = _standard(by_scene, kept.patches, scales, pool=pool)
    reader = PatchReader(by_scene, pool=pool, scales=scales, standard=standard, mask=source)
    findings += [*broken, *lost]
    material = PatchMaterial(
        facts,
        kept.patches,
        spec,
        module,
        standard,
        scales,
        reader,
        class_names,
        kept.arrays,
        overlap_px,
        normalise=normalise,
        mask_facts=dict(source.describe()),
        findings=findings,
        quarantined=set_aside(findings),
    )
    _keep_pixels(session, folder, material)
    if settings.cut == NONE:
        material.manifest_file = save_patch_manifest(folder, material.patches, parents=parents_of(material.facts), features={})
    return material


def _without(session: Session, facts: list[SceneFacts], broken: Sequence[Finding]) -> list[SceneFacts]:
    """The scenes that findings do not keep out; each finding is said, and none left is an error."""
    warn_of(session, broken)
    names = {finding.evidence["scene"] for finding in broken}
    kept = [scene for scene in facts if scene.scene_id not in names]
    if not kept:
        raise DataError(
            "no scene is left to cut patches from",
            code="no-usable-scene",
            why=list_some([finding.message for finding in broken], limit=3),
            try_="mend the files named above and run the same command again",
        )
    return kept


def _standard(
    facts: dict[str, SceneFacts], patches: Sequence[Patch], scales: dict[str, SceneScale], *, pool: HandlePool
) -> BandStandard:
    """Mean and deviation of each band over some of the patches that train, chosen by hash."""
    train = sorted((patch for patch in patches if patch.split == "train"), key=lambda patch: hash_int("standard", patch.patch_id))

    def parts() -> Iterator[tuple[NDArray[np.float32], NDArray[np.bool_]]]:
        for patch in train[:_MEASURED_PATCHES]:
            try:
                yield read_scaled(facts[patch.scene_id], patch.box, pool=pool, scale=scales[patch.scene_id])
            except SceneError:
                continue  # the scene changed just now: reading all patches names it

    return measure_standard(parts(), num_bands=next(iter(facts.values())).num_bands)


def _keep_pixels(session: Session, folder: Path, material: PatchMaterial) -> None:
    """Standardised bands of every patch on disk, at full size; their cost is said first."""
    spec = material.spec
    content = patch_contents(material)
    items = [[patch.patch_id, content[patch.patch_id]] for patch in material.patches]
    key = digest([READING, items, material.standard.to_dict()])
    patch_bytes = 2 * spec.num_bands * spec.patch_px**2
    _tell_pixel_cost(session, patch_bytes, len(material.patches), there=holds(folder, "pixels", key))

    def read(patch: Patch) -> NDArray[np.float16]:
        return material.reader.read(patch.scene_id, patch.box)[0]

    with session.stage("pixels", format_count(len(material.patches), "patch", "patches")):
        rows, failed = build_pixels(
            folder, material.patches, read, key=key, shape=(spec.num_bands, spec.patch_px, spec.patch_px),
            threads=session.policy.workers, on_row=teller(session, "pixels", len(material.patches)),
        )  # fmt: skip
    material.arrays = replace(material.arrays, pixel_rows=rows)
    scenes = material.facts_by_scene
    lost = [broken_scene(scenes[scene_id].scene, reason, stage="pixels") for scene_id, reason in failed.items()]
    drop_scenes(session, material, lost)


def drop_scenes(session: Session, material: PatchMaterial, lost: Sequence[Finding]) -> None:
    """Leave out the scenes that findings name, with all their patches."""
    if not lost:
        return
    material.facts = _without(session, material.facts, lost)
    names = material.facts_by_scene
    material.keep(np.array([place for place, patch in enumerate(material.patches) if patch.scene_id in names], np.int64))
    material.findings += lost
    material.quarantined += set_aside(lost)


def _tell_pixel_cost(session: Session, patch_bytes: int, num_patches: int, *, there: bool) -> None:
    free_bytes = measure_room(session.workspace.root).disk_bytes
    total = patch_bytes * num_patches
    if not there and total + _MARGIN_BYTES > free_bytes:
        raise MachineError(
            f"the pixels would take {format_bytes(total)}, and {format_bytes(free_bytes)} are free at {session.workspace.root}",
            code="disk-too-small",
            why=f"{format_bytes(patch_bytes)} for each of {format_count(num_patches, 'patch', 'patches')}, "
            f"and {format_bytes(_MARGIN_BYTES)} should stay free",
            try_="another disk with --out, a smaller --overlap, or fewer --bands",
        )
    left = "all of it is there already" if there else f"{format_bytes(free_bytes)} are free"
    reason = f"float16 pixels; {format_count(num_patches, 'patch', 'patches')} take {format_bytes(total)}, {left}"
    session.chose(Choice("pixel_cache", f"{format_bytes(patch_bytes)} per patch", reason, {"total_bytes": total}))
