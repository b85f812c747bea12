"""Extraction for a device: the items of many jobs as one stream, so that it never waits for a job to end.

In: jobs, a source of what their items are read as (by threads here, or by reader processes), and an engine on a device. Out: a
shard and an outcome for each job, in whatever order they are complete. Batches run across the borders of jobs; while one is
computed the next is decoded, and what an item becomes does not depend on who shared its batch. A job whose items were all read
is written as soon as its last features are there, exactly as `extractor.py` would write it.
"""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from unchoke.core.clock import Clock, Loading, StageTally, sum_tallies
from unchoke.core.timeline import EXTRACTION, noted_clocks
from unchoke.features.card_decoder import CardDecoder, EncodedPicture
from unchoke.features.engines import TorchEngine
from unchoke.features.extractor import ItemInputs
from unchoke.features.feature_store import FeatureOverflow, Half, save_rows
from unchoke.features.recipe import FeatureRecipe
from unchoke.jobs.attempts import Outcome, attempt
from unchoke.jobs.job_plan import Job
from unchoke.jobs.records import JobResult
from unchoke.machine.backend import fetch_later

_OPEN_BYTES = 512_000_000
"""How much the rows of jobs that are not complete may take."""
_FLYING = 2
"""Batches handed to the device and not fetched yet: one is computed while the next is prepared."""


@dataclass(eq=False)
class OpenJob:
    """A job on its way: what is known of its items so far, by their places in it."""

    job: Job
    rows: Half
    num_left: int
    failed: dict[int, str] = field(default_factory=dict)
    error: BaseException | None = None
    began_s: float = field(default_factory=time.perf_counter)


@dataclass(frozen=True, eq=False)
class StreamItem:
    """One item of a job, at its place there."""

    job: OpenJob
    place: int

    @property
    def item_id(self) -> str:
        return self.job.job.items[self.place]

    @property
    def content(self) -> str:
        return self.job.job.contents[self.place]


Found = ItemInputs | EncodedPicture | str
"""What an item was read as: its inputs, a file for the card to decode, or the reason why there is neither."""


@dataclass(frozen=True, eq=False)
class StreamChunk:
    """Some items as they were read, with what their readers spent; `release` lets go of the memory behind them."""

    items: Sequence[StreamItem]
    found: Sequence[Found]
    loading: StageTally
    release: Callable[[], None]


class ItemSource(Protocol):
    """Reads items ahead of the device."""

    chunk_size: int
    readers: int

    @property
    def has_room(self) -> bool:
        """Whether more items may be submitted now."""
        ...

    @property
    def in_flight(self) -> int:
        """Chunks that were submitted and not taken."""
        ...

    def submit(self, items: Sequence[StreamItem]) -> None: ...

    def take(self) -> StreamChunk: ...

    def close(self) -> None: ...


class ThreadSource:
    """Items read by threads of this process, for those who cannot be sent to another, and for machines with few cores."""

    def __init__(self, read: Callable[[str, str], Found], *, threads: int, chunk_size: int = 8) -> None:
        self._read, self.readers, self.chunk_size = read, max(1, threads), chunk_size
        self._pool = ThreadPoolExecutor(self.readers, thread_name_prefix="unchoke-stream")
        self._done: queue.SimpleQueue[StreamChunk | BaseException] = queue.SimpleQueue()
        self.in_flight = 0

    @property
    def has_room(self) -> bool:
        return self.in_flight < 3 * self.readers

    def submit(self, items: Sequence[StreamItem]) -> None:
        self.in_flight += 1
        self._pool.submit(self._load, items)

    def take(self) -> StreamChunk:
        found = self._done.get()
        self.in_flight -= 1
        if isinstance(found, BaseException):
            raise found
        return found

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _load(self, items: Sequence[StreamItem]) -> None:
        loading = Loading()
        try:
            with loading.here():
                found = [self._read(item.item_id, item.content) for item in items]
            self._done.put(StreamChunk(items, found, loading.tally(), _nothing))
        except BaseException as error:  # raised in the thread that takes, which would wait for ever otherwise
            self._done.put(error)


def _nothing() -> None:
    pass


