"""The small files that say how it went: `.done` and `.failed` of a job, and `quarantine.csv`. Values to text and back.

Names carry the job and a UTC time that sorts; no record holds an absolute path, so a copied folder works. Files that were set
aside stand in `quarantine.csv`, each with its reason: never silently dropped, never replaced.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from datetime import datetime
from pathlib import Path
from sys import intern
from typing import Any

from unchoke.core.checksums import making_sense, read_checked, write_checked
from unchoke.core.fingerprint import digest
from unchoke.core.input_file import parse_json

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
    stamp: tuple[int, ...] = ()
    """When the artefact was last written, and when anything about it changed, in nanoseconds."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values; `seal` is a checksum of the others."""
        plain = parse_json(json.dumps(asdict(self)))
        return {**plain, "seal": digest(plain)}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> DoneRecord:
        """The record in parsed JSON; `KeyError`, `TypeError` or `ValueError` if it is not one, or not as it was written."""
        fields = dict(value)
        if (seal := fields.pop("seal", None)) is not None and seal != digest(fields):
            raise ValueError("it is not as it was written")
        fields["failed_items"] = tuple((str(item), str(reason)) for item, reason in fields["failed_items"])
        fields["stamp"] = tuple(fields.get("stamp", ()))
        info = fields.get("info", {}).items()  # much the same in every record: its words are kept once
        fields["info"] = {intern(name): intern(text) if type(text) is str else text for name, text in info}
        return cls(**fields)


def record_name(job_id: str, suffix: str, *, when: datetime) -> str:
    """``job_1a2b3c4d-00012_20260131T101500.123456Z.done``"""
    return f"{PREFIX}{job_id}_{when.strftime('%Y%m%dT%H%M%S.%f')}Z{suffix}"


def job_of_record(name: str) -> str | None:
    """The job a record's name speaks of, or None for any other file."""
    match = _NAME.fullmatch(name)
    return match["job_id"] if match else None


@dataclass(frozen=True)
class QuarantineRow:
    """`times` counts the different states in which this file was tried and failed."""

    sample_id: str
    path: str
    stage: str
    reason: str
    times: int = 1

    def to_dict(self) -> dict[str, str | int]:
        return asdict(self)


def save_quarantine(file: Path, entries: Iterable[QuarantineRow]) -> list[QuarantineRow]:
    """Write today's entries, counting on from what the file said; no entries, no file."""
    before = {entry.sample_id: entry for entry in load_quarantine(file)}
    counted = []
    for entry in entries:
        if (old := before.get(entry.sample_id)) is not None:
            entry = replace(entry, times=old.times + (old.reason != entry.reason))
        counted.append(entry)
    if not counted:
        file.unlink(missing_ok=True)
        return []
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)  # a bare "\r" would end a row
    writer.writerow([field.name for field in fields(QuarantineRow)])
    writer.writerows(astuple(entry) for entry in counted)
    write_checked(file, text.getvalue().encode("utf-8"))
    return counted


def load_quarantine(file: Path) -> list[QuarantineRow]:
    """The entries of the file; none if it does not exist."""
    if not file.exists():
        return []
    again = f"delete {file.name}: it is written anew, and counts from one"
    data = read_checked(file, try_=again)
    with making_sense(file, try_=again):
        rows = list(csv.DictReader(io.StringIO(data.decode("utf-8"), newline="")))
        return [QuarantineRow(row["sample_id"], row["path"], row["stage"], row["reason"], int(row["times"])) for row in rows]
