"""`jobs_queue.csv`: the plan as a file of one row per job. Jobs in, rows out, and back.

The same jobs always give the same bytes. Lists of ids are JSON inside a quoted field, so ids may hold commas, quotes, line breaks
or bytes that are no text. Rows are written one by one, and a job that was read keeps its place in the file instead of its
members: these are read when they are asked for. A plan of ten million items has a gigabyte of them.
"""

from __future__ import annotations

import csv
import io
import json
import os
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from io import BufferedReader
from pathlib import Path

from unchoke.core.checksums import has_checksum, open_checked, write_checked_pieces
from unchoke.core.errors import DataError
from unchoke.jobs.job_plan import Job, Names, check_output

PLAN_AGAIN = "delete jobs_queue.csv: the plan is made anew, and finished jobs whose items are the same still count"
COLUMNS = ("job_id", "fingerprint", "first", "last", "num_items", "items", "contents", "inputs", "output")
Members = tuple[tuple[str, ...], tuple[str, ...]]
_LONGEST_FIELD = 2**31 - 1
_RECENT_ROWS = 64


def save_jobs(path: Path, jobs: Iterable[Job]) -> list[Job]:
    """Write the plan, sorted by fingerprint and place, and vouch for it; the same jobs, with their members in that file."""
    ordered = sorted(jobs, key=lambda job: (job.fingerprint, job.first))
    rows = [_to_row(COLUMNS)]
    sizes = [len(rows[0])]

    def lines() -> Iterator[bytes]:
        yield rows[0]
        for job in ordered:
            row = render_job(job)
            sizes.append(len(row))
            yield row

    write_checked_pieces(path, lines())
    with path.open("rb") as file:
        source, offset = PlanFile(file, COLUMNS), sizes[0]
        for place, (job, num_bytes) in enumerate(zip(ordered, sizes[1:], strict=True)):
            ordered[place] = source.put(job, offset, num_bytes)
            offset += num_bytes
    return ordered


def load_jobs(path: Path) -> Iterator[Job]:
    """The jobs of a plan; a `DataError` names the row that cannot be read."""
    with open_checked(path, try_=PLAN_AGAIN) as file, _long_fields_allowed():
        lines = _Lines(file)
        reader = csv.reader(lines)
        header = next(reader, [])
        missing = [name for name in COLUMNS if name not in header]
        if missing:
            raise _unreadable(f"it lacks the columns {', '.join(missing)}")
        source, begin, vouched = PlanFile(file, header), lines.num_bytes, has_checksum(path)
        for place, cells in enumerate(reader, start=2):
            if cells:
                row = dict(zip(header, cells, strict=False))
                if not vouched:
                    _check_members(row, place=place)
                yield source.job(row, begin, lines.num_bytes - begin, place=place)
            begin = lines.num_bytes


def render_job(job: Job) -> bytes:
    """A job as its row."""
    items, contents = json.dumps(tuple(job.items)), json.dumps(tuple(job.contents))
    return _to_row((job.job_id, job.fingerprint, job.first, job.last, len(job.items), items, contents, job.inputs, job.output))


def _to_row(cells: Sequence[object]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode("utf-8")


class _Lines:
    """The lines of a file as text, counting the bytes handed out: a row may have several."""

    def __init__(self, file: BufferedReader) -> None:
        self._file, self.num_bytes = file, 0

    def __iter__(self) -> Iterator[str]:
        for line in self._file:
            self.num_bytes += len(line)
            yield line.decode("utf-8", "surrogateescape")


class PlanFile:
    """A plan that was read or written, kept open: what takes its place later does not move the rows that were found in it."""

    def __init__(self, file: BufferedReader, header: Sequence[str]) -> None:
        self._items, self._contents = header.index("items"), header.index("contents")
        self.members = lru_cache(_RECENT_ROWS)(self._members)
        if hasattr(os, "pread"):
            self._descriptor = os.dup(file.fileno())
            weakref.finalize(self, os.close, self._descriptor)
        else:  # Windows, where a file that is open cannot be replaced
            place = file.tell()
            file.seek(0)
            self._data = file.read()
            file.seek(place)

    def put(self, job: Job, offset: int, num_bytes: int) -> Job:
        """The job, with its members in the row at `offset`."""
        num = len(job.items)
        items, contents = FiledNames(self, offset, num_bytes, 0, num), FiledNames(self, offset, num_bytes, 1, num)
        return replace(job, items=items, contents=contents)

    def job(self, row: dict[str, str], offset: int, num_bytes: int, *, place: int) -> Job:
        """The job of the row at `offset`."""
        try:
            num = int(row["num_items"])
            return Job(
                job_id=row["job_id"],
                first=int(row["first"]),
                last=int(row["last"]),
                items=FiledNames(self, offset, num_bytes, 0, num),
                inputs=row["inputs"],
                output=check_output(row["output"]),
                contents=FiledNames(self, offset, num_bytes, 1, num),
                fingerprint=row["fingerprint"],
            )
        except (TypeError, ValueError, KeyError) as error:
            raise _unreadable(f"row {place}: {error}") from error

    def _members(self, offset: int, num_bytes: int) -> Members:
        """Ids and contents of the job whose row lies there."""
        if hasattr(os, "pread"):
            data = os.pread(self._descriptor, num_bytes, offset)
        else:
            data = self._data[offset : offset + num_bytes]
        try:
            with _long_fields_allowed():
                cells = next(csv.reader(io.StringIO(data.decode("utf-8", "surrogateescape"), newline="")))
            return tuple(json.loads(cells[self._items])), tuple(json.loads(cells[self._contents]))
        except (ValueError, IndexError, StopIteration) as error:
            raise _unreadable(f"it was changed while it was used: {error}") from error


class FiledNames(Names):
    """Ids or contents of a job, in the file that holds the plan."""

    __slots__ = ("_num", "_num_bytes", "_offset", "_side", "_source")

    def __init__(self, source: PlanFile, offset: int, num_bytes: int, side: int, num: int) -> None:
        self._source, self._offset, self._num_bytes, self._side, self._num = source, offset, num_bytes, side, num

    def __len__(self) -> int:
        return self._num

    def read(self) -> tuple[str, ...]:
        return self._source.members(self._offset, self._num_bytes)[self._side]


def _check_members(row: dict[str, str], *, place: int) -> None:
    """Refuse a row that nobody vouches for if its members make no sense."""
    try:
        num_items, num_contents, num = len(json.loads(row["items"])), len(json.loads(row["contents"])), int(row["num_items"])
    except (TypeError, ValueError, KeyError) as error:
        raise _unreadable(f"row {place}: {error}") from error
    if not num_items == num_contents == num:
        raise _unreadable(f"row {place}: {num_items} items, but {num_contents} contents, and {num} were counted")


def _unreadable(why: str) -> DataError:
    return DataError(
        "jobs_queue.csv cannot be read",
        code="damaged-queue",
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
