"""Which jobs there are, and `jobs_queue.csv`, the file that says so. Items and their contents come in, jobs go out.

A plan only ever grows. Jobs keep their members, ordinals and output, so adding items never changes an old job. When the content
of a member changes, its job keeps its place and gets new `inputs`: that one job is redone. A member that is no longer wanted
stays where it is (its rows are simply not asked for) until its job has to be redone anyway; then it is left out.

The file has a row for each job; the same jobs always give the same bytes. Lists of ids are JSON inside a quoted field, so ids may
hold commas, quotes, line breaks or bytes that are no text.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from unchoke.core.checksums import has_checksum, open_checked, write_checked_pieces
from unchoke.core.errors import DataError
from unchoke.core.fingerprint import digest
from unchoke.core.input_file import parse_json
from unchoke.core.workspace import safe_name, stays_below
from unchoke.jobs.name_places import Places

DEFAULT_JOB_SIZE = 64
COLUMNS = ("job_id", "fingerprint", "first", "last", "num_items", "items", "contents", "inputs", "output")
_PLAN_AGAIN = "delete jobs_queue.csv: the plan is made anew, and finished jobs whose items are the same still count"
_LONGEST_FIELD = 2**31 - 1


@dataclass(frozen=True)
class Job:
    """Some items, and the one artefact made of them.

    `first` and `last` are ordinals in the plan of this fingerprint and are never reused; `inputs` is a digest over the items
    and their contents; `output` is relative to the queue's folder, with forward slashes. Items and contents are kept as the
    JSON that the plan's file has: as Python objects those of ten million photos take twice as much.
    """

    job_id: str
    first: int
    last: int
    items_json: str
    inputs: str
    output: str
    contents_json: str
    fingerprint: str = ""

    @classmethod
    def of(cls, job_id: str, first: int, items: Sequence[str], contents: Sequence[str], *, output: str, fingerprint: str) -> Job:
        """The job of these items."""
        members, inputs = (json.dumps(list(items)), json.dumps(list(contents))), _inputs_digest(fingerprint, items, contents)
        last = first + len(items) - 1
        return cls(job_id, first, last, members[0], inputs, check_output(output), members[1], fingerprint)

    @property
    def items(self) -> tuple[str, ...]:
        return tuple(parse_json(self.items_json))

    @property
    def contents(self) -> tuple[str, ...]:
        return tuple(parse_json(self.contents_json))


def plan_jobs(
    ids: Sequence[str],
    contents: Sequence[str],
    *,
    fingerprint: str,
    output_pattern: str,
    previous: Sequence[Job],
    job_size: int = DEFAULT_JOB_SIZE,
    unfinished: Collection[str] = (),
) -> list[Job]:
    """Every job of `fingerprint`: those in `previous`, brought up to date, then new ones for the items that are new.

    `output_pattern` is formatted with `first` and `last`, for instance ``"encoder_x-1a2b3c4d/img_{first:06d}-{last:06d}.npz"``.
    `unfinished` names jobs that have to be done anyway; members of theirs that are no longer wanted are left out, down to a job
    without items, which needs no work.
    """
    places, planned, jobs = Places(ids), bytearray(len(ids)), list[Job]()
    begin = 0  # where the next job's items stand if nothing has changed
    for job in (job for job in previous if job.fingerprint == fingerprint):
        end = begin + 1 + job.last - job.first
        if _inputs_digest(fingerprint, ids[begin:end], contents[begin:end]) == job.inputs:  # as it mostly is
            planned[begin:end] = b"\1" * (end - begin)
            begin = end
            jobs.append(job)
            continue
        members, earlier = job.items, job.contents
        found = [(place, earlier[row]) for row, place in enumerate(places.find_all(members)) if place is not None]
        for place, _ in found:
            planned[place] = 1
            begin = place + 1
        items, now = [ids[place] for place, _ in found], [contents[place] for place, _ in found]
        must_shrink = job.job_id in unfinished and len(found) < len(members)
        if must_shrink or now != [content for _, content in found]:
            anew = Job.of(job.job_id, job.first, items, now, output=job.output, fingerprint=fingerprint)
            job = replace(anew, last=job.last)
        jobs.append(job)
    first = max((job.last for job in jobs), default=-1) + 1
    number = max((int(job.job_id.rpartition("-")[2]) for job in jobs), default=-1) + 1
    fresh = (place for place, is_planned in enumerate(planned) if not is_planned)
    while new := list(islice(fresh, job_size)):
        output = output_pattern.format(first=first, last=first + len(new) - 1)
        job_id = f"{safe_name(fingerprint[:8])}-{number:05d}"
        items, now = [ids[place] for place in new], [contents[place] for place in new]
        if new[-1] - new[0] == len(new) - 1:  # in one piece, which is quicker to read from a column
            items, now = list(ids[new[0] : new[-1] + 1]), list(contents[new[0] : new[-1] + 1])
        jobs.append(Job.of(job_id, first, items, now, output=output, fingerprint=fingerprint))
        first += len(new)
        number += 1
    return jobs


def _inputs_digest(fingerprint: str, items: Sequence[str], contents: Sequence[str]) -> str:
    """What a job's artefact depends on, as one short text."""
    return digest([fingerprint, list(items), list(contents)])[:32]


def check_output(output: str) -> str:
    """`output` as it is, refused if it could lie outside the queue's folder."""
    if not stays_below(output):
        raise DataError(
            f"{output!r} is not a path inside the queue's folder",
            code="outside-queue",
            why="a job writes only below the folder of its queue",
            try_="remove that row from jobs_queue.csv, or delete the file: the plan is then made anew",
        )
    return output


def save_jobs(path: Path, jobs: Iterable[Job]) -> None:
    """Write the plan, sorted by fingerprint and place, and vouch for it."""

    def rows() -> Iterator[bytes]:
        yield _to_row(COLUMNS)
        for job in sorted(jobs, key=lambda job: (job.fingerprint, job.first)):
            members = len(job.items), job.items_json, job.contents_json
            yield _to_row((job.job_id, job.fingerprint, job.first, job.last, *members, job.inputs, job.output))

    write_checked_pieces(path, rows())


def _to_row(cells: Sequence[object]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode("utf-8")


def load_jobs(path: Path) -> Iterator[Job]:
    """The jobs of a plan; a `DataError` names the row that cannot be read."""
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        with open_checked(path, try_=_PLAN_AGAIN) as file:
            vouched = has_checksum(path)
            rows = csv.DictReader(line.decode("utf-8", "surrogateescape") for line in file)
            if missing := [name for name in COLUMNS if name not in (rows.fieldnames or ())]:
                raise _unreadable(f"it lacks the columns {', '.join(missing)}")
            for place, row in enumerate(rows, start=2):
                try:
                    job = Job(
                        job_id=row["job_id"],
                        first=int(row["first"]),
                        last=int(row["last"]),
                        items_json=row["items"],
                        inputs=row["inputs"],
                        output=check_output(row["output"]),
                        contents_json=row["contents"],
                        fingerprint=row["fingerprint"],
                    )
                    if not vouched and not len(job.items) == len(job.contents) == int(row["num_items"]):
                        raise ValueError(f"{len(job.items)} items, {len(job.contents)} contents, {row['num_items']} counted")
                except (TypeError, ValueError) as error:
                    raise _unreadable(f"row {place}: {error}") from error
                yield job
    finally:
        csv.field_size_limit(before)


def _unreadable(why: str) -> DataError:
    return DataError("jobs_queue.csv cannot be read", code="damaged-queue", why=why, try_=_PLAN_AGAIN)
