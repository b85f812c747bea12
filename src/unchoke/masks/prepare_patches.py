"""Scenes to labelled patches, ready to be encoded or trained on.

In: a session. Out: a `PatchMaterial`: scenes, patches with their splits, masks kept on disk, scales, the bands' standard and the
network's pyramid. Every choice is reported with its reason; a scene that breaks is named and set aside, and the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core import atomic
from unchoke.core.choices import Choice
from unchoke.core.errors import DataError, MachineError, UsageError, list_some
from unchoke.core.events import Progress
from unchoke.core.findings import Finding
from unchoke.core.fingerprint import digest, hash_int
from unchoke.core.settings import Settings
from unchoke.core.units import format_bytes, format_count
from unchoke.data.file_findings import measure_room
from unchoke.features.cut import NONE
from unchoke.features.prepare_engine import OF_PYRAMIDS, refuse_unknown_precision
from unchoke.features.pyramid import PyramidSpec, load_pyramid
from unchoke.jobs.records import QuarantineRow
from unchoke.masks.patch_arrays import PatchArrays, build_masks, build_rows, holds
from unchoke.masks.patch_splits import choose_sizes, split_patches
from unchoke.masks.patches import (
    NUM_TURNS,
    BandStandard,
    Patch,
    PatchReader,
    measure_standard,
    pixels_key,
    plan_patches,
    read_mask,
    read_scaled,
    save_patch_manifest,
)
from unchoke.runs.session import Session
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.mask_sources import LabelMask, MaskSource, choose_mask
from unchoke.scenes.open_scenes import broken_scene, find_scenes, measure_scales, open_scenes, set_aside, warn_of
from unchoke.scenes.scale import SceneScale, sampling_text
from unchoke.scenes.scan_scenes import NAMING, LabelCode
from unchoke.scenes.scene_facts import IGNORE, SceneError, SceneFacts

if TYPE_CHECKING:
    from torch import nn


READING = "windows of scenes, scaled, standardised, clipped at 8 deviations; version 1"
"""How pixels come about, for digests."""
_MEASURED_PATCHES = 64
_MARGIN_BYTES = 2**30
_TELL_EVERY_S = 0.2


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
    colours: tuple[tuple[int, int, int], ...] = ()
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
        refuse_unknown_precision(settings, OF_PYRAMIDS)
        if settings.views >= NUM_TURNS:
            raise UsageError(
                f"--views {settings.views} is more than a patch has",
                code="too-many-views",
                why=f"a patch can be turned and mirrored in {NUM_TURNS} ways, itself among them",
                try_=f"--views {NUM_TURNS - 1}",
            )
    folder = session.workspace.root / "patches"
    atomic.sweep_temporaries(folder)
    pool = HandlePool()
    with session.stage("scenes", settings.data):
        threads = session.policy.workers
        scanned = find_scenes(session)
        facts, findings = open_scenes(session, scanned, pool=pool, threads=threads, same_bands=True)
        warn_of(session, findings)
        source = choose_mask(settings, band_names=facts[0].band_names, labelled=any(one.label is not None for one in facts))
        if source is None:
            raise UsageError(
                "there is nothing to learn masks from",
                code="no-masks",
                why=f"no file in {settings.label} belongs to a scene: {NAMING}"
                if settings.label
                else "no label was found beside the scenes, and neither --mask nor --polygons was given",
                try_="--label FOLDER of masks or COCO.json, --mask '(B3-B5)/(B3+B5) > 0', or --polygons FILE.geojson",
            )
        without = [one.scene_id for one in facts if one.label is None]
        if without and not (settings.mask or settings.polygons):  # only scenes with a label can teach anything
            facts = [one for one in facts if one.label is not None]
            reason = f"{format_count(len(without), 'scene')} without a label raster: {list_some(without)}"
            session.chose(Choice("scenes", format_count(len(facts), "scene"), reason, {"unlabelled": without}))
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
    arrays, lost = _keep_masks(session, folder, facts, patches, source, pool=pool, patch_px=patch_px)
    facts = _without(session, facts, lost)
    by_scene = {scene.scene_id: scene for scene in facts}
    patches, arrays = _chosen(patches, arrays, [patch.scene_id in by_scene for patch in patches])
    counts = arrays.counts()
    code = scanned.code if isinstance(source, LabelMask) else LabelCode()
    class_names = _name_classes(settings, patches, counts, code.class_names)
    labelled: NDArray[np.bool_] = np.asarray(counts[:, :IGNORE].any(axis=1))
    if unlabelled := int((~labelled).sum()):
        reason = f"{format_count(unlabelled, 'patch', 'patches')} of {len(patches):,} have no labelled pixel and are not used"
        session.chose(Choice("patches", int(labelled.sum()), reason, {"unlabelled": unlabelled}))
    patches, arrays = _chosen(patches, arrays, labelled)
    patches, arrays = split_patches(session, facts, patches, arrays, patch_px=patch_px, overlap_px=overlap_px)
    standard = _standard(by_scene, patches, scales, pool=pool)
    reader = PatchReader(by_scene, pool=pool, scales=scales, standard=standard, mask=source)
    findings += [*broken, *lost]
    material = PatchMaterial(
        facts,
        patches,
        spec,
        module,
        standard,
        scales,
        reader,
        class_names,
        arrays,
        overlap_px,
        normalise=normalise,
        mask_facts=dict(source.describe()),
        colours=code.colours if len(code.colours) == len(class_names) else (),
        findings=findings,
        quarantined=set_aside(findings),
    )
    _keep_pixels(session, folder, material)
    if settings.cut == NONE:
        material.manifest_file = save_patch_manifest(folder, material.patches, parents=parents_of(material.facts), features={})
    return material


def _chosen(
    patches: list[Patch], arrays: PatchArrays, wanted: Sequence[bool] | NDArray[np.bool_]
) -> tuple[list[Patch], PatchArrays]:
    """Those for which `wanted` is true."""
    positions = np.flatnonzero(np.asarray(wanted, bool))
    return [patches[position] for position in positions.tolist()], arrays.keep(positions)


def _without(session: Session, facts: list[SceneFacts], broken: Sequence[Finding]) -> list[SceneFacts]:
    """The scenes that findings do not keep out; each finding is reported, and none left is an error."""
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


def _keep_masks(
    session: Session,
    folder: Path,
    facts: Sequence[SceneFacts],
    patches: list[Patch],
    source: MaskSource,
    *,
    pool: HandlePool,
    patch_px: int,
) -> tuple[PatchArrays, list[Finding]]:
    """The masks of all patches, and a finding for every scene that broke while they were read."""
    by_scene = {scene.scene_id: scene for scene in facts}
    scenes = {scene.scene_id: digest([scene.content, pixels_key(scene)]) for scene in facts}
    boxes = [[patch.patch_id, list(patch.box), scenes[patch.scene_id]] for patch in patches]
    key = digest(["masks, version 1", boxes, dict(source.describe())])

    def read(patch: Patch) -> NDArray[np.uint8]:
        return read_mask(by_scene[patch.scene_id], patch.box, pool=pool, source=source)

    with session.stage("masks", format_count(len(patches), "patch", "patches")):
        tell, threads = progress_of(session, "masks", len(patches)), session.policy.workers
        arrays, failed = build_masks(folder, patches, read, key=key, patch_px=patch_px, threads=threads, on_row=tell)
    return arrays, [broken_scene(by_scene[scene_id].scene, reason, stage="masks") for scene_id, reason in failed.items()]


def progress_of(session: Session, stage: str, total: int) -> Callable[[int], None]:
    """Reports how far a stage is, a few times a second."""
    started = told = time.monotonic()

    def tell(done: int) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told > _TELL_EVERY_S or done == total:
            rate = done / max(now - started, 1e-6)
            session.on_event(Progress(stage, done, total, "patches", rate, (total - done) / rate))
            told = now

    return tell


def _name_classes(
    settings: Settings, patches: Sequence[Patch], counts: NDArray[np.int64], known: tuple[str, ...]
) -> tuple[str, ...]:
    """The classes 0, 1, …: as named in the settings, else by the labels (`known`), or as many as there are."""
    found, names = np.flatnonzero(counts[:, :IGNORE].any(axis=0)).tolist(), settings.classes
    if names and (not 2 <= len(names) <= IGNORE or len(set(names)) < len(names)):
        raise UsageError(
            f"--classes names {format_count(len(names), 'class', 'classes')}, {len(set(names))} of them different",
            code="bad-class-names",
            why=f"there must be 2 to {IGNORE} classes, each with a name of its own",
            try_="--classes clear,cloud",
        )
    if names and (above := [value for value in found if value >= len(names)]):
        scene_id = patches[int(np.flatnonzero(counts[:, above[0]])[0])].scene_id
        raise DataError(
            f"the labels of scene {scene_id} hold the value {above[0]}",
            code="label-out-of-range",
            why=f"--classes names {len(names)}, so that values may be 0 to {len(names) - 1}",
            try_=f"name all classes, or leave that value out with --ignore {above[0]}",
        )
    if names:
        return tuple(names)
    if not found:
        raise DataError(
            "no pixel of any scene has a label",
            code="no-labelled-pixels",
            why="every pixel is outside the labels, not valid, or has the value to be ignored",
            try_="check that labels and scenes lie in the same place, and what --ignore says",
        )
    if known:
        return known
    if (settings.mask or settings.polygons) and not settings.polygon_class:
        return ("background", "mask")
    if found == [0]:
        raise DataError(
            "every labelled pixel is of class 0",
            code="single-class",
            why="there is nothing to tell apart",
            try_="give labels with at least two values, or name the classes with --classes",
        )
    return tuple(f"class {number}" for number in range(found[-1] + 1))


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
    """Standardised bands of every patch on disk, at full size; their cost is reported first."""
    spec, content, num_patches = material.spec, patch_contents(material), len(material.patches)
    items = [[patch.patch_id, content[patch.patch_id]] for patch in material.patches]
    key = digest([READING, items, material.standard.to_dict()])
    patch_bytes = 2 * spec.num_bands * spec.patch_px**2
    free_bytes, total_bytes = measure_room(session.workspace.root).disk_bytes, patch_bytes * num_patches
    there, of_patches = holds(folder, "pixels", key), format_count(num_patches, "patch", "patches")
    if not there and total_bytes + _MARGIN_BYTES > free_bytes:
        raise MachineError(
            f"the pixels would take {format_bytes(total_bytes)}, "
            f"and {format_bytes(free_bytes)} are free at {session.workspace.root}",
            code="disk-too-small",
            why=f"{format_bytes(patch_bytes)} for each of {of_patches}, and {format_bytes(_MARGIN_BYTES)} should stay free",
            try_="another disk with --out, a smaller --overlap, or fewer --bands",
        )
    left = "all of it is there already" if there else f"{format_bytes(free_bytes)} are free"
    reason = f"float16 pixels; {of_patches} take {format_bytes(total_bytes)}, {left}"
    session.chose(Choice("pixel_cache", f"{format_bytes(patch_bytes)} per patch", reason, {"total_bytes": total_bytes}))

    def read(patch: Patch) -> NDArray[np.float16]:
        return material.reader.read(patch.scene_id, patch.box)[0]

    shape = (spec.num_bands, spec.patch_px, spec.patch_px)
    with session.stage("pixels", of_patches):
        tell, threads = progress_of(session, "pixels", num_patches), session.policy.workers
        rows, failed = build_rows(
            folder, "pixels", material.patches, read, key=key, shape=shape, blank=np.float16(0), threads=threads, on_row=tell
        )
    material.arrays = replace(material.arrays, pixel_rows=rows)
    if failed:
        scenes = {scene.scene_id: scene.scene for scene in material.facts}
        lost = [broken_scene(scenes[scene_id], reason, stage="pixels") for scene_id, reason in failed.items()]
        material.facts = _without(session, material.facts, lost)
        names = {scene.scene_id for scene in material.facts}
        material.keep(np.array([place for place, patch in enumerate(material.patches) if patch.scene_id in names], np.int64))
        material.findings += lost
        material.quarantined += set_aside(lost)