@dataclass(eq=False)
class _Entry:
    """One input of the network on its way to its row."""

    item: StreamItem
    row: int
    pixels: NDArray[Any] | EncodedPicture
    held: _Held


@dataclass(eq=False)
class _Held:
    """Memory that is let go of when the last input read into it has been used."""

    num_left: int
    release: Callable[[], None]

    def used(self) -> None:
        self.num_left -= 1
        if self.num_left == 0:
            self.release()


@dataclass(eq=False)
class StreamExtractor:
    """`stream(jobs)` gives an outcome for each. `folder` is where the queue's outputs lie; `decoder` is the card's, if any."""

    engine: TorchEngine
    recipe: FeatureRecipe
    source: Callable[[], ItemSource]
    folder: Path
    decoder: CardDecoder | None = None

    def __call__(self, job: Job) -> JobResult:
        """One job by itself."""
        (outcome,) = self.stream(iter([job]))
        if outcome.value is None:
            raise outcome.error or RuntimeError("the job gave nothing")
        return outcome.value

    def stream(self, jobs: Iterator[Job]) -> Generator[Outcome[Job, JobResult], None, None]:
        with closing(self.source()) as source:
            yield from _Stream(self, source, jobs).run()


def stack_pixels(pixels: list[Any]) -> tuple[NDArray[Any], dict[int, str]]:
    """Inputs as one batch; none of them fails."""
    return np.stack(pixels), {}


