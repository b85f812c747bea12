"""From samples to a problem: targets and inputs as numbers, splits as positions, a summary for the record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unchoke.core.errors import DataError
from unchoke.core.fingerprint import digest, digest_bytes, digest_contents, digest_ids
from unchoke.core.record import DataRecord
from unchoke.data.copies import UnscoredSample, find_unscored
from unchoke.data.sample_set import Samples
from unchoke.training.data import Problem

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class LearningTask:
    """The problem, the table rows it came from (same order), and a digest of everything in it, contents included.

    `inputs` is (N, E): what the network is given beside the picture, in the table's own units, in the order of `input_names`.
    """

    problem: Problem
    frame: pd.DataFrame
    key: str
    inputs: NDArray[np.float32] | None = None
    input_names: tuple[str, ...] = ()
    unscored: tuple[UnscoredSample, ...] = ()
    """Samples in no split although they have a side: a score that counted them would be wrong."""
    contents: tuple[str, ...] = ()
    """Digests of the files, in the order of the rows."""


def build_problem(samples: Samples, contents: pd.Series[str], kept: NDArray[np.bool_]) -> LearningTask:
    """Only `kept` samples, in the order of the store; copies that would spoil the score are in no split."""
    frame = samples.frame[kept].reset_index(drop=True)
    unscored = find_unscored(replace(samples, frame=frame), contents[kept].tolist())
    frame.loc[[one.row for one in unscored], "split"] = ""
    task = samples.task
    if task.kind == "classification":
        targets: NDArray[Any] = pd.Categorical(frame["label"], categories=list(task.names)).codes.astype(np.int64)
    else:
        targets = frame[list(task.names)].to_numpy(dtype=np.float32)
    splits = {split: np.flatnonzero(frame["split"].to_numpy() == split).astype(np.int64) for split in SPLITS}
    _refuse_untrainable(task.kind, targets, splits)
    sample_ids = frame["sample_id"].tolist()
    problem = Problem(task.kind, task.names, targets, splits, sample_ids)
    inputs = frame[list(samples.input_columns)].to_numpy(dtype=np.float32, copy=True) if samples.inputs else None
    key = _key(problem, contents[kept], inputs, samples.inputs)
    return LearningTask(problem, frame, key, inputs, samples.inputs, tuple(unscored), tuple(contents[kept]))


def _key(problem: Problem, contents: pd.Series[str], inputs: NDArray[np.float32] | None, names: tuple[str, ...]) -> str:
    parts: list[Any] = [problem.digest(), digest(contents.tolist())]
    if inputs is not None:
        parts.append([list(names), digest_bytes(np.ascontiguousarray(inputs).tobytes())])
    return digest(parts)


def _refuse_untrainable(kind: str, targets: NDArray[Any], splits: dict[str, NDArray[np.int64]]) -> None:
    train = splits["train"]
    if len(train) == 0 or (kind == "classification" and len(np.unique(targets[train])) < 2):
        raise DataError(
            f"the train split has {len(train)} samples" + (" of a single class" if len(train) else ""),
            code="untrainable",
            why="there is nothing to learn from it",
            try_="add images, or set the split column so that train holds at least two classes",
        )


def digest_judged(learnable: LearningTask) -> dict[str, dict[str, str]]:
    """Digests of the samples of val and of test, under their names in the record: runs with equal ones can be compared."""
    problem = learnable.problem
    judged = {split: problem.positions(split).tolist() for split in SPLITS[1:] if len(problem.positions(split))}
    ids, truths = problem.sample_ids, _truths(problem)

    def by_split(values: Sequence[Any]) -> dict[str, str]:
        return {split: digest_contents({ids[place]: values[place] for place in places}) for split, places in judged.items()}

    return {
        "split_digests": {split: digest_ids(ids[place] for place in places) for split, places in judged.items()},
        "content_digests": by_split(learnable.contents),
        "label_digests": by_split(truths),
    }


def _truths(problem: Problem) -> list[Any]:
    """Of each sample: the name of its class, whatever other classes there are, or its values by name."""
    if problem.kind == "classification":
        return [problem.names[target] if target >= 0 else "" for target in problem.targets.tolist()]
    return [dict(zip(problem.names, row, strict=True)) for row in problem.targets.tolist()]


def summarise(learnable: LearningTask, *, source: str, num_quarantined: int) -> DataRecord:
    """What the record says of the data."""
    frame, problem = learnable.frame, learnable.problem
    summary = DataRecord(
        source=source,
        num_samples=len(frame),
        num_quarantined=num_quarantined,
        splits={split: len(positions) for split, positions in problem.splits.items()},
        digest=learnable.key,
        **digest_judged(learnable),
    )
    if problem.kind == "classification":
        summary.class_counts = {
            str(split): {str(name): int(count) for name, count in rows["label"].value_counts().items()}
            for split, rows in frame[frame["split"] != ""].groupby("split")
        }
    else:
        summary.targets_summary = _describe(frame[list(problem.names)])
    if learnable.inputs is not None:
        summary.inputs_summary = _describe(pd.DataFrame(learnable.inputs, columns=list(learnable.input_names)))
    return summary


def _describe(numbers: pd.DataFrame) -> dict[str, dict[str, float | int | None]]:
    described = numbers.describe()
    return {str(name): {str(k): float(v) for k, v in described[name].items()} for name in numbers.columns}
