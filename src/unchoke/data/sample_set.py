"""Plain values of a scan: how the user described the data, and the table of samples that were found.

Light to import: pandas is loaded only by the functions that build a table. Nothing here reads a disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from unchoke.core.choices import Choice
from unchoke.core.findings import Finding
from unchoke.core.listing import FileEntry
from unchoke.core.remote import DataPlace

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

FIXED_COLUMNS = ("sample_id", "path", "relative", "size_bytes", "mtime_ns", "group", "split", "fold", "likely_group")
LIKELY_GROUP = FIXED_COLUMNS[-1]
SPLITS = ("train", "val", "test")
_INPUT_PREFIX = "input/"
SPLIT_WORDS = {
    "train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val",
    "test": "test", "testing": "test",
}  # fmt: skip


def input_column(name: str) -> str:
    """The column that holds the extra input `name` in a table of samples and in the manifest."""
    return _INPUT_PREFIX + name


def is_input(column: str) -> bool:
    """Whether a column holds an extra input."""
    return column.startswith(_INPUT_PREFIX)


def is_reserved(name: str) -> bool:
    """Whether a table of samples needs this name for itself, so that no target may bear it."""
    return name in FIXED_COLUMNS or is_input(name)


@dataclass(frozen=True)
class DataSource:
    """Where the data is and which columns mean what; every field but `data` may be left to guess."""

    data: DataPlace
    images: tuple[DataPlace, ...] = ()
    id: str | None = None
    path: str | None = None
    label: str | None = None
    targets: tuple[str, ...] = ()
    group: str | None = None
    split: str | None = None
    fold_column: str | None = None
    long: tuple[str, str] | None = None
    inputs: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    dropped: frozenset[str] = frozenset()
    """Ids of samples that somebody decided to leave out."""
    strict: bool = False
    group_is_preset: bool = False
    """Whether a preset named the group: a table without that column does without it, which is said."""
    suspects: bool = True
    """Whether a column that looks like a group is pointed out; not where somebody said that there is none."""
    failure_rate: float = 0.05
    """The share of files that may be unusable before that is an error."""
    multi_label: bool | None = None
    """Whether a cell holds several labels (True) or the name of one class, whatever stands in it (False)."""
    asked: tuple[str, ...] = ()
    """Columns that a sample of what is to be handed in asks for."""
    unpack_to: Path | None = None
    """Where pictures inside a table are written; None leaves them there."""

    @property
    def group_column(self) -> str | None:
        """The column that holds the groups; None where there are none, or where paths tell them."""
        return None if self.group is None or self.group.startswith("path:") else self.group


@dataclass(frozen=True)
class TaskSpec:
    """What is learnt: `names` holds the class names, sorted, or the target names."""

    kind: Literal["classification", "multi_label", "regression"]
    names: tuple[str, ...]


@dataclass(frozen=True)
class Samples:
    """One row per sample, sorted by `sample_id`, which is unique.

    Columns: sample_id, path (absolute, or a URL), relative, size_bytes, mtime_ns, `label` or one float column per target, one
    float column `input/NAME` per extra input (`inputs` holds the names), group and split (both "" where there is none), and
    `fold` after a k-fold division. `group_name` is the column the groups came from, `fold_name` that of the user's own folds:
    until splits are assigned, `fold` then holds what it says. Where no group was named and a column looks like one,
    `likely_group` has its values.
    """

    task: TaskSpec
    frame: pd.DataFrame
    group_name: str = ""
    inputs: tuple[str, ...] = ()
    fold_name: str = ""

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def value_columns(self) -> tuple[str, ...]:
        """The columns that hold what is learnt."""
        return self.task.names if self.task.kind == "regression" else ("label",)

    @property
    def input_columns(self) -> tuple[str, ...]:
        """The columns that hold what the network is given beside the picture."""
        return tuple(input_column(name) for name in self.inputs)

    def with_columns(self, **columns: Any) -> Samples:
        """The same samples with columns added or replaced."""
        return replace(self, frame=self.frame.assign(**columns))

    def subset(self, kept: Sequence[bool]) -> Samples:
        """Those of the samples that are `kept`."""
        return replace(self, frame=self.frame[list(kept)].reset_index(drop=True))


@dataclass(frozen=True)
class Scan:
    """What a scan found: the usable samples, every problem, and what was guessed with its reason."""

    samples: Samples
    findings: list[Finding] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    dropped: Mapping[str, str] = field(default_factory=dict)
    """Samples that are not among them because somebody left them out: their ids, and where their files lie."""


def build_samples(
    task: TaskSpec,
    entries: Sequence[FileEntry],
    *,
    sample_ids: Sequence[str],
    values: dict[str, Any],
    inputs: dict[str, Any] | None = None,
    groups: Sequence[str] | None = None,
    splits: Sequence[str] | None = None,
    folds: Sequence[str] | None = None,
    group_name: str = "",
    fold_name: str = "",
    likely_groups: Sequence[str] | None = None,
) -> Samples:
    """Columns side by side, in the order of `sample_id`. `values` and `inputs` map names to columns."""
    import pandas as pd

    count, extra = len(entries), inputs or {}
    frame = pd.DataFrame(
        {
            "sample_id": pd.Series(list(sample_ids), dtype="str"),
            "path": pd.Series([entry.path for entry in entries], dtype="str"),
            "relative": pd.Series([entry.relative for entry in entries], dtype="str"),
            "size_bytes": pd.Series([entry.size_bytes for entry in entries], dtype="int64"),
            "mtime_ns": pd.Series([entry.mtime_ns for entry in entries], dtype="int64"),
            **{name: pd.Series(column, dtype="str" if name == "label" else "float64") for name, column in values.items()},
            **{input_column(name): pd.Series(column, dtype="float64") for name, column in extra.items()},
            "group": pd.Series([""] * count if groups is None else list(groups), dtype="str"),
            "split": pd.Series([""] * count if splits is None else list(splits), dtype="str"),
            **({} if folds is None else {"fold": pd.Series(list(folds), dtype="str")}),
            **({} if likely_groups is None else {LIKELY_GROUP: pd.Series(list(likely_groups), dtype="str")}),
        }
    )
    frame = frame.sort_values("sample_id", kind="stable", ignore_index=True)
    return Samples(task, frame, group_name, tuple(extra), fold_name)


def places_in(earlier: pd.Series[str], names: pd.Series[str]) -> NDArray[np.int64]:
    """Where each of `names` stands in the `earlier` ones, -1 where it does not; the last place of one that comes twice."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    known, wanted = (pa.table({"": column})[0].cast(pa.large_string()) for column in (earlier, names))
    if known.equals(wanted):
        return np.arange(len(names))
    backwards = pc.index_in(wanted, value_set=known[::-1]).fill_null(len(known)).to_numpy()
    return np.asarray(len(known) - 1 - backwards, np.int64)
