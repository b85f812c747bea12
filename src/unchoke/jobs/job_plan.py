"""Which jobs there are. Items and their contents come in, jobs go out; pure, no files.

A plan only ever grows. Jobs keep their members, ordinals and output, so adding items never changes an old job. When the content
of a member changes, its job keeps its place and gets new `inputs`: that one job is redone. A member that is no longer wanted
stays where it is (its rows are simply not asked for) until its job has to be redone anyway; then it is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from unchoke.core.errors import DataError
from unchoke.core.fingerprint import digest
from unchoke.core.workspace import safe_name
from unchoke.jobs.name_places import Places

DEFAULT_JOB_SIZE = 64


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
        members, inputs = (json.dumps(list(items)), json.dumps(list(contents))), inputs_digest(fingerprint, items, contents)
        last = first + len(items) - 1
        return cls(job_id, first, last, members[0], inputs, check_output(output), members[1], fingerprint)

    @property
    def items(self) -> tuple[str, ...]:
        return tuple(json.loads(self.items_json))

    @property
    def contents(self) -> tuple[str, ...]:
        return tuple(json.loads(self.contents_json))


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
    wanted = _Wanted(ids, contents)
    kept = [wanted.bring_up_to_date(job, must_run=job.job_id in unfinished) for job in previous if job.fingerprint == fingerprint]
    first = max((job.last for job in kept), default=-1) + 1
    number = max((int(job.job_id.rpartition("-")[2]) for job in kept), default=-1) + 1
    fresh = wanted.unplanned()
    while places := list(islice(fresh, job_size)):
        output = output_pattern.format(first=first, last=first + len(places) - 1)
        job_id = f"{safe_name(fingerprint[:8])}-{number:05d}"
        kept.append(Job.of(job_id, first, *wanted.at(places), output=output, fingerprint=fingerprint))
        first += len(places)
        number += 1
    return kept


def inputs_digest(fingerprint: str, items: Sequence[str], contents: Sequence[str]) -> str:
    """What a job's artefact depends on, as one short text."""
    return digest([fingerprint, list(items), list(contents)])[:32]


def check_output(output: str) -> str:
    """`output` as it is, refused if it could lie outside the queue's folder."""
    if not output or output.startswith("/") or ".." in output.split("/") or "\\" in output or re.match(r"[A-Za-z]:", output):
        raise DataError(
            f"{output!r} is not a path inside the queue's folder",
            code="outside-queue",
            why="a job writes only below the folder of its queue",
            try_="remove that row from jobs_queue.csv, or delete the file: the plan is then made anew",
        )
    return output


class _Wanted:
    """The items that are wanted now, and which of them earlier jobs have."""

    def __init__(self, ids: Sequence[str], contents: Sequence[str]) -> None:
        self._ids, self._contents = ids, contents
        self._places = Places(ids)
        self._planned = bytearray(len(ids))

    def bring_up_to_date(self, job: Job, *, must_run: bool) -> Job:
        """The job as it must be done now; the very same one if nothing it was made of has changed."""
        begin = self._places.next
        end = begin + 1 + job.last - job.first
        if inputs_digest(job.fingerprint, self._ids[begin:end], self._contents[begin:end]) == job.inputs:  # as it mostly is
            self._planned[begin:end] = b"\1" * (end - begin)
            self._places.next = end
            return job
        members = job.items
        places = self._places.find_all(members)
        found = [place for place in places if place is not None]
        items, contents = self.at(found)
        for place in found:
            self._planned[place] = 1
        earlier = [content for content, place in zip(job.contents, places, strict=True) if place is not None]
        if earlier == contents and not (must_run and len(found) < len(members)):
            return job
        anew = Job.of(job.job_id, job.first, items, contents, output=job.output, fingerprint=job.fingerprint)
        return replace(anew, last=job.last)

    def at(self, places: Sequence[int]) -> tuple[list[str], list[str]]:
        """Ids and contents at some places: in one piece where they follow one another."""
        if places and places[-1] - places[0] == len(places) - 1:
            part = slice(places[0], places[-1] + 1)
            return list(self._ids[part]), list(self._contents[part])
        return [self._ids[place] for place in places], [self._contents[place] for place in places]

    def unplanned(self) -> Iterator[int]:
        """Places of the items that no earlier job has."""
        place = self._planned.find(0)
        while place >= 0:
            yield place
            place = self._planned.find(0, place + 1)
