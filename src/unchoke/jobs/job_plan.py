"""Which jobs there are. Items and their contents come in, jobs go out; pure, no files.

A plan only ever grows. Jobs keep their members, ordinals and output, so adding items never changes an old job. When the content
of a member changes, its job keeps its place and gets new `inputs`: that one job is redone. A member that is no longer wanted
stays where it is (its rows are simply not asked for) until its job has to be redone anyway; then it is left out.

Items may be millions: they come as any sequence, which is read in pieces, and a job knows where its members are, in that sequence
or in the file of the plan (`plan_file.py`), rather than what they are.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import overload

from unchoke.core.errors import DataError
from unchoke.core.fingerprint import digest
from unchoke.core.workspace import safe_name
from unchoke.jobs.name_places import Places

Items = Sequence[tuple[str, str]]
"""Pairs of id and content digest."""
DEFAULT_JOB_SIZE = 64
_PIECE = 8192


@dataclass(frozen=True)
class Job:
    """Some items, and the one artefact made of them.

    `first` and `last` are ordinals in the plan of this fingerprint and are never reused; `inputs` is a digest over the items
    and their contents; `output` is relative to the queue's folder, with forward slashes.
    """

    job_id: str
    first: int
    last: int
    items: Sequence[str]
    inputs: str
    output: str
    contents: Sequence[str] = ()
    fingerprint: str = ""


class Names(Sequence[str]):
    """Names that are kept somewhere else: as good as a tuple of them, and sent to another process as that."""

    __slots__ = ()

    @abstractmethod
    def read(self) -> tuple[str, ...]:
        """All of them."""

    def __iter__(self) -> Iterator[str]:
        return iter(self.read())

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[str, ...]: ...
    def __getitem__(self, place: int | slice) -> str | tuple[str, ...]:
        return self.read()[place]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return self.read() == (other.read() if isinstance(other, Names) else other)

    def __hash__(self) -> int:
        return hash(self.read())

    def __repr__(self) -> str:
        return repr(self.read())

    def __reduce__(self) -> tuple[type[tuple[str, ...]], tuple[tuple[str, ...]]]:
        return tuple, (self.read(),)


class ItemSide(Names):
    """Ids (side 0) or contents (side 1) of items, of all or of those at `places`."""

    __slots__ = ("_items", "_places", "_side")

    def __init__(self, items: Items, side: int, places: Sequence[int] | None = None) -> None:
        self._items, self._side = items, side
        self._places = range(len(items)) if places is None else places

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        return (pair[self._side] for pair in _pairs(self._items, self._places))

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[str, ...]: ...
    def __getitem__(self, place: int | slice) -> str | tuple[str, ...]:
        if isinstance(place, slice):
            return ItemSide(self._items, self._side, self._places[place]).read()
        return self._items[self._places[place]][self._side]

    def read(self) -> tuple[str, ...]:
        return tuple(iter(self))


def _pairs(items: Items, places: Sequence[int]) -> Iterator[tuple[str, str]]:
    """Items at some places: in pieces where they follow one another."""
    if isinstance(places, range) and places.step == 1:
        for start in range(places.start, places.stop, _PIECE):
            yield from items[start : min(start + _PIECE, places.stop)]
    else:
        yield from (items[place] for place in places)


def plan_jobs(
    items: Items,
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
    wanted = _Wanted(items)
    kept = [wanted.bring_up_to_date(job, must_run=job.job_id in unfinished) for job in previous if job.fingerprint == fingerprint]
    ordinal = max((job.last for job in kept), default=-1) + 1
    number = max((int(job.job_id.rpartition("-")[2]) for job in kept), default=-1) + 1
    fresh = wanted.unplanned()
    while places := list(islice(fresh, job_size)):
        kept.append(_new_job(items, places, fingerprint=fingerprint, number=number, first=ordinal, output_pattern=output_pattern))
        ordinal += len(places)
        number += 1
    return kept


def inputs_digest(fingerprint: str, items: Sequence[str], contents: Sequence[str]) -> str:
    """What a job's artefact depends on, as one short text."""
    return digest([fingerprint, list(items), list(contents)])[:32]


def _digest(fingerprint: str, pairs: Items) -> str:
    return inputs_digest(fingerprint, [item for item, _ in pairs], [content for _, content in pairs])


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

    def __init__(self, items: Items) -> None:
        self._items = items
        self._places = Places(ItemSide(items, 0))
        self._planned = bytearray(len(items))

    def bring_up_to_date(self, job: Job, *, must_run: bool) -> Job:
        """The job as it must be done now; the very same one if nothing it was made of has changed."""
        begin = self._places.next
        end = begin + len(job.items)
        if _digest(job.fingerprint, list(self._items[begin:end])) == job.inputs:  # as it mostly is: nothing has to be read
            self._planned[begin:end] = b"\1" * (end - begin)
            self._places.next = end
            return job
        places = self._places.find_all(tuple(job.items))
        found = [place for place in places if place is not None]
        there = list(_pairs(self._items, found))
        for place in found:
            self._planned[place] = 1
        planned = zip(job.items, job.contents, places, strict=True)
        changed = there != [(item, content) for item, content, place in planned if place is not None]
        vanished = must_run and len(found) < len(job.items)
        if not (changed or vanished):
            return job
        items, contents = tuple(item for item, _ in there), tuple(content for _, content in there)
        return replace(job, items=items, contents=contents, inputs=inputs_digest(job.fingerprint, items, contents))

    def unplanned(self) -> Iterator[int]:
        """Places of the items that no earlier job has."""
        place = self._planned.find(0)
        while place >= 0:
            yield place
            place = self._planned.find(0, place + 1)


def _new_job(items: Items, places: Sequence[int], *, fingerprint: str, number: int, first: int, output_pattern: str) -> Job:
    if places[-1] - places[0] == len(places) - 1:
        places = range(places[0], places[-1] + 1)
    last = first + len(places) - 1
    return Job(
        job_id=f"{safe_name(fingerprint[:8])}-{number:05d}",
        first=first,
        last=last,
        items=ItemSide(items, 0, places),
        inputs=_digest(fingerprint, list(_pairs(items, places))),
        output=check_output(output_pattern.format(first=first, last=last)),
        contents=ItemSide(items, 1, places),
        fingerprint=fingerprint,
    )
