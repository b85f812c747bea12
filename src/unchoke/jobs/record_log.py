"""Records of many finished jobs in one file: `jobs_done_00001.jsonl`, one line of JSON each. Records in, a file out, and back.

A `.done` file for each job is right while there are hundreds; a hundred thousand of them in one folder take as long to open as
their jobs' features. A log is written whole or not at all and is never added to: the next thousands make the next log. Its first
line counts and vouches for the others, and each line has a checksum of its own, so that of a damaged log only the damaged lines
are lost, and said. A line also has the times of its artefact when that was last written or read in full.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unchoke.core import atomic
from unchoke.core.fingerprint import digest, digest_bytes
from unchoke.core.input_file import read_plain
from unchoke.jobs.records import DoneRecord

LOG_PREFIX = "jobs_done_"
LOG_SUFFIX = ".jsonl"
_NONSENSE = (KeyError, TypeError, ValueError, AttributeError, RecursionError)
Stamp = tuple[int, int]
"""When a file was last written, and when anything about it changed, in nanoseconds; what is neither was not touched."""


@dataclass(frozen=True, slots=True)
class LoggedRecord:
    """A finished job's record, and the stamp of its artefact when that was known to be as the record says."""

    record: DoneRecord
    stamp: Stamp


@dataclass(frozen=True)
class RecordLog:
    """What was read of one log; `problem` says in words what of it could not be."""

    name: str
    records: dict[str, LoggedRecord]
    problem: str = ""


def stamp_of(found: os.stat_result) -> Stamp:
    """The stamp of a file."""
    return found.st_mtime_ns, found.st_ctime_ns


def log_name(number: int) -> str:
    """``jobs_done_00001.jsonl``"""
    return f"{LOG_PREFIX}{number:05d}{LOG_SUFFIX}"


def number_of_log(name: str) -> int | None:
    """The number in a log's name, or None for any other file."""
    number = name.removeprefix(LOG_PREFIX).removesuffix(LOG_SUFFIX)
    return int(number) if number.isdecimal() and name == log_name(int(number)) else None


def save_log(folder: Path, name: str, records: Iterable[LoggedRecord]) -> RecordLog:
    """Write a log whole, in place of one of that name."""
    kept = {one.record.job_id: one for one in records}
    lines = b"".join(_line(_to_dict(one)) for one in kept.values())
    atomic.write_bytes(folder / name, _line({"records": len(kept), "sha256": digest_bytes(lines)}) + lines)
    return RecordLog(name, kept)


def load_log(folder: Path, name: str) -> RecordLog:
    """The records of a log: all of them, or those that are as they were written."""
    try:
        data = read_plain(folder / name)
    except OSError as error:
        return RecordLog(name, {}, f"{name} cannot be read ({error.strerror}); the jobs in it will be done again")
    head, _, lines = data.partition(b"\n")
    num_records, is_whole = _promised(head, lines)
    found = list(_sound(lines, is_whole=is_whole))
    records = {one.record.job_id: one for one in found}
    if is_whole and len(records) == num_records:
        return RecordLog(name, records)
    lost = "some" if num_records is None else f"{num_records - len(records):,} of {num_records:,}"
    return RecordLog(name, records, f"{name} is damaged: {lost} records in it are lost, and their jobs will be done again")


def _promised(head: bytes, lines: bytes) -> tuple[int | None, bool]:
    """How many records there should be, and whether they are as they were written."""
    try:
        promised = json.loads(head)
        return int(promised["records"]), promised["sha256"] == digest_bytes(lines)
    except _NONSENSE:
        return None, False


def _sound(lines: bytes, *, is_whole: bool) -> Iterator[LoggedRecord]:
    """Those lines that are as they were written."""
    for line in lines.splitlines():
        try:
            fields: dict[str, Any] = json.loads(line)
            seal, stamp = fields.pop("seal"), fields.pop("stamp")
            if is_whole or seal == digest([fields, stamp]):
                yield LoggedRecord(DoneRecord.from_dict(fields), (int(stamp[0]), int(stamp[1])))
        except _NONSENSE:  # unchoke: ignore[blank-on-error]  whoever counts the lines says that one is lost
            continue


def _to_dict(one: LoggedRecord) -> dict[str, Any]:
    fields = {name: value for name, value in one.record.to_dict().items() if name != "seal"}
    return {**fields, "stamp": list(one.stamp), "seal": digest([fields, list(one.stamp)])}


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True).encode() + b"\n"
