"""`segment predict`: masks of whole scenes from a run's files, in memory that does not grow with the scene.

In: a run and scenes. Out: for each scene a mask of classes, and one of probabilities, in the scene's place on the map. A scene
that cannot be read is named and the others are done. Run again, it goes on where it was stopped, or says that it is done.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from unchoke.core import listing
from unchoke.core.boxes import Box
from unchoke.core.errors import MachineError, UsageError
from unchoke.core.events import Note, OnEvent, Progress
from unchoke.core.findings import Finding
from unchoke.core.fingerprint import digest_file
from unchoke.core.remembered import load_remembered
from unchoke.core.settings import validate
from unchoke.core.units import format_bytes, format_count, parse_bytes
from unchoke.core.workspace import DEFAULT_ROOT, Workspace, safe_name
from unchoke.features.engine_openvino import OpenVinoEngine, import_openvino
from unchoke.features.engines import TorchEngine
from unchoke.jobs.cluster.connection import Cluster
from unchoke.jobs.cluster.node_work import nodes_choice
from unchoke.machine.backend import is_cpu, torch_device
from unchoke.machine.memory.memory_watch import MemoryWatch
from unchoke.machine.policy import Policy
from unchoke.masks.batch_size import FILE as BATCH_FILE
from unchoke.masks.batch_size import choose_batch
from unchoke.masks.draw_masks import UNFINISHED, MaskWork, SegmentPredictResult, finish_bands, write_mask
from unchoke.masks.node_masks import NodeMasks
from unchoke.masks.patches import PatchReader
from unchoke.masks.segmenter import WHOLE
from unchoke.masks.stitch import LIMIT_BYTES, count_patches, plan_stitch
from unchoke.masks.trained_segmenter import (
    EngineUse,
    OpenPredictor,
    PredictorSpec,
    TrainedSegmenter,
    load_segmenter,
    open_predictor,
)
from unchoke.masks.write_masks import PartStore
from unchoke.runs.lookup import FoundRun, find_run
from unchoke.runs.session import Session, default_listener, reached_cluster, refuse_inside_data
from unchoke.scenes.handles import HandlePool
from unchoke.scenes.open_scenes import broken_scene, find_scenes, open_scenes, warn_of
from unchoke.scenes.scale import SceneScale, measure_scale
from unchoke.scenes.scene_facts import SceneError, SceneFacts
from unchoke.training.saved_models import ENCODER_FILE

_CLASSES_AT_THE_USUAL_LIMIT = 4
_LARGEST_LIMIT_BYTES = 512 * 2**20


def segment_predict(
    run: str | Path,
    scenes: str | Path,
    *,
    to: str | Path | None = None,
    out: str | Path | None = None,
    probabilities: bool = True,
    overlap: int | None = None,
    memory: str | None = None,
    weights: str | Path | None = None,
    device: str | None = None,
    on: str | None = None,
    on_event: OnEvent | None = None,
) -> SegmentPredictResult:
    """Masks of whole scenes, stitched from patches in bounded memory: GeoTIFFs in the scene's place on the map, PNG for photos.

    Args:
        run: A run of `segment_train`: exp_3, 3, latest, best, or an exported folder.
        scenes: Scenes as for `tile`: a folder, a table, a file.
        to: Folder for the masks (default: masks/RUN in the workspace).
        out: Workspace folder (default unchoke-out).
        probabilities: Write the probability of each class as well.
        overlap: Pixels that patches share (default: as trained).
        memory: Memory it may take, for instance 2GB.
        weights: The encoder's weights, where they are no longer found.
        device: cpu, cuda or mps.
        on: The Ray cluster that predicts: ray://HOST:10001, HOST:6379 or auto; local is this machine alone.
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Returns:
        The masks that were written, and the scenes that could not be read.

    Example:
        >>> len(unchoke.segment_predict("mask_run", "scenes/", to="masks", out="drawn").masks)
        1
    """
    found = find_run(run, out=out)
    record = found.record
    if not record.draws_masks:
        raise UsageError(
            f"{record.run or found.folder} draws no masks",
            code="not-a-mask-run",
            why=f"it is a run of {record.task.kind}, not of segmentation",
            try_="unchoke predict for that run; or train one that does: unchoke segment train SCENES",
        )
    trained = load_segmenter(found.folder)
    overlap_px = trained.overlap_px if overlap is None else overlap
    if not 0 <= overlap_px < trained.spec.patch_px:
        raise UsageError(
            f"patches cannot share {overlap_px} pixels",
            code="bad-overlap",
            why=f"the run's patches have {trained.spec.patch_px}",
            try_=f"--overlap {trained.spec.patch_px // 4}",
        )
    root = found.workspace.root if found.workspace is not None else Path(out) if out is not None else DEFAULT_ROOT
    # each run has a folder of its own, so that none overwrites what another drew
    folder = Path(to) if to is not None else Workspace(root).masks / safe_name(record.run)
    if memory is not None:
        parse_bytes(memory)
    read = {"bands": trained.bands, "grid": trained.grid, "resampling": trained.resampling}  # scenes are read as the run did
    settings = validate({"data": str(scenes), **read, "memory": memory, "device": device, "on": on})
    refuse_inside_data(Workspace(folder), settings)
    listener = on_event or default_listener()
    with Workspace(folder).own(), MemoryWatch() as watch, closing(HandlePool()) as pool:
        session = Session(Workspace(folder), settings, listener, watch, remembering=False)
        drawing = MaskDrawing(
            session,
            found=found,
            trained=trained,
            pool=pool,
            folder=folder,
            probabilities=probabilities,
            overlap_px=overlap_px,
        )
        with reached_cluster(session):
            masks = drawing.draw(weights)
    return SegmentPredictResult(
        run=found.record.run,
        folder=folder,
        masks=masks,
        findings=drawing.findings,
        choices=session.choices,
        timings=dict(session.timers.seconds),
        patches=drawing.num_done,
        memory=_memory(session, watch),
    )


class MaskDrawing:
    """The masks of one command: which are to be made, and how far it is with them."""

    def __init__(
        self,
        session: Session,
        *,
        found: FoundRun,
        trained: TrainedSegmenter,
        pool: HandlePool,
        folder: Path,
        probabilities: bool,
        overlap_px: int,
    ) -> None:
        self._session, self._found, self._trained, self._pool = session, found, trained, pool
        self._folder, self._probabilities, self._overlap_px = folder, probabilities, overlap_px
        self.findings: list[Finding] = []
        self.num_done = self._num_patches = 0
        self._started_s = 0.0

    def draw(self, weights: Path | str | None) -> list[dict[str, Any]]:
        """One entry for each scene that could be read."""
        session = self._session
        with session.stage("scan"):
            threads = session.policy.workers
            scanned = find_scenes(session)
            facts, self.findings = open_scenes(session, scanned, pool=self._pool, threads=threads, same_bands=True)
            warn_of(session, self.findings)
        spec = self._predictor_spec(weights)
        depends_on = {"segmenter": digest_file(self._found.head_file), **spec.identity()}
        works = [self._work(one, depends_on) for one in facts]
        finished = {work.scene_id: record for work in works if (record := work.finished())}
        made = self._make([work for work in works if work.scene_id not in finished], spec)
        self._tidy()
        entries = [self._entry(work, finished.get(work.scene_id) or made.get(work.scene_id), made) for work in works]
        return [entry for entry in entries if entry is not None]

    def _work(self, facts: SceneFacts, depends_on: dict[str, Any]) -> MaskWork:
        num_classes, limit_bytes = self._trained.num_classes, self._session.settings.memory_bytes
        usual = min(_LARGEST_LIMIT_BYTES, LIMIT_BYTES * max(1, num_classes // _CLASSES_AT_THE_USUAL_LIMIT))
        plan = plan_stitch(
            facts.grid.height,
            facts.grid.width,
            patch_px=self._trained.spec.patch_px,
            overlap_px=self._overlap_px,
            num_classes=num_classes,
            limit_bytes=usual if limit_bytes is None else min(usual, max(LIMIT_BYTES, limit_bytes // 8)),
        )
        run, probabilities = self._found.record.run, self._probabilities
        return MaskWork.of(facts, plan, self._folder, depends_on=depends_on, probabilities=probabilities, run=run)

    def _make(self, works: Sequence[MaskWork], spec: PredictorSpec) -> dict[str, dict[str, Any]]:
        """The records of the masks that were made, by scene; with the seconds each took."""
        if not works:
            return {}
        session, unfinished = self._session, self._folder / UNFINISHED
        with session.stage("network", self._found.record.run):
            held_bytes = max(work.plan.held_bytes for work in works)
            batch = choose_batch(session, spec, held_bytes=held_bytes, keep_in=unfinished)
            predictor = open_predictor(spec, batch=batch, warn=session.warn)
        begun = [self._begin(work, batch) for work in works]
        self._num_patches = sum(count_patches(work.plan, todo) for work, _, todo in begun)
        self._started_s = time.monotonic()
        made: dict[str, dict[str, Any]] = {}
        with session.stage("predict", format_count(len(works), "scene")):
            if session.cluster is not None:
                return self._make_on_nodes(session.cluster, begun, predictor, batch)
            for work, parts, todo in begun:
                started_s = time.monotonic()
                record = self._one(work, parts, todo, predictor, batch)
                if record is not None:
                    made[work.scene_id] = {**record, "seconds": time.monotonic() - started_s}
        return made

    def _make_on_nodes(
        self, cluster: Cluster, begun: Sequence[tuple[MaskWork, PartStore, list[Box]]], predictor: OpenPredictor, batch: int
    ) -> dict[str, dict[str, Any]]:
        """The same with bands predicted on the nodes of a cluster; a mask is written here while others are still predicted."""
        scales = {work.scene_id: scale for work, _, _ in begun if (scale := self._scale(work.facts)) is not None}
        begun = [one for one in begun if one[0].scene_id in scales]
        nodes = NodeMasks(cluster, predictor, batch, self._folder / UNFINISHED, self._session.on_event, {})
        errands = nodes.errands(begun, scales)
        self._num_patches = sum(count_patches(one.work.plan, one.bands) for one in errands)
        left = Counter(one.work.scene_id for one in errands)
        broken: set[str] = set()
        masks: dict[str, Future[dict[str, Any]]] = {}
        with ThreadPoolExecutor(1, thread_name_prefix="unchoke-write-mask") as writer:

            def write(work: MaskWork, parts: PartStore) -> dict[str, Any]:
                record = write_mask(work, parts, predictor.trained)
                return {**record, "seconds": time.monotonic() - self._started_s}

            stores = {work.scene_id: (work, parts) for work, parts, _ in begun}
            masks |= {one: writer.submit(write, *stores[one]) for one in stores if not left[one]}
            for errand, error in nodes.run(errands, given_up=broken):
                scene_id = errand.work.scene_id
                if error is not None and scene_id not in broken:
                    broken.add(scene_id)
                    self._broke(errand.work.facts, error)
                self._tell_patches(count_patches(errand.work.plan, errand.bands))
                left[scene_id] -= 1
                if not left[scene_id] and scene_id not in broken:
                    masks[scene_id] = writer.submit(write, *stores[scene_id])
        gives = "predict what this machine predicts on a sample"
        self._session.chose(nodes_choice(cluster.address, nodes.facts.values(), cluster.refused, gives=gives, files="scenes"))
        return {scene_id: mask.result() for scene_id, mask in masks.items()}

    def _scale(self, facts: SceneFacts) -> SceneScale | None:
        try:
            return measure_scale(facts, self._trained.normalise, pool=self._pool)
        except SceneError as error:
            self._broke(facts, error)
            return None

    def _broke(self, facts: SceneFacts, error: SceneError) -> None:
        self.findings.append(broken_scene(facts.scene, error, stage="predict"))
        self._session.warn(self.findings[-1].message)

    def _begin(self, work: MaskWork, batch: int) -> tuple[MaskWork, PartStore, list[Box]]:
        parts = work.open_parts(batch=batch)
        bands = work.plan.bands()
        todo = [band for band in bands if not parts.done(band)]
        if len(todo) < len(bands):
            done = f"{len(bands) - len(todo):,} of {format_count(len(bands), 'part')}"
            self._session.on_event(Note(f"{work.scene_id}: {done} were finished before; it goes on from there"))
        return work, parts, todo

    def _one(
        self, work: MaskWork, parts: PartStore, todo: list[Box], predictor: OpenPredictor, batch: int
    ) -> dict[str, Any] | None:
        """A scene that breaks on the way becomes a finding; what was finished of it stays."""
        facts = work.facts
        try:
            scales = {facts.scene_id: measure_scale(facts, self._trained.normalise, pool=self._pool)}
            reader = PatchReader({facts.scene_id: facts}, pool=self._pool, scales=scales, standard=self._trained.standard)
            finish_bands(work, parts, todo, reader=reader, predictor=predictor, batch=batch, on_patches=self._tell_patches)
            return write_mask(work, parts, self._trained)
        except SceneError as error:
            self._broke(facts, error)
            return None

    def _tell_patches(self, number: int) -> None:
        self.num_done += number
        rate = self.num_done / max(time.monotonic() - self._started_s, 1e-6)
        left_s = (self._num_patches - self.num_done) / rate
        self._session.on_event(Progress("predict", self.num_done, self._num_patches, "patches", rate, left_s))

    def _tidy(self) -> None:
        """What was kept for the sake of unfinished masks goes with the last of them."""
        unfinished = self._folder / UNFINISHED
        if listing.names(unfinished) in ([], [BATCH_FILE]):
            (unfinished / BATCH_FILE).unlink(missing_ok=True)
            if unfinished.exists():
                unfinished.rmdir()

    def _entry(self, work: MaskWork, record: dict[str, Any] | None, made: dict[str, Any]) -> dict[str, Any] | None:
        if record is None:
            return None
        files = work.files
        return {
            "scene": work.scene_id,
            "classes": str(files.classes),
            "probabilities": files.probabilities and str(files.probabilities),
            "seconds": float(record.get("seconds", 0.0)),
            "width": record["width"],
            "height": record["height"],
            "pixels": record["pixels"],
            "pixels_without_class": record["pixels_without_class"],
            "shares": {name: record["shares"][name] for name in self._trained.class_names},
            "skipped": work.scene_id not in made,
        }

    def _predictor_spec(self, weights: Path | str | None) -> PredictorSpec:
        policy, found = self._session.policy, self._found
        beside = found.folder / "engines" if os.access(found.folder, os.W_OK) else self._folder / ".engines"
        keep_in = found.workspace.engines if found.workspace else beside
        return PredictorSpec(
            folder=str(found.folder.resolve()),
            weights=_weights(found, weights),
            device=policy.device,
            engine=self._engine(),
            streams=max(1, policy.workers),
            keep_in=str(keep_in.resolve()),
        )

    def _engine(self) -> EngineUse:
        """The engine of the run's own features, or plain torch (with a note) where that cannot be used."""
        used = EngineUse() if self._trained.cut == WHOLE else EngineUse.of(self._trained.engine)
        if (lacking := _lacking(used, self._session.policy)) is None:
            return used
        self._session.warn(f"{lacking}; plain torch in float32 is used instead: same network, tiny differences")
        return replace(used, name=TorchEngine.name, precision="f32")


