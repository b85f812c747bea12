"""`jobs_queue.csv`: the plan as a file of one row per job. Jobs in, rows out, and back.

The same jobs always give the same bytes. Lists of ids are JSON inside a quoted field, so ids may hold commas, quotes, line breaks
or bytes that are no text.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from unchoke.core.checksums import has_checksum, open_checked, write_checked_pieces
from unchoke.core.errors import DataError
from unchoke.jobs.job_plan import Job, check_output

PLAN_AGAIN = "delete jobs_queue.csv: the plan is made anew, and finished jobs whose items are the same still count"
COLUMNS = ("job_id", "fingerprint", "first", "last", "num_items", "items", "contents", "inputs", "output")
_LONGEST_FIELD = 2**31 - 1


def save_jobs(path: Path, jobs: Iterable[Job]) -> None:
    """Write the plan, sorted by fingerprint and place, and vouch for it."""
    ordered = sorted(jobs, key=lambda job: (job.fingerprint, job.first))
    write_checked_pieces(path, chain([_to_row(COLUMNS)], map(render_job, ordered)))


def render_job(job: Job) -> bytes:
    """A job as its row."""
    members = len(job.items), job.items_json, job.contents_json
    return _to_row((job.job_id, job.fingerprint, job.first, job.last, *members, job.inputs, job.output))


def load_jobs(path: Path) -> Iterator[Job]:
    """The jobs of a plan; a `DataError` names the row that cannot be read."""
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        with open_checked(path, try_=PLAN_AGAIN) as file:
            vouched = has_checksum(path)
            rows = csv.DictReader(line.decode("utf-8", "surrogateescape") for line in file)
            if missing := [name for name in COLUMNS if name not in (rows.fieldnames or ())]:
                raise _unreadable(f"it lacks the columns {', '.join(missing)}")
            for place, row in enumerate(rows, start=2):
                try:
                    yield _job(row, vouched=vouched)
                except (TypeError, ValueError) as error:
                    raise _unreadable(f"row {place}: {error}") from error
    finally:
        csv.field_size_limit(before)


def _job(row: dict[str, str], *, vouched: bool) -> Job:
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
        raise ValueError(f"{len(job.items)} items, but {len(job.contents)} contents, and {row['num_items']} were counted")
    return job


def _to_row(cells: Sequence[object]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode("utf-8")


def _unreadable(why: str) -> DataError:
    return DataError("jobs_queue.csv cannot be read", code="damaged-queue", why=why, try_=PLAN_AGAIN)
