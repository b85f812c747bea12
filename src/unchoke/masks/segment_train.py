"""`segment train`: from scenes with labels to a trained segmenter, judged on stitched masks, recorded like any other run.

Owns the workspace, does what is missing, and says what it found. Run again after a kill, it goes on from what is there.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from unchoke import __version__
from unchoke.core import atomic
from unchoke.core.choices import Choice
from unchoke.core.errors import Interrupted, MachineError, UsageError
from unchoke.core.events import OnEvent
from unchoke.core.record import DataRecord, EncoderRecord, PatchesRecord, RunRecord, TaskRecord
from unchoke.core.settings import OF_TILES, flag
from unchoke.core.units import format_count, format_seconds
from unchoke.core.workspace import DEFAULT_ROOT, out_option
from unchoke.features.cut import BLOCKS, END, NONE
from unchoke.features.extraction import Extraction
from unchoke.jobs.records import save_quarantine
from unchoke.machine.backend import torch_device
from unchoke.masks.grow_trees import baseline_seconds, grow_baseline, keep_scores
from unchoke.masks.judge_masks import FEWEST_SCENES, JUDGED, MaskScores, Predict, judge_expression, judge_material, judge_trees
from unchoke.masks.mask_job import shown_pixels, shown_rows
from unchoke.masks.mask_objective import ious
from unchoke.masks.mask_pictures import build_gallery, choose_samples, stitched_samples
from unchoke.masks.mask_trainer import MaskTrainer, judge_spreads
from unchoke.masks.patch_features import extract_pyramids
from unchoke.masks.pixel_trees import PixelScorer
from unchoke.masks.prepare_patches import PatchMaterial, prepare_patches
from unchoke.masks.segmenter import PYRAMID, WHOLE
from unchoke.masks.trained_segmenter import HEAD_FILE, TrainedSegmenter, load_segmenter
from unchoke.runs.experiment_store import RunRow
from unchoke.runs.session import Session, open_session
from unchoke.scenes.expression import parse_expression
from unchoke.training.build_record import TrainingOutcome, as_typed, build_record
from unchoke.training.network.distributed import taking_part
from unchoke.training.results import FitResult, FollowerResult
from unchoke.training.run_training import Trainer, keeping_stretches, record_run
from unchoke.training.step_profiler import profiled_if_asked

_BATCH = 8
"""Patches that are judged at once."""
_TREES_JUDGED_ON = 256
_TREES_GAIN = 0.02
"""Trees join the decoder if their mean IoU is above that of the commonest class by this."""
_LONGEST_BASELINE_S = 300.0
_WHOLE_PHOTO_PX = 1 << 20
"""Photos up to this size are shown as a whole."""


class SegmentResult(FitResult):
    """A recorded run that draws masks."""

    def to_dict(self) -> dict[str, Any]:
        record = self.record
        beside = {"baseline": record.get("baseline"), "pixel_baselines": record.get("pixel_baselines", [])}
        return {**super().to_dict(), **beside, "patches": record["data"]["patches"]}

    def to_text(self) -> str:
        return self.text_with(f"unchoke segment predict {self.run} SCENES{out_option(self.workspace)}")


def segment_train(
    data: str | Path | None = None,
    *,
    out: str | Path | None = None,
    on_event: OnEvent | None = None,
    notes: Sequence[str] = (),
    **options: Any,
) -> FitResult:
    """Train a decoder on the encoder's cached pyramids of patches (or, with `cut="none"`, the whole network).

    Args:
        data: Band files or multi-band files in folders, a large image, or a table. Left out, what this workspace was made for.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.
        notes: Shown in the report: what a reader must know of the labels.

    Returns:
        The run, a `SegmentResult`: its name, folder, report and record.

    Example:
        >>> unchoke.segment_train("scenes/", out="drawn", mask="red > green", patch_size=64, overlap=0, epochs=1).run
        'exp_1'
    """
    with taking_part() as part:
        if part.follows:
            return FollowerResult(workspace=Path(out or DEFAULT_ROOT), rank=part.follow())
        with (
            open_session({"data": data, **options}, out=out, on_event=on_event, part=part) as session,
            keeping_stretches(session),
        ):
            return _train(session, notes)


def _train(session: Session, notes: Sequence[str]) -> SegmentResult:
    settings = session.settings
    unused = [name for name in ("mixup", "label_smoothing", "grad_ckpt", "sweep", "head", "folds") if getattr(settings, name)]
    if unused:  # from a preset or from Python
        raise UsageError(
            f"{' and '.join(map(flag, unused))} cannot be used for masks",
            code="option-not-for-masks",
            why="masks are not mixed or smoothed, decoders keep what they computed, and splits are spatial",
            try_=f"leave {'it' if len(unused) == 1 else 'them'} out",
        )
    if settings.cut not in (BLOCKS, END, PYRAMID, NONE):
        raise UsageError(
            f"--cut {settings.cut} is not for masks",
            code="option-not-for-masks",
            why="the encoder's maps are cached at several depths at once: either all of it is frozen, or nothing",
            try_="--cut pyramid (the default), or --cut none to train the whole network",
        )
    material = prepare_patches(session)
    if settings.baseline is not None:
        parse_expression(settings.baseline, material.facts[0].band_names)  # refused before hours of training, not after
    kept = save_quarantine(session.workspace.quarantine_file, material.quarantined)
    if kept:
        session.warn(f"{format_count(len(kept), 'scene')} set aside, see {session.workspace.quarantine_file}")
    features = None if settings.cut == WHOLE else extract_pyramids(session, material)
    session.remember_settings()
    trees = _grow(session, material)
    trainer = MaskTrainer(session, material, features, trees)
    record, already_done = _run(session, material, features, trees, trainer, notes)
    return SegmentResult(record, session.workspace.root, already_done)


def _grow(session: Session, material: PatchMaterial) -> PixelScorer | None:
    """Trees over single pixels that the decoder begins with; None where they know no more than the commonest class does.

    That is judged on val patches, or on those that train, each scored by trees that have not seen it. Without scikit-learn it is
    said that they are lacking.
    """
    try:
        trees = keep_scores(session, material)
    except MachineError as error:
        session.warn(f"{error.what}; the decoder goes without the trees, and is not compared with them: {error.try_}")
        trees = None
    if trees is not None:
        names, patches = material.class_names, material.patches
        split = "val" if any(patch.split == "val" for patch in patches) else "train"
        places = np.array([place for place, patch in enumerate(patches) if patch.split == split][:_TREES_JUDGED_ON], np.int64)
        reached = max(judge_spreads(material.arrays, places, len(names)).values())
        counts = material.arrays.counts(places)[:, : len(names)].sum(axis=0)
        constant = float(counts.max() / max(1, counts.sum()) / max(1, (counts > 0).sum()))
        if reached < constant + _TREES_GAIN:
            trees = None
            material.arrays = replace(material.arrays, score_rows=None)
        said = f"the trees' mean IoU on {split} patches is {reached:.3f}, that of the commonest class {constant:.3f}"
        session.chose(Choice("pixel_trees", "none" if trees is None else "join", said))
    sees = "maps, bands" if trees is None else "maps, bands, trees"
    reason = (
        "maps begin at a fraction of the size and lose each pixel's spectrum: the bands and what trees make of them join last"
    )
    session.chose(Choice("decoder_sees", sees, reason, {"claim": "Masks of scenes, docs/claims-history.md"}))
    return trees


def _run(
    session: Session,
    material: PatchMaterial,
    features: Extraction | None,
    trees: PixelScorer | None,
    trainer: Trainer,
    notes: Sequence[str],
) -> tuple[RunRecord, bool]:
    """Train, judge and record; return the record, and whether it was there already."""

    def make(run: RunRow, folder: Path) -> tuple[RunRecord, Interrupted | None]:
        with profiled_if_asked(session, run.name) as profiled, session.stage("train", trainer.detail):
            trained = trainer.train(folder)
        trained.save(folder / HEAD_FILE, {"unchoke": __version__})
        segmenter = load_segmenter(folder)
        with session.stage("evaluate", "stitched masks"):
            predict = _predictor(session, segmenter, material, features)
            scores = judge_material(material, predict)
            baselines = _judge_baselines(session, material, trees)
        with session.stage("report", "gallery"):
            pictures = _gallery(session, material, features, segmenter)
            parts = _origin(session, material, features) | _scores(scores, notes) | pictures | baselines | profiled
            num_run = features.num_items_run if features else 0
            record = build_record(session, run, trained, num_images_run=num_run, **parts)
            atomic.write_text(folder / "predictions.csv", _patch_table(material, trained))
            atomic.write_json(folder / "history.json", trained.history)
        return record, trained.stopped

    return record_run(
        session,
        make,
        key=trainer.key,
        command=as_typed("segment train", session.settings, without=OF_TILES),
        num_samples=len(material.patches),
        fingerprint=features.fingerprint if features else "",
    )


def _predictor(session: Session, trained: TrainedSegmenter, material: PatchMaterial, features: Extraction | None) -> Predict:
    """Positions of patches to probabilities, from what is cached."""
    decode = trained.decoder(torch_device(session.policy.device), _BATCH)
    if features is None:
        return lambda positions: decode(shown_pixels(trained.config, material.arrays, positions))
    rows = shown_rows(trained.config, features.store, material.arrays)
    return lambda positions: decode(rows.rows(positions))


def _judge_baselines(session: Session, material: PatchMaterial, trees: PixelScorer | None) -> dict[str, Any]:
    """What the user's expression and the spectrum of single pixels reach, on the very pixels that judge the network."""
    text = session.settings.baseline
    found = {} if text is None else {"baseline": judge_expression(material, text)}
    beside, names = [], material.class_names
    num_judged = sum(patch.split in JUDGED for patch in material.patches)
    estimated_s = baseline_seconds(num_judged, material.spec.patch_px, len(names))
    if estimated_s > _LONGEST_BASELINE_S:
        reason = f"judging trees over pixels on {num_judged:,} patches would take about {format_seconds(estimated_s)}"
        session.chose(Choice("pixel_baseline", "none", reason))
    else:
        with suppress(MachineError):  # no scikit-learn, which was said before
            predict = grow_baseline(material.arrays, material.patches, len(names))
            beside += [] if predict is None else [judge_trees(material, predict)]
    if trees is not None and trees.index is not None:
        beside.append(judge_expression(material, trees.index.text(material.band_names)))
    return {**found, "pixel_baselines": beside}


