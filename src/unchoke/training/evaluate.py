"""`evaluate`: score a run again from its files, without training.

The samples, splits, truths and extra inputs are those of `predictions.csv`. Features and activations come from the workspace's
cache, or from the run's own folder when it was exported. A network of which nothing is frozen has no cache: its pictures are read
again, or come with the export.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from unchoke.core.checksums import damaged, verify
from unchoke.core.clock import StageTimers
from unchoke.core.errors import DataError, UsageError, list_some
from unchoke.core.events import OnEvent, StageDone, StageStarted
from unchoke.core.fingerprint import digest_contents
from unchoke.core.mixing import hash_ids
from unchoke.core.record import Interval, RunRecord, TrainingRecord
from unchoke.core.units import format_count
from unchoke.core.workspace import out_option
from unchoke.data.inspect_samples import load_facts
from unchoke.data.manifest import load_manifest
from unchoke.data.sample_set import input_column
from unchoke.data.several_labels import MULTI_LABEL, label_matrix
from unchoke.features.encoders import EncoderSpec
from unchoke.features.feature_store import FeatureStore, Placement, load_shard_ids, map_member, open_stored
from unchoke.jobs.queue import JobQueue
from unchoke.pixels.canvas import Canvas
from unchoke.pixels.pixel_cache import plan_cache
from unchoke.runs.lookup import FoundRun, find_run
from unchoke.runs.report.json import to_jsonable
from unchoke.runs.report.text import render_scores
from unchoke.runs.session import default_listener
from unchoke.training.data import Problem, ProblemKind
from unchoke.training.heads.heads import load_head
from unchoke.training.ladder.blend import load_blend
from unchoke.training.network.prepare_pixels import StoredPixels
from unchoke.training.network.sources import ActivationSource, InputSource
from unchoke.training.network.trained_network import RowsInMemory, TrainedNetwork, load_network, open_network
from unchoke.training.results import plain_metrics
from unchoke.training.scoring.judge import JUDGED, Outputs, ScoredOutputs, judge, run_head
from unchoke.training.scoring.predictions import GROUP, load_predictions
from unchoke.training.scoring.scores import ConstantAnswer

EXPORTED_FEATURES = "features.npz"
EXPORTED_PIXELS = "pixels.npz"


@dataclass(frozen=True)
class Evaluation:
    """Fresh scores of a run, beside what its record says."""

    record: RunRecord
    """What the run's own record says."""
    judged: ScoredOutputs
    """The fresh scores."""
    timings: dict[str, float]
    """Seconds by stage."""
    report_command: str
    """The command that writes the run's report."""

    @property
    def metrics(self) -> dict[str, dict[str, Interval]]:
        """The fresh scores with their intervals, by split and name."""
        return {split: scores.values for split, scores in self.judged.scores.items()}

    def to_dict(self) -> dict[str, Any]:
        baseline = to_jsonable(self.judged.baseline.to_dict()) if self.judged.baseline else None
        return {"run": self.record.run, **plain_metrics(self.metrics), "baseline": baseline, "timings": self.timings}

    def to_text(self) -> str:
        declared = TrainingRecord(targets=self.record.training.targets if self.record.training else None)
        fresh = {"metrics": self.metrics, "timings": self.timings, "images_per_s": None, "training": declared}
        fresh |= {"baseline": self.judged.baseline, "value_intervals": self.judged.value_intervals}
        return render_scores(self.record.model_copy(update=fresh), next_command=self.report_command)


def evaluate(run: str | Path = "latest", *, out: str | Path | None = None, on_event: OnEvent | None = None) -> Evaluation:
    """Score a run again from its files: what was cached and the saved weights, no training.

    Args:
        run: A run: exp_3, 3, latest, best, or an exported folder.
        out: Workspace folder (default unchoke-out).
        on_event: Called with every event, a value of `unchoke.core.events`. Left out, progress goes to stderr.

    Returns:
        Fresh scores of val and test, beside what the run's record says.

    Example:
        >>> sorted(unchoke.evaluate("best", out="work").to_dict()["metrics"])
        ['test', 'val']
    """
    listener = on_event or default_listener()
    timers = StageTimers()
    with timers.stage("load"):
        found = find_run(run, out=out)
        found.refuse_masks("unchoke evaluate")
        file, task = found.folder / "predictions.csv", found.record.task
        table = load_predictions(file)
        if not len(table):
            raise UsageError(
                f"{found.record.run} has nothing to be judged by",
                code="nothing-to-evaluate",
                why="all of its samples were trained on: there was neither a val nor a test split",
                try_="unchoke fit DATA --test-share 0.15, or a split column with val and test",
            )
        if task.kind == "classification" and (unknown := {*table["truth"]} - {*task.names}):
            raise damaged(file, f"{found.record.run} knows no class {list_some(sorted(unknown))}")
        run_models, problem, weights = _open_run(found, table, listener)
    listener(StageStarted("evaluate"))
    with timers.stage("evaluate"):
        outputs = run_models()
    with timers.stage("score"):
        answer = ConstantAnswer.of_record(found.record)
        groups = table[GROUP].tolist() if GROUP in table else None  # runs of before groups were kept have none
        picked = [row.config["seed"] for row in found.record.sweep if row.picked]
        seed = int(picked[0]) if picked else 0
        judged = judge(outputs, problem, seed=seed, weights=weights, groups=groups, answer=answer)
    listener(StageDone("evaluate", timers.seconds["evaluate"] + timers.seconds["score"]))
    if found.workspace is None:
        report = f"unchoke report {shlex.quote(str(found.folder))}"
    else:
        report = f"unchoke report {found.record.run}{out_option(found.workspace.root)}"
    return Evaluation(found.record, judged, timers.seconds, report)


