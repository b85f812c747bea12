"""One scene to its mask: read patches, predict them, blend them, keep finished bands, write the files.

In: an opened predictor, an inspected scene and where its mask goes. Out: the files, and a small record beside them that says what
they were made from: a mask whose record agrees is not made again. An unfinished mask is continued. Which scenes and which run is
decided elsewhere.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.ahead import map_ahead
from unchoke.core.boxes import Box
from unchoke.core.checksums import load_checked_json, save_checked_json
from unchoke.core.choices import Choice
from unchoke.core.errors import DamagedFile, DataError
from unchoke.core.findings import Finding
from unchoke.core.fingerprint import digest, digest_file
from unchoke.core.units import format_seconds
from unchoke.core.urls import is_url
from unchoke.masks.patches import PatchReader
from unchoke.masks.stitch import BandValues, StitchPlan, blend_patches, plan_batches
from unchoke.masks.trained_segmenter import READ_AHEAD, OpenPredictor, TrainedSegmenter
from unchoke.masks.write_masks import MaskFiles, PartStore, plan_files, to_part, write_masks
from unchoke.scenes.scene_facts import SceneFacts

_SCHEMA = 1
UNFINISHED = ".unfinished"
"""The folder, among the masks, of those that are still being made."""
_SHOWN = 20


@dataclass(frozen=True, eq=False)
class MaskWork:
    """A mask to be made of one scene. `made_from` is a digest of everything the mask depends on."""

    facts: SceneFacts
    plan: StitchPlan
    files: MaskFiles
    made_from: str
    run: str

    @classmethod
    def of(
        cls, facts: SceneFacts, plan: StitchPlan, folder: Path, *, depends_on: dict[str, Any], probabilities: bool, run: str
    ) -> MaskWork:
        """`depends_on` is what all masks of a run share: its weights, its engine."""
        scene = [facts.content, facts.band_names, facts.grid.width, facts.grid.height, list(facts.grid.transform), facts.grid.crs]
        made_from = digest([_SCHEMA, depends_on, scene, plan.patch_px, plan.overlap_px, probabilities])
        files = plan_files(folder, facts.scene_id, is_photo=facts.is_photo, probabilities=probabilities)
        return cls(facts, plan, files, made_from, run)

    @property
    def scene_id(self) -> str:
        return self.facts.scene_id

    @property
    def record_file(self) -> Path:
        return self.files.classes.with_name(f"{self.scene_id}.json")

    def finished(self) -> dict[str, Any] | None:
        """The record of this very mask, if its files are there as it says; None where it is to be made."""
        try:
            record: dict[str, Any] = dict(load_checked_json(self.record_file))
            sizes = {path.name: path.stat().st_size for path in self.files.paths}
            sums = {path.name: digest_file(path) for path in self.files.paths}
        except (OSError, ValueError, TypeError, DamagedFile):
            return None
        same = (record.get("made_from"), record.get("files")) == (self.made_from, sizes)
        return record if same and record.get("sha256", sums) == sums else None

    def open_parts(self, *, batch: int) -> PartStore:
        """The bands that are finished; other sizes of batches and bands round otherwise, or lie elsewhere, and are not mixed."""
        made_from = digest([self.made_from, batch, asdict(self.plan)])
        folder = self.files.classes.parent / UNFINISHED / self.scene_id
        return PartStore(folder, made_from=made_from, probabilities=self.files.probabilities is not None)


def finish_bands(
    work: MaskWork,
    parts: PartStore,
    todo: list[Box],
    *,
    reader: PatchReader,
    predictor: OpenPredictor,
    batch: int,
    on_patches: Callable[[int], None] = lambda _: None,
) -> None:
    """Predict and blend the bands in `todo` and keep each as a part. Which bands are done together changes no bit of them."""
    plan, scene_id = work.plan, work.scene_id

    def encode(boxes: list[Box]) -> tuple[list[Box], NDArray[np.bool_], NDArray[np.intp], NDArray[np.float16] | None]:
        """Patches without a valid pixel, such as those in the black corners of a scene, are not shown to the network."""
        read = [reader.read(scene_id, box) for box in boxes]
        valid = np.stack([one for _, one in read])
        shown = np.flatnonzero(valid.any(axis=(1, 2)))
        return boxes, valid, shown, predictor.encode(np.stack([read[place][0] for place in shown])) if len(shown) else None

    def predictions() -> Iterator[tuple[list[Box], BandValues]]:
        """Of every patch, in order; not-a-number where a pixel is not valid. Later batches are read meanwhile."""
        batches = plan_batches(plan, todo, batch=batch)
        threads = min(predictor.threads, READ_AHEAD)
        for boxes, valid, shown, rows in map_ahead(encode, batches, threads=threads, ahead=READ_AHEAD):
            values = np.full((len(boxes), plan.num_classes, plan.patch_px, plan.patch_px), np.nan, np.float32)
            if rows is not None:
                predicted = predictor.decode(rows)
                if not np.isfinite(predicted).all():
                    raise DataError(
                        f"the network gives no numbers for scene {scene_id}",
                        code="outputs-not-finite",
                        why="some of its outputs are infinite or not a number, which blending would spread",
                        try_="train again with --train-precision f32; or look for values in the scene that no training scene had",
                    )
                values[shown] = np.where(valid[shown][:, None], predicted, np.float32(np.nan))
            on_patches(len(boxes))
            yield boxes, values

    for band, values in blend_patches(plan, todo, predictions()):
        parts.save(band, to_part(values, probabilities=work.files.probabilities is not None))


def write_mask(work: MaskWork, parts: PartStore, trained: TrainedSegmenter) -> dict[str, Any]:
    """The files of a mask whose parts are all there, and the record that says so, which is returned."""
    class_names, colours = trained.class_names, trained.colours
    counts = write_masks(work.plan, parts, grid=work.facts.grid, class_names=class_names, files=work.files, colours=colours)
    grid, known = work.facts.grid, max(1, sum(counts.values()))
    bands = [
        {"name": one.name, "path": one.path if is_url(one.path) else str(Path(one.path).absolute()), "number": one.number}
        for one in work.facts.bands
    ]
    record = {
        "schema": _SCHEMA,
        "made_from": work.made_from,
        "run": work.run,
        "scene": work.scene_id,
        "files": {path.name: path.stat().st_size for path in work.files.paths},
        "sha256": {path.name: digest_file(path) for path in work.files.paths},
        "width": grid.width,
        "height": grid.height,
        "patch_px": work.plan.patch_px,
        "overlap_px": work.plan.overlap_px,
        "pixels": grid.width * grid.height,
        "pixels_without_class": grid.width * grid.height - sum(counts.values()),
        "classes": list(class_names),
        **({"colours": [list(one) for one in colours]} if colours else {}),
        "shares": {name: count / known for name, count in counts.items()},
        "bands": bands,
    }
    save_checked_json(work.record_file, record)
    parts.remove()
    return record


@dataclass(frozen=True)
class SegmentPredictResult:
    """The masks in the order of the scenes; `findings` name the scenes that could not be read."""

    run: str
    """The run that drew them."""
    folder: Path
    """Where the masks lie."""
    masks: list[dict[str, Any]]
    """One entry for each scene: its files, size and classes."""
    findings: list[Finding]
    """Scenes that could not be read."""
    choices: list[Choice]
    """What was chosen, with reasons."""
    timings: dict[str, float]
    """Seconds by stage."""
    patches: int
    """How many patches were run."""
    memory: dict[str, Any] = field(default_factory=dict)
    """What was planned and what was measured, in bytes."""

    @property
    def ok(self) -> bool:
        """Whether every scene was read."""
        return not any(finding.severity == "error" for finding in self.findings)

    @property
    def exit_code(self) -> int:
        """What the command exits with."""
        return 0 if self.ok else 1

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "folder": str(self.folder)}

    def to_text(self) -> str:
        lines = []
        for mask in self.masks[:_SHOWN]:
            shares = ", ".join(f"{name} {100 * share:.1f} %" for name, share in mask["shares"].items())
            how = "done before" if mask["skipped"] else format_seconds(mask["seconds"])
            lines.append(f"mask      {mask['scene']}  {mask['width']:,}×{mask['height']:,} px  {shares}  ({how})")
        if len(self.masks) > _SHOWN:
            lines.append(f"… and {len(self.masks) - _SHOWN} more: --json gives them all")
        lines += [f"failed    {finding.message}" for finding in self.findings if finding.severity == "error"]
        if self.masks and all(mask["skipped"] for mask in self.masks):
            lines.append("done      the same run and scenes gave these masks before: nothing was run")
        lines.append(f"masks     {self.folder}")
        if self.masks:
            classes = shlex.quote(str(self.masks[0]["classes"]))
            in_qgis = f"gdalinfo {classes}, or open it in QGIS: it has the scene's own grid"
            is_png = self.masks[0]["classes"].endswith(".png")
            lines.append(f"next      {f'open {classes} in any viewer; each colour is a class' if is_png else in_qgis}")
        return "\n".join(lines)
