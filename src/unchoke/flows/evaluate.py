"""`evaluate`: score a run again from its files, without training and without images.

The samples, splits and truths are those of `predictions.csv`; the features come from the workspace's cache, or from the run's own
folder when it was exported.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from unchoke.errors import DataError, list_some
from unchoke.events import OnEvent, StageDone, StageStarted
from unchoke.features.store import FeatureStore, Placement, load_shard_ids
from unchoke.features.stored import open_stored
from unchoke.flows.runs import FoundRun, find_run
from unchoke.flows.scoring import Judged, judge, metrics_dict, run_head
from unchoke.flows.session import default_listener, out_option
from unchoke.jobs.queue import JobQueue
from unchoke.measure.timers import StageTimers
from unchoke.report.text import render_fit_result
from unchoke.torchvision_ready import prepare_torchvision
from unchoke.train.checkpoints import load_head
from unchoke.train.data import FeatureSource, Problem
from unchoke.train.trained import TrainedHead

EXPORTED_FEATURES = "features.npz"


@dataclass(frozen=True)
class Evaluation:
    """Fresh scores of a run, beside what its record says."""

    record: dict[str, Any]
    judged: Judged
    timings: dict[str, float]
    report_command: str

    def to_dict(self) -> dict[str, Any]:
        metrics = metrics_dict(self.judged.scores)
        return {
            "run": self.record["run"],
            "metrics": {split: {name: one["value"] for name, one in found.items()} for split, found in metrics.items()},
            "intervals": {
                split: {name: [one["low"], one["high"]] for name, one in found.items()} for split, found in metrics.items()
            },
            "timings": self.timings,
        }

    def to_text(self) -> str:
        shown = {**self.record, "metrics": metrics_dict(self.judged.scores), "timings": self.timings, "images_per_s": None}
        return render_fit_result(shown, next_command=self.report_command)


def evaluate(run: str | Path = "latest", *, out: Path | str | None = None, on_event: OnEvent | None = None) -> Evaluation:
    """Score val and test of `run` again, from cached features and the saved head."""
    listener = on_event or default_listener()
    timers = StageTimers()
    with timers.stage("load"):
        found = find_run(run, out=out)
        head, extra = load_head(found.head_file)
        table = load_predictions(found.folder / "predictions.csv")
        problem = as_problem(head, table)
        prepare_torchvision()
        import torchmetrics.functional  # noqa: F401  (two seconds that are not evaluation's)

        source = open_features(found, extra, table["sample_id"].tolist())
    listener(StageStarted("evaluate"))
    with timers.stage("evaluate"):
        outputs = run_head(head, source, problem, device=torch.device("cpu"))
    with timers.stage("score"):
        judged = judge(outputs, problem, seed=_seed(found))
    listener(StageDone("evaluate", timers.seconds["evaluate"] + timers.seconds["score"]))
    return Evaluation(found.record, judged, timers.seconds, _report_command(found))


def _report_command(found: FoundRun) -> str:
    """How to get the report of this very run: by its name in a workspace, by its folder where it was exported."""
    if found.workspace is None:
        return f"unchoke report {shlex.quote(str(found.folder))}"
    return f"unchoke report {found.record['run']}{out_option(found.workspace.root)}"


def load_predictions(file: Path) -> pd.DataFrame:
    """`predictions.csv` with text kept as text."""
    text = {"sample_id": "str", "split": "str", "truth": "str", "predicted": "str"}
    return pd.read_csv(file, dtype=text, na_filter=False)


def as_problem(head: TrainedHead, table: pd.DataFrame) -> Problem:
    """The judged samples as a problem again: positions follow the table's rows."""
    if head.kind == "classification":
        targets: NDArray[Any] = pd.Categorical(table["truth"], categories=list(head.names)).codes.astype(np.int64)
    else:
        targets = table[[f"truth/{name}" for name in head.names]].to_numpy(dtype=np.float32)
    splits = {split: np.flatnonzero(table["split"].to_numpy() == split).astype(np.int64) for split in ("train", "val", "test")}
    return Problem(head.kind, head.names, targets, splits, table["sample_id"].tolist())


def open_features(found: FoundRun, extra: dict[str, Any], sample_ids: list[str]) -> FeatureSource:
    """The features of `sample_ids`, from the workspace or from the exported folder."""
    dim, num_augmented = int(extra["encoder"]["dim"]), int(extra["num_augmented"])
    exported = found.folder / EXPORTED_FEATURES
    if exported.exists():
        place = {sample_id: row for row, sample_id in enumerate(load_shard_ids(exported))}
        _refuse_missing([sample_id for sample_id in sample_ids if sample_id not in place])
        rows = np.array([place[sample_id] for sample_id in sample_ids], np.int32)
        return FeatureStore(Placement((exported,), np.zeros(len(rows), np.int32), rows), dim=dim, num_augmented=num_augmented)
    if found.workspace is None:
        _refuse_missing(sample_ids)
        raise AssertionError("unreachable")
    queue = JobQueue.load(found.workspace.features)
    stored = open_stored(queue, extra["fingerprint"], sample_ids, done=queue.state(extra["fingerprint"]).done)
    _refuse_missing([sample_id for sample_id, there in zip(sample_ids, stored.present, strict=True) if not there])
    return FeatureStore(stored.placement, dim=dim, num_augmented=num_augmented)


def _refuse_missing(missing: list[str]) -> None:
    if missing:
        raise DataError(
            f"the features of {len(missing)} samples are gone or damaged: {list_some(missing)}",
            why="they are kept in features/ of the workspace, or in features.npz of an exported run",
            try_="run `unchoke extract` in the workspace, or export the run again",
        )


def _seed(found: FoundRun) -> int:
    picked = [row["config"]["seed"] for row in found.record["sweep"] if row["picked"]]
    return int(picked[0]) if picked else 0