def _open_run(
    found: FoundRun, table: pd.DataFrame, listener: OnEvent
) -> tuple[Callable[[], Outputs], Problem, tuple[float, ...] | None]:
    """What gives outputs for val and test, what was learnt, and the weights of its targets."""
    if found.is_blend:  # the outputs are kept with the run: every model has features of its own; but each has to be there
        blended = load_blend(found.head_file)
        for one in blended.models:
            verify(replace(found, model=one.file).head_file)
        target_weights = blended.extra["target_weights"]
        problem = as_problem(blended.kind, blended.names, table)
        return lambda: blended.outputs, problem, None if target_weights is None else tuple(target_weights)
    if not found.trains_network:
        head, extra = load_head(found.head_file)
        problem = as_problem(head.kind, head.names, table)
        placement = place_features(found, extra["fingerprint"], problem.sample_ids)
        store = FeatureStore(placement, dim=head.dim, num_augmented=int(extra["num_augmented"]))
        return lambda: run_head(head, store, problem, device=torch.device("cpu")), problem, None
    trained, extra = load_network(found.head_file)
    problem = as_problem(trained.kind, trained.names, table)
    inputs = table[[input_column(name) for name in trained.input_names]].to_numpy(np.float32) if trained.input_names else None
    source: InputSource
    if not trained.is_whole:
        store = open_activations(found, extra["fingerprint"], problem.sample_ids)
        source = ActivationSource(store, hash_ids(problem.sample_ids), 0)
    elif found.workspace is not None:
        source = open_pictures(found, trained, extra, problem.sample_ids, on_event=listener).open(problem.sample_ids, 0)
    else:
        preprocess = EncoderSpec.from_dict(extra["encoder"]).preprocess
        source = RowsInMemory(_exported_pixels(found, problem.sample_ids), preprocess)
    ready = open_network(found, trained, on_event=listener, as_in_training=True)

    def outputs() -> Outputs:
        where = {split: problem.positions(split) for split in JUDGED if len(problem.positions(split))}
        return {split: ready.outputs(source, positions, inputs) for split, positions in where.items()}

    return outputs, problem, trained.targets.weights if trained.targets else None


def _exported_pixels(found: FoundRun, sample_ids: Sequence[str]) -> NDArray[np.uint8]:
    file = found.folder / EXPORTED_PIXELS
    if not file.exists():
        raise UsageError(
            f"{found.folder} cannot be evaluated by itself: its pictures are not in it",
            code="pictures-not-exported",
            why="all of the network was trained, from pixels, and those of the judged samples were too large for the export",
            try_=f"unchoke evaluate {found.record.run} in its workspace, or unchoke predict {found.folder} IMAGES here",
        )
    rows = _exported_rows(file, sample_ids)
    with np.load(file, allow_pickle=False) as shard:
        pixels: NDArray[np.uint8] = shard["pixels"]
    return pixels[rows]


def _exported_rows(file: Path, sample_ids: Sequence[str]) -> NDArray[np.int32]:
    """Where the samples are in a file that was exported."""
    verify(file)
    place = {sample_id: row for row, sample_id in enumerate(load_shard_ids(file))}
    _refuse_missing([sample_id for sample_id in sample_ids if sample_id not in place])
    return np.array([place[sample_id] for sample_id in sample_ids], np.int32)


def as_problem(kind: ProblemKind, names: tuple[str, ...], table: pd.DataFrame) -> Problem:
    """The judged samples as a problem again: positions follow the table's rows."""
    if kind == "classification":
        targets: NDArray[Any] = pd.Categorical(table["truth"], categories=list(names)).codes.astype(np.int64)
    elif kind == MULTI_LABEL:
        targets = label_matrix(table["truth"].tolist(), names)
    else:
        targets = table[[f"truth/{name}" for name in names]].to_numpy(dtype=np.float32)
    splits = {split: np.flatnonzero(table["split"].to_numpy() == split).astype(np.int64) for split in ("train", *JUDGED)}
    return Problem(kind, names, targets, splits, table["sample_id"].tolist())


