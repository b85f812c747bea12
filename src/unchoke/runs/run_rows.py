"""The rows of the record as plain values, and pure questions about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Status = Literal["running", "done", "failed", "interrupted"]
FINAL = -1
"""The step of a value that belongs to the run as a whole."""


@dataclass(frozen=True)
class RunRow:
    """One run. `key` is the digest of settings and data that decides whether a command resumes it."""

    number: int
    name: str
    key: str
    command: str
    status: Status
    created_at: str
    finished_at: str | None
    settings: dict[str, Any]
    data: dict[str, Any]
    encoder: str
    fingerprint: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class MetricRow:
    """A measured value, at a step or (`FINAL`) of the whole run, with the bounds of its interval where there are any."""

    split: str
    name: str
    value: float
    step: int = FINAL
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class MemoryRow:
    """Planned against measured, in bytes; None where one of them is unknown."""

    what: str
    planned_bytes: int | None = None
    measured_bytes: int | None = None


@dataclass(frozen=True)
class Artefact:
    """A file of the run, relative to the run's folder."""

    path: str
    sha256: str
    size_bytes: int


def value_of_run(metrics: Iterable[MetricRow], *, higher_is_better: bool) -> float | None:
    """One number for a run: its final value, else the best over its steps; NaN never counts."""
    sound = [metric for metric in metrics if metric.value == metric.value]
    final = [metric.value for metric in sound if metric.step == FINAL]
    values = final or [metric.value for metric in sound]
    if not values:
        return None
    return max(values) if higher_is_better else min(values)


def compare(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Runs side by side: every list has one entry per run, None where a run lacks it. Settings that are equal are left out."""
    metrics = [_flat_metrics(record["metrics"]) for record in records]
    memory = [
        {f"{what}.{kind}": value for what, row in record["memory"].items() for kind, value in row.items()} for record in records
    ]
    settings = _side_by_side([record["settings"] for record in records])
    return {
        "runs": [record["name"] for record in records],
        "status": [record["status"] for record in records],
        "encoder": [record["encoder"] for record in records],
        "settings": {name: values for name, values in settings.items() if any(value != values[0] for value in values)},
        "metrics": _side_by_side(metrics),
        "timings": _side_by_side([record["timings"] for record in records]),
        "memory": _side_by_side(memory),
    }


def _flat_metrics(metrics: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    return {f"{split}.{name}": row["value"] for split, rows in metrics.items() for name, row in rows.items()}


def _side_by_side(columns: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for column in columns for name in column)
    return {name: [column.get(name) for column in columns] for name in names}