def _gallery(session: Session, material: PatchMaterial, features: Extraction | None, trained: TrainedSegmenter) -> dict[str, Any]:
    sizes = {scene.scene_id: (scene.grid.height, scene.grid.width) for scene in material.facts}
    photos = {one.scene_id for one in material.facts if one.is_photo and one.num_pixels <= _WHOLE_PHOTO_PX}
    windows = choose_samples(material.patches, sizes=sizes, seed=session.settings.seed, photos=photos)
    engine = None if features is None else features.encode_engine
    predict = trained.predictor(torch_device(session.policy.device), _BATCH, engine)
    options: dict[str, Any] = {"patch_px": material.spec.patch_px, "overlap_px": material.overlap_px, "batch": _BATCH}
    samples = stitched_samples(windows, reader=material.reader, predict=predict, **options)
    gallery, legend = build_gallery(samples, class_names=material.class_names, colours=material.colours)
    return {"gallery": gallery, "legend": legend}


def _origin(session: Session, material: PatchMaterial, features: Extraction | None) -> dict[str, Any]:
    """What the record says of the scenes, their patches and the network."""
    spec, counts = material.spec, Counter(patch.split for patch in material.patches)
    data = DataRecord(
        source=session.settings.data,
        num_samples=len(material.patches),
        num_quarantined=len(material.quarantined),
        splits={name: counts[name] for name in ("train", "val", "test")},
        digest=material.digest,
        scenes=[scene.scene_id for scene in material.facts],
        bands=list(material.facts[0].band_names),
        patches=PatchesRecord(patch_px=spec.patch_px, overlap_px=material.overlap_px, manifest=material.manifest.name),
    )
    encoder = {
        "name": spec.encoder,
        "weights_sha256": spec.weights_sha256,
        **(features.engine if features else {"engine": "torch", "precision": "f32"}),
        "fingerprint": features.fingerprint if features else "",
        "num_augmented": features.store.num_views - 1 if features else 0,
        "image_px": spec.patch_px,
        "pyramid": spec.to_dict(),
    }
    return {
        "task": TaskRecord(kind="segmentation", names=list(material.class_names)),
        "data": data,
        "encoder": EncoderRecord(**encoder),
        "findings": material.findings,
        "quarantine": material.quarantined,
        "unscored": [],
    }


