"""Extraction for a GPU: the items of many jobs as one stream, so that it never waits for a job to end.

In: jobs, a function that loads items ahead (`photo_loader.py`), and an engine on a device. Out: a shard and an outcome for each
job, in whatever order they are complete. Batches run across the borders of jobs; while one is computed the next is loaded, and
what an item becomes does not depend on what else was in its batch. A shard is exactly what `extractor.py` would write.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unchoke.core.clock import Clock, StageTally, sum_tallies
from unchoke.core.timeline import EXTRACTION, noted_clocks
from unchoke.features.engines import TorchEngine
from unchoke.features.feature_store import FeatureOverflow, Half, save_rows
from unchoke.features.gpu_decoder import GpuDecoder
from unchoke.features.photo_loader import EncodedPicture, Load, StreamItem
from unchoke.features.recipe import FeatureRecipe
from unchoke.jobs.attempts import Outcome, attempt
from unchoke.jobs.job_plan import Job
from unchoke.jobs.records import JobResult
from unchoke.machine.backend import fetch_later

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


Entry = tuple[StreamItem, int]
"""An item, and which of its inputs."""


@dataclass(eq=False)
class StreamExtractor:
    """`stream(jobs)` gives an outcome for each. `folder` is where the queue's outputs lie; `decoder` is the GPU's, if any."""

    engine: TorchEngine
    recipe: FeatureRecipe
    load: Load
    folder: Path
    decoder: GpuDecoder | None = None

    def __call__(self, job: Job) -> JobResult:
        """One job by itself."""
        (outcome,) = self.stream(iter([job]))
        if outcome.value is None:
            raise outcome.error or RuntimeError("the job gave nothing")
        return outcome.value

    def stream(self, jobs: Iterable[Job]) -> Generator[Outcome[Job, JobResult], None, None]:
        return _Stream(self).run(jobs)


class _Stream:
    """One pass over some jobs."""

    def __init__(self, plan: StreamExtractor) -> None:
        self.plan, self.recipe, self.size = plan, plan.recipe, plan.engine.batch
        self.entries: list[Entry] = []
        self.files: list[EncodedPicture] = []
        self.pixels: NDArray[Any] | None = None
        self.flying: deque[tuple[Callable[[], NDArray[Any]], list[tuple[int, Entry]]]] = deque()
        self.complete: deque[OpenJob] = deque()
        self.clock = Clock(EXTRACTION)
        self.told: StageTally = {}
        self.loading: StageTally = {}

    def run(self, jobs: Iterable[Job]) -> Generator[Outcome[Job, JobResult], None, None]:
        for found, tally in self.clock.each("load", self.plan.load(self._items(jobs))):
            self.loading = sum_tallies([self.loading, tally])
            for item, inputs in found:
                if isinstance(inputs, str):
                    self._set_aside(item, inputs)
                else:
                    self._add(item, [inputs] if isinstance(inputs, EncodedPicture) else inputs)
            yield from self._written()
        self._launch()
        self._land(down_to=0)
        yield from self._written()

    def _items(self, jobs: Iterable[Job]) -> Iterator[StreamItem]:
        """The items of the jobs, which are taken as the loader asks for more."""
        for job in jobs:
            items = job.items
            rows = np.zeros((len(items), self.recipe.num_inputs, *self.recipe.input_shape), np.float16)
            opened = OpenJob(job, rows, num_left=len(items) * self.recipe.num_inputs)
            if not items:
                self.complete.append(opened)
            for place, (item_id, content) in enumerate(zip(items, job.contents, strict=True)):
                yield StreamItem(opened, place, item_id, content)

    def _add(self, item: StreamItem, inputs: Sequence[Any]) -> None:
        """Put an item's inputs into the batch: its memory is the loader's, who needs it again."""
        for row, one in enumerate(inputs):
            if isinstance(one, EncodedPicture):
                self.files.append(one)
            else:
                with self.clock.stage("collate"):
                    if self.pixels is None:
                        self.pixels = np.empty((self.size, *one.shape), one.dtype)
                    self.pixels[len(self.entries)] = one
            self.entries.append((item, row))
            if len(self.entries) == self.size:
                self._launch()
                self._land(down_to=_FLYING - 1)

    def _launch(self) -> None:
        """Hand the device a batch. An error belongs to the jobs that shared it: they are tried again, or given up by name."""
        entries, files, pixels = self.entries, self.files, self.pixels
        self.entries, self.files, self.pixels = [], [], None
        if not entries:
            return
        try:
            inputs: Any
            failed: dict[int, str] = {}
            if self.plan.decoder is not None:
                with self.clock.stage("decode"):
                    inputs, failed = self.plan.decoder(files)
            else:
                assert pixels is not None
                inputs = pixels[: len(entries)]
            with self.clock.stage("encode"):
                fetch = fetch_later(self.plan.engine.launch(inputs).half())
        except Exception as error:
            self._lose(entries, error)
            return
        for place, reason in failed.items():
            self._set_aside(entries[place][0], reason)
        self.flying.append((fetch, [(row, entry) for row, entry in enumerate(entries) if row not in failed]))

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
            for row, (item, view) in entries:
                item.job.rows[item.place, view] = features[row]
                if not fits[row]:
                    why = f"a feature of {self.recipe.network} for {item.item_id} does not fit float16 (largest is 65504)"
                    item.job.error = FeatureOverflow(why)
                self._count(item.job, 1)

    def _set_aside(self, item: StreamItem, reason: str) -> None:
        item.job.failed[item.place] = reason
        self._count(item.job, self.recipe.num_inputs)

    def _lose(self, entries: Sequence[Entry], error: Exception) -> None:
        """The jobs of these inputs fail with `error`, as soon as the rest of them is through."""
        for item, _ in entries:
            item.job.error = error
            self._count(item.job, 1)

    def _count(self, job: OpenJob, num_inputs: int) -> None:
        job.num_left -= num_inputs
        if job.num_left == 0:
            self.complete.append(job)

    def _written(self) -> Iterator[Outcome[Job, JobResult]]:
        """Write the shards of complete jobs, and say how it went."""
        while self.complete:
            done = self.complete.popleft()
            outcome: Outcome[OpenJob, JobResult] = Outcome(done, error=done.error)
            seconds = time.perf_counter() - done.began_s
            if done.error is None:
                outcome = attempt(self._save, done)
            yield Outcome(done.job, outcome.value, outcome.error, outcome.traceback_text, seconds)

    def _save(self, done: OpenJob) -> JobResult:
        """The shard of a job. What the stream spent since the job before counts as this one's."""
        recipe, items = self.recipe, done.job.items
        kept = [place for place in range(len(items)) if place not in done.failed]
        rows = done.rows[kept].reshape(len(kept), recipe.num_views, *recipe.row_shape)
        with self.clock.stage("write"):
            file, ids = self.plan.folder / done.job.output, [items[place] for place in kept]
            sha256, size_bytes = save_rows(file, rows, ids, name=recipe.member, levels=recipe.levels)
        now, before = self.clock.tally(), self.told
        spent = {
            name: (seconds - before.get(name, (0.0, 0))[0], calls - before.get(name, (0.0, 0))[1])
            for name, (seconds, calls) in now.items()
        }
        info = noted_clocks(spent, self.loading)
        self.told, self.loading = now, {}
        failed = tuple((items[place], done.failed[place]) for place in sorted(done.failed))
        return JobResult(len(items), failed, sha256, size_bytes, info)
