"""Where the classes of patches come from: the mask source, the masks themselves, and the classes' names.

In: opened scenes and patches. Out: masks kept on disk, one for each patch, and what the classes are called. A scene that breaks
while its masks are read becomes a finding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unchoke.core.choices import Choice
from unchoke.core.errors import DataError, UsageError, list_some
from unchoke.core.events import Progress
from unchoke.core.findings import Finding
from unchoke.core.fingerprint import digest
from unchoke.core.settings import Settings
from unchoke.core.units import format_count
from unchoke.masks.patch_arrays import PatchArrays, build_masks
from unchoke.masks.patch_material import pixels_key
from unchoke.masks.patches import Patch, read_mask
from unchoke.runs.session import Session
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.mask_sources import MaskSource, choose_mask
from unchoke.scenes.scene_facts import IGNORE, SceneFacts

_TELL_EVERY_S = 0.2


@dataclass(frozen=True)
class KeptPatches:
    """Patches and what is kept of each, at the same positions."""

    patches: list[Patch]
    arrays: PatchArrays

    def chosen(self, wanted: Sequence[bool] | NDArray[np.bool_]) -> KeptPatches:
        """Those for which `wanted` is true."""
        positions = np.flatnonzero(np.asarray(wanted, bool))
        return KeptPatches([self.patches[position] for position in positions.tolist()], self.arrays.keep(positions))


def open_mask_source(settings: Settings, facts: Sequence[SceneFacts]) -> MaskSource:
    labelled = any(scene.label is not None for scene in facts)
    source = choose_mask(settings, band_names=facts[0].band_names, labelled=labelled)
    if source is None:
        raise UsageError(
            "there is nothing to learn masks from",
            why="no label raster was found beside the scenes, and neither --mask nor --polygons was given",
            try_="--label FOLDER of rasters, --mask '(B3-B5)/(B3+B5) > 0', or --polygons FILE.geojson",
        )
    return source


def with_labels(session: Session, facts: list[SceneFacts]) -> list[SceneFacts]:
    """Where labels are rasters, only the scenes that have one can teach anything."""
    if session.settings.mask or session.settings.polygons:
        return facts
    kept = [scene for scene in facts if scene.label is not None]
    if len(kept) < len(facts):
        without = [scene.scene_id for scene in facts if scene.label is None]
        reason = f"{format_count(len(without), 'scene')} without a label raster: {list_some(without)}"
        session.chose(Choice("scenes", format_count(len(kept), "scene"), reason, {"unlabelled": without}))
    return kept


def keep_masks(
    session: Session,
    folder: Path,
    facts: Sequence[SceneFacts],
    patches: list[Patch],
    source: MaskSource,
    *,
    pool: HandlePool,
    patch_px: int,
) -> tuple[KeptPatches, list[Finding]]:
    """The masks of all patches, and a finding for every scene that broke while they were read."""
    by_scene = {scene.scene_id: scene for scene in facts}
    scenes = {scene.scene_id: digest([scene.content, pixels_key(scene)]) for scene in facts}
    boxes = [[patch.patch_id, list(patch.box), scenes[patch.scene_id]] for patch in patches]
    key = digest(["masks, version 1", boxes, dict(source.describe())])

    def read(patch: Patch) -> NDArray[np.uint8]:
        return read_mask(by_scene[patch.scene_id], patch.box, pool=pool, source=source)

    with session.stage("masks", format_count(len(patches), "patch", "patches")):
        arrays, failed = build_masks(
            folder, patches, read, key=key, patch_px=patch_px, threads=session.policy.workers,
            on_row=teller(session, "masks", len(patches)),
        )  # fmt: skip
    return KeptPatches(patches, arrays), [lost_scene(by_scene[scene_id], reason) for scene_id, reason in failed.items()]


def lost_scene(facts: SceneFacts, reason: str) -> Finding:
    return Finding(
        "broken-scene",
        f"scene {facts.scene_id} is set aside: {reason}",
        severity="error",
        path=facts.scene.paths[0],
        stage="masks",
        evidence={"scene": facts.scene_id},
        fix="mend the file and run the same command again",
    )


def teller(session: Session, stage: str, total: int) -> Callable[[int], None]:
    """Says how far a stage is, a few times a second."""
    started = told = time.monotonic()

    def tell(done: int) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told > _TELL_EVERY_S or done == total:
            rate = done / max(now - started, 1e-6)
            session.on_event(Progress(stage, done, total, "patches", rate, (total - done) / rate))
            told = now

    return tell


def name_classes(settings: Settings, kept: KeptPatches) -> tuple[str, ...]:
    """The classes 0, 1, …: as named in the settings, or as many as the labels have."""
    counts = kept.arrays.counts()
    found = np.flatnonzero(counts[:, :IGNORE].any(axis=0)).tolist()
    if settings.classes:
        _refuse_unnamed(settings.classes, found, kept.patches, counts)
        return settings.classes
    if not found:
        raise DataError(
            "no pixel of any scene has a label",
            why="every pixel is outside the labels, not valid, or has the value to be ignored",
            try_="check that labels and scenes lie in the same place, and what --ignore says",
        )
    if (settings.mask or settings.polygons) and not settings.polygon_class:
        return ("background", "mask")
    if found == [0]:
        raise DataError(
            "every labelled pixel is of class 0",
            why="there is nothing to tell apart",
            try_="give labels with at least two values, or name the classes with --classes",
        )
    return tuple(f"class {number}" for number in range(found[-1] + 1))


def _refuse_unnamed(names: Sequence[str], found: Sequence[int], patches: Sequence[Patch], counts: NDArray[np.int64]) -> None:
    """Names must be two at least, 255 at most, each its own, and enough for the values that labels have."""
    if not 2 <= len(names) <= IGNORE or len(set(names)) < len(names):
        raise UsageError(
            f"--classes names {format_count(len(names), 'class', 'classes')}, {len(set(names))} of them different",
            why=f"there must be 2 to {IGNORE} classes, each with a name of its own",
            try_="--classes clear,cloud",
        )
    if above := [value for value in found if value >= len(names)]:
        scene_id = patches[int(np.flatnonzero(counts[:, above[0]])[0])].scene_id
        raise DataError(
            f"the labels of scene {scene_id} hold the value {above[0]}",
            why=f"--classes names {len(names)}, so that values may be 0 to {len(names) - 1}",
            try_=f"name all classes, or leave that value out with --ignore {above[0]}",
        )


def labelled_only(session: Session, kept: KeptPatches) -> KeptPatches:
    """Only patches with at least one labelled, valid pixel."""
    labelled = kept.arrays.counts()[:, :IGNORE].sum(axis=1) > 0
    if not labelled.all():
        without = int((~labelled).sum())
        reason = f"{format_count(without, 'patch', 'patches')} of {len(kept.patches):,} have no labelled pixel and are not used"
        session.chose(Choice("patches", int(labelled.sum()), reason, {"unlabelled": without}))
    return kept.chosen(labelled)
