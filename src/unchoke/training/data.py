"""What heads are trained on: a source of cached features, a problem, and the scale of each feature.

In: anything that satisfies `FeatureSource` (float16 rows, usually memory-mapped) and a `Problem` (targets and splits).
Out: checked values, and a `Standardiser` fitted by streaming. It never holds more than one chunk of features as float32 or
float64, and knows nothing of files or encoders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unchoke.core.errors import DataError, list_some
from unchoke.core.fingerprint import digest, digest_bytes, digest_contents, digest_ids
from unchoke.core.record import DataRecord
from unchoke.data.file_findings import UnscoredSample, find_unscored
from unchoke.data.sample_set import Samples, TaskSpec
from unchoke.data.several_labels import MULTI_LABEL, label_cells, label_matrix
from unchoke.data.table import SEVERAL

ProblemKind = Literal["classification", "multi_label", "regression", "segmentation"]
Positions = NDArray[np.int64]
CHUNK_VALUES = 4096 * 1280
"""How many feature values are read at a time: 10 MB of float16."""


class FeatureSource(Protocol):
    """Cached features by position. View 0 is the plain picture, views 1 and up are augmented ones."""

    @property
    def num_samples(self) -> int: ...
    @property
    def num_views(self) -> int: ...
    @property
    def dim(self) -> int: ...

    def rows(self, positions: Positions, views: Positions | int = 0) -> NDArray[np.float16]:
        """(n, dim): one view of each sample, the same for all or one per row."""
        ...

    def all_views(self, positions: Positions) -> NDArray[np.float16]:
        """(n, num_views, dim)."""
        ...


class ArraySource:
    """A `FeatureSource` over an array (n, dim) or (n, views, dim): for tests, notebooks and features made elsewhere."""

    def __init__(self, feats: NDArray[Any]) -> None:
        if feats.ndim not in (2, 3):
            raise DataError(
                f"features of shape {feats.shape} cannot be trained on",
                code="bad-feature-shape",
                why="features are (samples, dim) or (samples, views, dim)",
                try_="reshape the array first",
            )
        cube = feats if feats.ndim == 3 else feats[:, None, :]
        self._cube = cube if cube.dtype == np.float16 else cube.astype(np.float16)
        self.num_samples, self.num_views, self.dim = (int(size) for size in cube.shape)

    def rows(self, positions: Positions, views: Positions | int = 0) -> NDArray[np.float16]:
        rows: NDArray[np.float16] = self._cube[positions, views]
        return rows

    def all_views(self, positions: Positions) -> NDArray[np.float16]:
        return self._cube[positions]


@dataclass(frozen=True, eq=False)
class FirstColumns:
    """The first `dim` numbers of every row of another source."""

    source: FeatureSource
    dim: int

    @property
    def num_samples(self) -> int:
        return self.source.num_samples

    @property
    def num_views(self) -> int:
        return self.source.num_views

    def rows(self, positions: Positions, views: Positions | int = 0) -> NDArray[np.float16]:
        return self.source.rows(positions, views)[:, : self.dim]

    def all_views(self, positions: Positions) -> NDArray[np.float16]:
        return self.source.all_views(positions)[:, :, : self.dim]


@dataclass(frozen=True, eq=False)
class Problem:
    """What to learn. `targets` is int64 (N,) class numbers, float32 (N, T) values, or 0 and 1 for each of several labels;
    `splits` maps "train", "val" and "test" to positions in the source (val and test may be empty); rows in no split are never
    looked at.
    """

    kind: ProblemKind
    names: tuple[str, ...]
    targets: NDArray[Any]
    splits: Mapping[str, Positions]
    sample_ids: Sequence[str]

    def positions(self, split: str) -> Positions:
        """The positions of a split; empty if there is no such split."""
        return np.asarray(self.splits.get(split, ()), dtype=np.int64)

    @property
    def num_outputs(self) -> int:
        return len(self.names)

    def digest(self) -> str:
        """A text that changes whenever anything about the problem does."""
        splits = {name: digest_bytes(self.positions(name).tobytes()) for name in sorted(self.splits)}
        targets = digest_bytes(np.ascontiguousarray(self.targets).tobytes())
        return digest([self.kind, list(self.names), targets, splits, list(self.sample_ids)])


def check_problem(problem: Problem, source: FeatureSource) -> None:
    """Raise one `DataError` that lists everything that keeps this problem from being trained on these features."""
    faults = [*_shape_faults(problem, source)] or [*_split_faults(problem, source)]
    if not faults:
        used = np.concatenate([problem.positions(name) for name in problem.splits])
        targets = problem.targets[used]
        if problem.kind == "classification":
            wrong, reason = (targets < 0) | (targets >= problem.num_outputs), f"a class outside 0 to {problem.num_outputs - 1}"
        else:
            wrong, reason = ~np.isfinite(targets).all(axis=1), "a target that is not a number"
        if wrong.any():
            faults.append(f"{int(wrong.sum())} samples have {reason} ({list_some([problem.sample_ids[i] for i in used[wrong]])})")
    if faults:
        raise DataError(
            f"this problem cannot be trained: {'; '.join(faults)}",
            code="untrainable",
            why="every sample needs features, a target and at most one split",
            try_="run `unchoke check` on the data, then the same command again",
        )


def _shape_faults(problem: Problem, source: FeatureSource) -> Iterator[str]:
    for what, count in (("targets", len(problem.targets)), ("sample ids", len(problem.sample_ids))):
        if count != source.num_samples:
            yield f"{count} {what} for {source.num_samples} samples"
    shape = (len(problem.targets),) if problem.kind == "classification" else (len(problem.targets), problem.num_outputs)
    if problem.targets.shape != shape:
        yield f"targets of shape {problem.targets.shape}, expected {shape}"
    if problem.num_outputs == 0:
        yield "no class or target names"


def _split_faults(problem: Problem, source: FeatureSource) -> Iterator[str]:
    if len(problem.positions("train")) == 0:
        yield "the train split is empty"
    together = np.concatenate([problem.positions(name) for name in problem.splits])
    if len(together) and (together.min() < 0 or together.max() >= source.num_samples):
        yield f"a split points outside the {source.num_samples} samples"
        return
    positions, counts = np.unique(together, return_counts=True)
    twice = [problem.sample_ids[position] for position in positions[counts > 1]]
    if twice:
        yield f"{len(twice)} samples are in more than one split ({list_some(twice)})"


@dataclass(frozen=True, eq=False)
class Standardiser:
    """Mean of each feature and what it is divided by, float32 (dim,): about its deviation; 1 for one that never varies."""

    mean: NDArray[np.float32]
    std: NDArray[np.float32]


def fit_standardiser(source: FeatureSource, positions: Positions) -> Standardiser:
    """The scale of view 0 of the samples at `positions` (pass the train split only), streamed, summed in float64.

    No feature is taken to vary less than half of them do: to blow up those that hardly vary makes noise count like the rest, and
    with a handful of samples some agree by chance (docs/claims-history.md, *What brings how much*).
    Only the plain picture is measured: augmented views share its scale, and reading them all would cost a pass per view.
    """
    chunk = max(1, CHUNK_VALUES // source.dim // 4)
    count, mean, spread = 0, np.zeros(source.dim), np.zeros(source.dim)
    for start in range(0, len(positions), chunk):
        rows = source.rows(np.sort(positions[start : start + chunk]), 0).astype(np.float64)
        if bad := int((~np.isfinite(rows).all(axis=1)).sum()):
            raise DataError(
                f"{bad} feature rows hold values that are not finite",
                code="features-not-finite",
                why="the cached features are damaged, or overflowed float16 when they were made",
                try_="delete the features folder and run `unchoke extract` again",
            )
        shift = rows.mean(axis=0) - mean
        total = count + len(rows)
        spread += rows.var(axis=0) * len(rows) + shift**2 * (count * len(rows) / total)
        mean += shift * (len(rows) / total)
        count = total
    std = np.sqrt(spread / max(count, 1))
    varies = std > 1e-6 * np.maximum(1.0, np.abs(mean))
    if varies.any():
        std = np.maximum(std, np.median(std[varies]))
    std[~varies] = 1.0
    return Standardiser(mean.astype(np.float32), std.astype(np.float32))


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


def read_targets(task: TaskSpec, frame: pd.DataFrame) -> NDArray[Any]:
    """The targets of samples in a table, as a `Problem` has them."""
    if task.kind == "classification":
        return pd.Categorical(frame["label"], categories=list(task.names)).codes.astype(np.int64)
    if task.kind == MULTI_LABEL:
        return label_matrix(frame["label"].tolist(), task.names)
    return frame[list(task.names)].to_numpy(dtype=np.float32)


def build_problem(
    samples: Samples, contents: pd.Series[str], kept: NDArray[np.bool_], *, alike: Sequence[str] | None = None
) -> LearningTask:
    """Only `kept` samples, in the order of the store; copies that would spoil the score are in no split. `alike` are contents of
    the kept, equal also for photos that are nearly the same.
    """
    frame = samples.frame[kept].reset_index(drop=True)
    unscored = find_unscored(replace(samples, frame=frame), contents[kept].tolist() if alike is None else alike)
    frame.loc[[one.row for one in unscored], "split"] = ""
    task = samples.task
    targets = read_targets(task, frame)
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
    if len(train) == 0 or (kind != "regression" and len(np.unique(targets[train], axis=0)) < 2):
        raise DataError(
            f"the train split has {len(train)} samples" + (" of a single class or set of labels" if len(train) else ""),
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
    if problem.kind == MULTI_LABEL:
        return label_cells(problem.targets, problem.names)
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
    if problem.kind != "regression":
        labels = frame["label"].str.split(SEVERAL).explode() if problem.kind == MULTI_LABEL else frame["label"]
        labels = labels[labels.isin(problem.names)]
        splits = frame["split"].loc[labels.index]
        summary.class_counts = {
            str(split): {str(name): int(count) for name, count in found.value_counts().items()}
            for split, found in labels[splits != ""].groupby(splits[splits != ""])
        }
    else:
        summary.targets_summary = _describe(frame[list(problem.names)])
    if learnable.inputs is not None:
        summary.inputs_summary = _describe(pd.DataFrame(learnable.inputs, columns=list(learnable.input_names)))
    return summary


def _describe(numbers: pd.DataFrame) -> dict[str, dict[str, float | int | None]]:
    described = numbers.describe()
    return {str(name): {str(k): float(v) for k, v in described[name].items()} for name in numbers.columns}