def open_activations(found: FoundRun, fingerprint: str, sample_ids: Sequence[str]) -> FeatureStore:
    """The plain views a network was trained on; augmented ones are for training alone."""
    placement = place_features(found, fingerprint, sample_ids)
    shapes = [map_member(shard).shape[1:] for shard in placement.shards[:1]]
    return FeatureStore(placement, row_shape=shapes[0] if shapes else (1,))


def place_features(found: FoundRun, fingerprint: str, sample_ids: Sequence[str]) -> Placement:
    """Where the features of `sample_ids` lie: in the workspace, or in the exported folder."""
    exported = found.folder / EXPORTED_FEATURES
    if exported.exists():
        rows = _exported_rows(exported, sample_ids)
        return Placement((exported,), np.zeros(len(rows), np.int32), rows)
    if found.workspace is None:
        _refuse_missing(sample_ids)
    assert found.workspace is not None, "there are samples"
    queue = JobQueue.load(found.workspace.features)
    stored = open_stored(queue, fingerprint, sample_ids, done=queue.state(fingerprint).done)
    _refuse_missing([sample_id for sample_id, there in zip(sample_ids, stored.present, strict=True) if not there])
    jobs = queue.jobs(fingerprint)
    refuse_other_contents(found, {item: content for job in jobs for item, content in zip(job.items, job.contents, strict=True)})
    return stored.placement


def refuse_other_contents(found: FoundRun, contents: Mapping[str, str]) -> None:
    """Refuse to judge a run by other photos than it was judged by: files may have come under the names of others since.

    `contents` are digests of files by sample id. Runs of before these were recorded are judged by what has the same names.
    """
    if not (recorded := found.record.data.content_digests) or found.workspace is None:
        return
    table = load_predictions(found.folder / "predictions.csv")
    ids = {str(split): rows["sample_id"].tolist() for split, rows in table.groupby("split")}
    here = {split: digest_contents({one: contents.get(one, "") for one in ids.get(split, ())}) for split in recorded}
    if changed := [split for split in JUDGED if split in recorded and here[split] != recorded[split]]:
        record = found.record
        raise DataError(
            f"{record.run} cannot be judged: the {' and '.join(changed)} photos at hand are not those it was judged on",
            code="photos-changed",
            why="files under the same names hold other pictures now, which it may have been trained on",
            try_=f"put its photos back, or train on those there are now: {record.command}{out_option(found.workspace.root)}",
        )


def _refuse_missing(missing: Sequence[str]) -> None:
    if missing:
        raise DataError(
            f"the features of {len(missing)} samples are gone or damaged: {list_some(missing)}",
            code="features-gone",
            why="they are kept in features/ of the workspace, or in features.npz of an exported run",
            try_="run `unchoke extract` in the workspace, or export the run again",
        )


def open_pictures(
    found: FoundRun, trained: TrainedNetwork, extra: dict[str, Any], sample_ids: Sequence[str], *, on_event: OnEvent
) -> StoredPixels:
    """The files of `sample_ids`, where the workspace's manifest says they are, held against what `check` knows of them."""
    assert found.workspace is not None
    manifest = load_manifest(found.workspace.manifest_file)
    known = {} if manifest is None else dict(zip(manifest["sample_id"], manifest["path"], strict=True))
    lost = [sample_id for sample_id in sample_ids if sample_id not in known]
    if lost:
        raise _pictures_lost([f"{sample_id} (not in manifest.csv)" for sample_id in lost])
    facts = load_facts(found.workspace, on_event)
    known_contents = dict(zip(facts["path"], facts["content"].fillna(""), strict=True))
    paths = tuple(str(known[sample_id]) for sample_id in sample_ids)
    canvas = Canvas(trained.spec.tiles, EncoderSpec.from_dict(extra["encoder"]).preprocess)
    read_each = plan_cache(len(paths), *canvas.row_shape, ram_budget_bytes=0, disk_free_bytes=0, mode="none")
    digests = tuple(str(known_contents.get(path, "")) for path in paths)
    pictures = StoredPixels(tuple(sample_ids), paths, digests, canvas, read_each, found.folder)
    try:
        refuse_other_contents(found, pictures.digests())
    except OSError as error:
        raise _pictures_lost([str(error)]) from error
    return pictures


def _pictures_lost(named: Sequence[str]) -> DataError:
    return DataError(
        f"{format_count(len(named), 'judged picture')} cannot be read: {list_some(named)}",
        code="unreadable-photos",
        why="with --cut none nothing is cached: pictures are read from where manifest.csv says they are",
        try_="put the files back, or `unchoke runs export` the run while they are there: small ones travel with it",
    )
