"""The body of an extraction job for patches: some patches in, one shard of pyramids out.

A job reads the window of each patch, turns it for the further views, runs them through the engine in fixed batches and writes a
shard. A patch whose scene cannot be read any more is left out and reported with its reason. Queueing, retries and progress are
the business of `jobs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unchoke.core.ahead import map_ahead
from unchoke.core.clock import Clock, Loading, during
from unchoke.core.timeline import EXTRACTION, job_clocks
from unchoke.features.feature_store import Half, to_half
from unchoke.features.pyramid import PyramidEngine, PyramidSpec
from unchoke.features.pyramid_store import save_pyramids
from unchoke.jobs.job_plan import Job
from unchoke.jobs.records import JobResult
from unchoke.masks.dihedral import turn
from unchoke.masks.patches import Patch, PatchReader
from unchoke.scenes.scene_facts import SceneError

Pixels = NDArray[np.float16]


@dataclass(frozen=True)
class PyramidExtractor:
    """Callable on a job. `patches` maps ids to patches; `folder` is where the queue's outputs lie."""

    engine: PyramidEngine
    spec: PyramidSpec
    reader: PatchReader
    patches: Mapping[str, Patch]
    folder: Path
    num_augmented: int = 0
    read_threads: int = 0

    def __call__(self, job: Job) -> JobResult:
        num_views = 1 + self.num_augmented
        rows = np.empty((len(job.items) * num_views, self.spec.row_length), np.float16)
        kept: list[str] = []
        failed: list[tuple[str, str]] = []
        num_encoded = 0
        batch: list[Pixels] = []
        clock, loading = Clock(EXTRACTION), Loading()
        for patch_id, pixels in clock.each("load", self._read(job, loading)):
            if isinstance(pixels, str):
                failed.append((patch_id, pixels))
                continue
            kept.append(patch_id)
            batch.extend(turn(pixels, view) for view in range(num_views))
            while len(batch) >= self.engine.batch:
                num_encoded += self._encode(batch[: self.engine.batch], rows[num_encoded:], clock)
                del batch[: self.engine.batch]
        if batch:
            num_encoded += self._encode(batch, rows[num_encoded:], clock)
        by_view = rows[:num_encoded].reshape(len(kept), num_views, self.spec.row_length)
        with clock.stage("write"):
            sha256, size_bytes = save_pyramids(self.folder / job.output, by_view, kept, spec=self.spec)
        return JobResult(len(job.items), tuple(failed), sha256, size_bytes, job_clocks(clock, loading))

    def _encode(self, batch: list[Pixels], out: Half, clock: Clock) -> int:
        """Put the rows of `batch` at the beginning of `out`; return how many."""
        with clock.stage("collate"):
            pixels = np.stack(batch)
        with clock.stage("encode"):
            out[: len(batch)] = to_half(self.engine.encode(pixels), of=self.spec.encoder)
        return len(batch)

    def _read(self, job: Job, loading: Loading) -> Iterator[tuple[str, Pixels | str]]:
        def load(patch_id: str) -> tuple[str, Pixels | str]:
            with loading.here(), during("read"):
                return self._load(patch_id)

        ahead = max(self.read_threads, 2 * self.engine.batch)
        return map_ahead(load, job.items, threads=self.read_threads, ahead=ahead)

    def _load(self, patch_id: str) -> tuple[str, Pixels | str]:
        """The patch's pixels, or the reason why there are none."""
        patch = self.patches.get(patch_id)
        if patch is None:
            return patch_id, "it is no longer among the patches"
        try:
            return patch_id, self.reader.read(patch.scene_id, patch.box)[0]
        except SceneError as error:
            return patch_id, f"{error.what}: {error.why}"
