"""The small files that say how a job went: `.done` and `.failed`, JSON, one per event. Values to text and back, and their names.

Names carry the job and a UTC time that sorts; no record holds an absolute path, so a copied folder works.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

PREFIX = "job_"
DONE = ".done"
FAILED = ".failed"
_NAME = re.compile(r"job_(?P<job_id>.+)_(?P<when>[0-9T.]+Z)\.(?:done|failed)")


@dataclass(frozen=True)
class JobResult:
    """What a job's body hands back: rows in the artefact, the items that failed and why, and the artefact's digest and size.

    An empty `sha256` means: read the artefact and work it out.
    """

    num_items: int
    failed_items: tuple[tuple[str, str], ...] = ()
    sha256: str = ""
    size_bytes: int = 0
    info: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DoneRecord:
    """A finished job: what went in (`inputs`), what came out, and how it went."""

    job_id: str
    inputs: str
    output: str
    sha256: str
    size_bytes: int
    num_items: int
    num_failed: int
    seconds: float
    finished_at: str
    attempts: int = 1
    failed_items: tuple[tuple[str, str], ...] = ()
    info: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> DoneRecord:
        """The record in parsed JSON; `KeyError`, `TypeError` or `ValueError` if it is not one."""
        fields = dict(value)
        fields["failed_items"] = tuple((str(item), str(reason)) for item, reason in fields["failed_items"])
        return cls(**fields)


@dataclass(frozen=True)
class FailedRecord:
    """One attempt that failed."""

    job_id: str
    inputs: str
    attempt: int
    error_type: str
    message: str
    traceback: str
    failed_at: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def failed_record(
    job_id: str, *, inputs: str, attempt: int, error: BaseException, traceback_text: str, failed_at: str
) -> FailedRecord:
    """The record of `error`; its own traceback is used where no text was brought along from elsewhere."""
    return FailedRecord(
        job_id=job_id,
        inputs=inputs,
        attempt=attempt,
        error_type=type(error).__name__,
        message=str(error),
        traceback=traceback_text or "".join(traceback.format_exception(error)),
        failed_at=failed_at,
    )


def record_name(job_id: str, suffix: str, *, when: datetime) -> str:
    """``job_1a2b3c4d-00012_20260131T101500.123456Z.done``"""
    return f"{PREFIX}{job_id}_{when.strftime('%Y%m%dT%H%M%S.%f')}Z{suffix}"


def job_of_record(name: str) -> str | None:
    """The job a record's name speaks of, or None for any other file."""
    match = _NAME.fullmatch(name)
    return match["job_id"] if match else None


def utc_now() -> datetime:
    return datetime.now(UTC)
