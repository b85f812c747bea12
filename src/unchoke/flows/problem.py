"""Samples with features become something to learn: targets as numbers, splits as positions, and a summary for the record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unchoke.errors import DataError
from unchoke.fingerprint import digest
from unchoke.index.samples import Samples
from unchoke.train.data import Problem

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Learnable:
    """The problem, the table rows it came from (same order), and a digest of everything in it, contents included."""

    problem: Problem
    frame: pd.DataFrame
    key: str


def build_problem(samples: Samples, contents: pd.Series[str], kept: NDArray[np.bool_]) -> Learnable:
    """Only `kept` samples, in the order of the store."""
    frame = samples.frame[kept].reset_index(drop=True)
    task = samples.task
    if task.kind == "classification":
        targets: NDArray[Any] = pd.Categorical(frame["label"], categories=list(task.names)).codes.astype(np.int64)
    else:
        targets = frame[list(task.names)].to_numpy(dtype=np.float32)
    splits = {split: np.flatnonzero(frame["split"].to_numpy() == split).astype(np.int64) for split in SPLITS}
    _refuse_untrainable(task.kind, targets, splits)
    sample_ids = frame["sample_id"].tolist()
    problem = Problem(task.kind, task.names, targets, splits, sample_ids)
    return Learnable(problem, frame, digest([problem.digest(), digest(contents[kept].tolist())]))


def _refuse_untrainable(kind: str, targets: NDArray[Any], splits: dict[str, NDArray[np.int64]]) -> None:
    train = splits["train"]
    if len(train) == 0 or (kind == "classification" and len(np.unique(targets[train])) < 2):
        raise DataError(
            f"the train split has {len(train)} samples" + (" of a single class" if len(train) else ""),
            why="there is nothing to learn from it",
            try_="add images, or set the split column so that train holds at least two classes",
        )


def summarise(learnable: Learnable, *, source: str, num_quarantined: int) -> dict[str, Any]:
    """What the record says of the data."""
    frame, problem = learnable.frame, learnable.problem
    summary: dict[str, Any] = {
        "source": source,
        "num_samples": len(frame),
        "num_quarantined": num_quarantined,
        "splits": {split: len(positions) for split, positions in problem.splits.items()},
    }
    if problem.kind == "classification":
        summary["class_counts"] = {
            split: {str(name): int(count) for name, count in rows["label"].value_counts().items()}
            for split, rows in frame.groupby("split")
        }
    else:
        described = frame[list(problem.names)].describe()
        summary["targets_summary"] = {name: {str(k): float(v) for k, v in described[name].items()} for name in problem.names}
    return summary
