"""Which jobs there are. Items and their contents come in, jobs go out; pure, no files.

A plan only ever grows. Jobs keep their members, ordinals and output, so adding items never changes an old job. When the content
of a member changes, its job keeps its place and gets new `inputs`: that one job is redone. A member that is no longer wanted
stays where it is (its rows are simply not asked for) until its job has to be redone anyway; then it is left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import PurePosixPath

from unchoke.core.errors import DataError, list_some
from unchoke.core.fingerprint import digest
from unchoke.core.workspace import safe_name

DEFAULT_JOB_SIZE = 64


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
    number = max((_number(job) for job in kept), default=-1) + 1
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
    changed = any(wanted.get(item, content) != content for item, content in _members(job))
    vanished = must_run and any(item not in wanted for item in job.items)
    if not (changed or vanished):
        return job
    items = tuple(item for item in job.items if item in wanted)
    contents = tuple(wanted[item] for item in items)
    return replace(job, items=items, contents=contents, inputs=inputs_digest(job.fingerprint, items, contents))


def _members(job: Job) -> Iterator[tuple[str, str]]:
    return zip(job.items, job.contents, strict=True)


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


def _number(job: Job) -> int:
    return int(job.job_id.rpartition("-")[2])
