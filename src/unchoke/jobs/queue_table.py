"""`jobs_queue.csv`: the plan as a file. Jobs to CSV text and back; the same jobs always give the same bytes.

Lists of ids are JSON inside a quoted field, so ids may hold commas, quotes, line breaks or bytes that are no text. Files are
read and written by `queue`, not here.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from unchoke.core.errors import DataError
from unchoke.jobs.job_plan import Job, check_output

COLUMNS = ("job_id", "fingerprint", "first", "last", "num_items", "items", "contents", "inputs", "output")
_LONGEST_FIELD = 2**31 - 1


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
        try_="delete jobs_queue.csv: the plan is made anew, and finished jobs whose items are the same still count",
    )


@contextmanager
def _long_fields_allowed() -> Iterator[None]:
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(before)
