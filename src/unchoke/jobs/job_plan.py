"""Which jobs there are, and the plan as CSV text. Items and their contents come in, jobs go out; pure, no files.

A plan only ever grows. Jobs keep their members, ordinals and output, so adding items never changes an old job. When the content
of a member changes, its job keeps its place and gets new `inputs`: that one job is redone. A member that is no longer wanted
stays where it is (its rows are simply not asked for) until its job has to be redone anyway; then it is left out.

`jobs_queue.csv` holds the plan; the same jobs always give the same bytes. Lists of ids are JSON inside a quoted field, so ids may
hold commas, quotes, line breaks or bytes that are no text.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import PurePosixPath

from unchoke.core.errors import DataError, list_some
from unchoke.core.fingerprint import digest
from unchoke.core.workspace import safe_name

DEFAULT_JOB_SIZE = 64
PLAN_AGAIN = "delete jobs_queue.csv: the plan is made anew, and finished jobs whose items are the same still count"
COLUMNS = ("job_id", "fingerprint", "first", "last", "num_items", "items", "contents", "inputs", "output")
_LONGEST_FIELD = 2**31 - 1


@dataclass(frozen=True)
class Job:
    """Some items, and the one artefact made of them.

    `first` and `last` are ordinals in the plan of this fingerprint and are never reused; `inputs` is a digest over the items
    and their contents; `output` is relative to the queue's folder, with forward slashes.
    """

    job_id: str
    first: int
    last: int
    items: tuple[str, ...]
    inputs: str
    output: str
    contents: tuple[str, ...] = ()
    fingerprint: str = ""


def plan_jobs(
    items: Sequence[tuple[str, str]],
    *,
    fingerprint: str,
    output_pattern: str,
    previous: Sequence[Job],
    job_size: int = DEFAULT_JOB_SIZE,
    unfinished: Collection[str] = (),
) -> list[Job]:
    """Every job of `fingerprint`: those in `previous`, brought up to date, then new ones for the items that are new.

    `items` are pairs of id and content digest. `output_pattern` is formatted with `first` and `last`, for instance
    ``"encoder_x-1a2b3c4d/img_{first:06d}-{last:06d}.npz"``. `unfinished` names jobs that have to be done anyway; members of
    theirs that are no longer wanted are left out, down to a job without items, which needs no work.
    """
    wanted = _contents_by_item(items)
    kept = [
        _brought_up_to_date(job, wanted, must_run=job.job_id in unfinished) for job in previous if job.fingerprint == fingerprint
    ]
    known = {item for job in kept for item in job.items}
    fresh = ((item, content) for item, content in items if item not in known)
    ordinal = max((job.last for job in kept), default=-1) + 1
    number = max((int(job.job_id.rpartition("-")[2]) for job in kept), default=-1) + 1
    while group := tuple(islice(fresh, job_size)):
        kept.append(_new_job(group, fingerprint=fingerprint, number=number, first=ordinal, output_pattern=output_pattern))
        ordinal += len(group)
        number += 1
    return kept


def inputs_digest(fingerprint: str, items: Sequence[str], contents: Sequence[str]) -> str:
    """What a job's artefact depends on, as one short text."""
    return digest([fingerprint, list(items), list(contents)])[:32]


def check_output(output: str) -> str:
    """`output` as it is, refused if it could lie outside the queue's folder."""
    path = PurePosixPath(output)
    if not output or path.is_absolute() or ".." in path.parts or "\\" in output or re.match(r"[A-Za-z]:", output):
        raise DataError(
            f"{output!r} is not a path inside the queue's folder",
            why="a job writes only below the folder of its queue",
            try_="remove that row from jobs_queue.csv, or delete the file: the plan is then made anew",
        )
    return output


def _contents_by_item(items: Sequence[tuple[str, str]]) -> dict[str, str]:
    wanted = dict(items)
    if len(wanted) != len(items):
        seen: set[str] = set()
        twice = [item for item, _ in items if item in seen or seen.add(item)]  # type: ignore[func-returns-value]
        raise DataError(
            f"{len(twice)} items occur more than once: {list_some(twice)}",
            why="an item's id says which row of which artefact is its own",
            try_="give every item its own id",
        )
    return wanted


def _brought_up_to_date(job: Job, wanted: Mapping[str, str], *, must_run: bool) -> Job:
    """The job as it must be done now; the very same one if nothing it was made of has changed."""
    changed = any(wanted.get(item, content) != content for item, content in zip(job.items, job.contents, strict=True))
    vanished = must_run and any(item not in wanted for item in job.items)
    if not (changed or vanished):
        return job
    items = tuple(item for item in job.items if item in wanted)
    contents = tuple(wanted[item] for item in items)
    return replace(job, items=items, contents=contents, inputs=inputs_digest(job.fingerprint, items, contents))


def _new_job(group: tuple[tuple[str, str], ...], *, fingerprint: str, number: int, first: int, output_pattern: str) -> Job:
    items, contents = tuple(item for item, _ in group), tuple(content for _, content in group)
    last = first + len(group) - 1
    return Job(
        job_id=f"{safe_name(fingerprint[:8])}-{number:05d}",
        first=first,
        last=last,
        items=items,
        inputs=inputs_digest(fingerprint, items, contents),
        output=check_output(output_pattern.format(first=first, last=last)),
        contents=contents,
        fingerprint=fingerprint,
    )


def jobs_to_csv(jobs: Iterable[Job]) -> str:
    """One row per job, sorted by fingerprint and place."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_to_row(job) for job in sorted(jobs, key=lambda job: (job.fingerprint, job.first)))
    return text.getvalue()


def jobs_from_csv(text: str) -> list[Job]:
    """The jobs of a table; a `DataError` names the row that cannot be read."""
    with _long_fields_allowed():
        reader = csv.DictReader(io.StringIO(text, newline=""))
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise _unreadable(f"it lacks the columns {', '.join(missing)}")
        return [_from_row(row, place=place) for place, row in enumerate(reader, start=2)]


def _to_row(job: Job) -> tuple[object, ...]:
    items, contents = json.dumps(job.items), json.dumps(job.contents)
    return (job.job_id, job.fingerprint, job.first, job.last, len(job.items), items, contents, job.inputs, job.output)


def _from_row(row: dict[str, str], *, place: int) -> Job:
    try:
        job = Job(
            job_id=row["job_id"],
            first=int(row["first"]),
            last=int(row["last"]),
            items=tuple(json.loads(row["items"])),
            inputs=row["inputs"],
            output=row["output"],
            contents=tuple(json.loads(row["contents"])),
            fingerprint=row["fingerprint"],
        )
    except (TypeError, ValueError) as error:
        raise _unreadable(f"row {place}: {error}") from error
    if len(job.items) != len(job.contents):
        raise _unreadable(f"row {place}: {len(job.items)} items but {len(job.contents)} contents")
    check_output(job.output)
    return job


def _unreadable(why: str) -> DataError:
    return DataError(
        "jobs_queue.csv cannot be read",
        why=why,
        try_=PLAN_AGAIN,
    )


@contextmanager
def _long_fields_allowed() -> Iterator[None]:
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(before)