class _Stream:
    """One pass over some jobs."""

    def __init__(self, plan: StreamExtractor, source: ItemSource, jobs: Iterator[Job]) -> None:
        self.plan, self.recipe, self.source, self.jobs = plan, plan.recipe, source, jobs
        self.size = plan.engine.batch
        self.unsent: deque[StreamItem] = deque()
        self.batch: list[_Entry] = []
        self.flying: deque[tuple[Callable[[], NDArray[Any]], list[tuple[int, _Entry]]]] = deque()
        self.open: dict[str, OpenJob] = {}
        self.complete: deque[OpenJob] = deque()
        self.more = True
        self.clock = Clock(EXTRACTION)
        self.told: StageTally = {}
        self.loading: StageTally = {}
        self.open_bytes = 0

    def run(self) -> Generator[Outcome[Job, JobResult], None, None]:
        while True:
            self._submit()
            if self.source.in_flight:
                with self.clock.stage("load"):
                    chunk = self.source.take()
                self._sort(chunk)
                self._advance()
            else:  # all is read, or what was read fills all the memory there is for it
                self._advance(rest=True)
                self._land(down_to=0)
            while self.complete:
                yield self._written(self.complete.popleft())
            if not (self.open or self.more):
                return

    def _submit(self) -> None:
        """Keep the source busy; jobs are taken as it asks for more."""
        while self.source.has_room:
            while self.more and len(self.unsent) < self.source.chunk_size and self.open_bytes < _OPEN_BYTES:
                self._open_job()
            if not self.unsent:
                return
            count = min(self.source.chunk_size, len(self.unsent))
            self.source.submit([self.unsent.popleft() for _ in range(count)])

    def _open_job(self) -> None:
        job = next(self.jobs, None)
        if job is None:
            self.more = False
            return
        rows = np.zeros((len(job.items), self.recipe.num_inputs, *self.recipe.input_shape), np.float16)
        self.open_bytes += rows.nbytes
        self.open[job.job_id] = opened = OpenJob(job, rows, num_left=len(job.items) * self.recipe.num_inputs)
        self.unsent.extend(StreamItem(opened, place) for place in range(len(job.items)))
        if not job.items:
            self._close_if_complete(opened)

    def _sort(self, chunk: StreamChunk) -> None:
        """What was read goes to the next batch; what could not be is noted with its reason."""
        self.loading = sum_tallies([self.loading, chunk.loading])
        held = _Held(1, chunk.release)
        for item, found in zip(chunk.items, chunk.found, strict=True):
            if isinstance(found, str):
                item.job.failed[item.place] = found
                self._count(item.job, self.recipe.num_inputs)
                continue
            views: Sequence[Any] = [found] if isinstance(found, EncodedPicture) else found
            held.num_left += len(views)
            self.batch.extend(_Entry(item, row, pixels, held) for row, pixels in enumerate(views))
        held.used()

    def _advance(self, *, rest: bool = False) -> None:
        """Hand full batches to the device, and fetch those from before; with `rest`, hand over all there is."""
        while len(self.batch) >= self.size or (rest and self.batch):
            entries, self.batch = self.batch[: self.size], self.batch[self.size :]
            try:
                self._launch(entries)
            except Exception as error:  # belongs to the jobs that shared the batch: they are tried again, or given up by name
                self._lose(entries, error)
            self._land(down_to=_FLYING - 1)

    def _launch(self, entries: list[_Entry]) -> None:
        """Hand the device a batch."""
        make_ready = self.plan.decoder or stack_pixels
        with self.clock.stage("decode" if self.plan.decoder else "collate"):
            inputs, failed = make_ready([entry.pixels for entry in entries])
        for place, reason in failed.items():
            item = entries[place].item
            item.job.failed[item.place] = reason
            entries[place].held.used()
            self._count(item.job, self.recipe.num_inputs)
        with self.clock.stage("encode"):
            sound = [(row, entry) for row, entry in enumerate(entries) if row not in failed]
            self.flying.append((fetch_later(self.plan.engine.launch(inputs).half()), sound))

    def _land(self, *, down_to: int) -> None:
        """Fetch what the device has computed, but for the last few batches, and put it into the rows of its jobs."""
        while len(self.flying) > down_to:
            fetch, entries = self.flying.popleft()
            try:
                with self.clock.stage("encode"):
                    features = fetch()
            except Exception as error:  # as above: what the device was computing belongs to these jobs
                self._lose([entry for _, entry in entries], error)
                continue
            fits = np.isfinite(features.reshape(len(features), -1)).all(axis=1)
            for row, entry in entries:
                job = entry.item.job
                job.rows[entry.item.place, entry.row] = features[row]
                if not fits[row]:
                    job.error = FeatureOverflow(
                        f"a feature of {self.recipe.network} for {entry.item.item_id} does not fit float16 (largest is 65504)"
                    )
                entry.held.used()
                self._count(job, 1)

    def _lose(self, entries: Sequence[_Entry], error: Exception) -> None:
        """The jobs of these inputs fail with `error`, as soon as the rest of them is through."""
        for entry in entries:
            entry.item.job.error = error
            entry.held.used()
            self._count(entry.item.job, 1)

    def _count(self, job: OpenJob, num_inputs: int) -> None:
        job.num_left -= num_inputs
        self._close_if_complete(job)

    def _close_if_complete(self, job: OpenJob) -> None:
        if job.num_left == 0 and self.open.pop(job.job.job_id, None) is not None:
            self.open_bytes -= job.rows.nbytes
            self.complete.append(job)

    def _written(self, done: OpenJob) -> Outcome[Job, JobResult]:
        """Write the job's shard, and say how it went. What the stream spent since the job before counts as this one's."""
        seconds = time.perf_counter() - done.began_s
        if done.error is not None:
            return Outcome(done.job, error=done.error, seconds=seconds)
        outcome = attempt(lambda job: self._save(job, done), done.job)
        return Outcome(done.job, outcome.value, outcome.error, outcome.traceback_text, seconds)

    def _save(self, job: Job, done: OpenJob) -> JobResult:
        recipe = self.recipe
        kept = [place for place in range(len(job.items)) if place not in done.failed]
        rows = done.rows[kept].reshape(len(kept), recipe.num_views, *recipe.row_shape)
        with self.clock.stage("write"):
            ids = [job.items[place] for place in kept]
            sha256, size_bytes = save_rows(self.plan.folder / job.output, rows, ids, name=recipe.member, levels=recipe.levels)
        failed = tuple((job.items[place], done.failed[place]) for place in sorted(done.failed))
        info = noted_clocks(self._spent(), self.loading)
        self.loading = {}
        return JobResult(len(job.items), failed, sha256, size_bytes, info)

    def _spent(self) -> StageTally:
        """What the stream's own thread did since it was asked before."""
        now, before = self.clock.tally(), self.told
        self.told = now
        return {
            name: (seconds - before.get(name, (0.0, 0))[0], calls - before.get(name, (0.0, 0))[1])
            for name, (seconds, calls) in now.items()
        }