def _lacking(used: EngineUse, policy: Policy) -> str | None:
    """Why the engine of the run cannot be used here; None if it can."""
    on_cpu = is_cpu(torch_device(policy))
    if used.name == TorchEngine.name:
        return "the run's features were made in f16, which processors are slow at" if on_cpu and used.precision == "f16" else None
    if used.name == OpenVinoEngine.name and not on_cpu:
        return f"the run's features come from OpenVINO, which does not run on {policy.device}"
    if used.name == OpenVinoEngine.name:
        try:
            import_openvino()
        except MachineError as error:
            return error.what
    return None


def _weights(found: FoundRun, weights: Path | str | None) -> str | None:
    """The frozen part's weights: as typed, as exported with the run, or as its workspace remembers them."""
    exported = found.folder / ENCODER_FILE
    if weights is not None or exported.exists():
        return str(Path(weights or exported).resolve())
    remembered = load_remembered(found.workspace).get("weights") if found.workspace else None
    return str(Path(remembered).resolve()) if remembered and Path(remembered).exists() else None


def _memory(session: Session, watch: MemoryWatch) -> dict[str, Any]:
    limit_bytes = session.settings.memory_bytes
    if limit_bytes is not None and is_cpu(torch_device(session.policy)) and watch.peak_bytes > limit_bytes:
        session.warn(f"it held {format_bytes(watch.peak_bytes)}, more than the {format_bytes(limit_bytes)} allowed")
    return {"limit_bytes": limit_bytes, "measured_bytes": watch.peak_bytes}