def _scores(scores: dict[str, MaskScores], notes: Sequence[str]) -> dict[str, Any]:
    own = ["figures are over pixels of stitched masks"]
    few = [split for split, found in scores.items() if not found.intervals]
    own[0] += "; intervals are over scenes, since neighbouring pixels are alike" if len(few) < len(scores) else ""
    own[0] += f"; for an interval {' and '.join(few)} would need {FEWEST_SCENES} scenes" if few else ""
    if "test" not in scores:
        own.append("no test area: the figures are those of the validation patches, which also picked the epoch")
    return {
        "metrics": {split: found.metrics() for split, found in scores.items()},
        "per_class": {split: found.per_class for split, found in scores.items() if split == "test"},
        "confusion": {split: found.confusion for split, found in scores.items() if split == "test"},
        "notes": [*notes, *own],
    }


def _patch_table(material: PatchMaterial, trained: TrainingOutcome) -> str:
    """One row per judged patch, by itself: its loss and how well it was drawn before stitching."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    names = material.class_names
    writer.writerow(["sample_id", "split", "loss", "mean_iou", *(f"iou/{name}" for name in names)])
    for split, rows in trained.outputs.items():
        positions = [place for place, patch in enumerate(material.patches) if patch.split == split]
        for position, row in zip(positions, rows, strict=True):
            each = ious(row[1:].astype(np.float64).reshape(len(names), len(names)))
            known = each[np.isfinite(each)]
            cells = ["" if np.isnan(one) else round(float(one), 6) for one in each]
            mean = round(float(known.mean()), 6) if len(known) else ""
            writer.writerow([material.patches[position].patch_id, split, round(float(row[0]), 6), mean, *cells])
    return text.getvalue()
