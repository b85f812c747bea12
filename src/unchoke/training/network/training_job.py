"""A training as one picklable value that any process can run: this one, or one of several that train together.

In: a `TrainingJob`: what is trained and learnt, how the loop is set, and where. Out: what the loop gives. Everything a process
needs is built here from the job, the same way everywhere, so that two processes with the same job start from the same bytes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core import checksums
from unchoke.core.clock import NO_PROFILER, LoopProfiler
from unchoke.core.events import Note, OnEvent
from unchoke.core.units import format_bytes
from unchoke.data.several_labels import MULTI_LABEL
from unchoke.machine.backend import keep_freed_memory
from unchoke.machine.memory.memory_watch import Gauge
from unchoke.training.data import Problem
from unchoke.training.network.finetune import finetune
from unchoke.training.network.loop_config import LoopConfig, LoopContext, LoopResult
from unchoke.training.network.objective import LoopObjective
from unchoke.training.network.parallel import ALONE, Ranks
from unchoke.training.network.sources import InputSource
from unchoke.training.network.tiled_network import TrainableNetwork

PEAK_FILE = "peak.json"
"""Beside the checkpoints: the most memory the training took."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingJob(ABC):
    """Everything a training depends on, as plain values, and where it keeps its checkpoints.

    There is one for photos (`photo_job.py`) and one for masks (`masks/mask_job.py`): they know how to build network and inputs.
    """

    problem: Problem
    loop: LoopConfig
    metric: str
    device: str
    folder: Path | None = None
    workers: int = 0
    pin: bool = False
    checkpoint_every_s: float = 60.0
    limit_bytes: int | None = None
    """What this process may take: enforced by the allocator of a GPU, watched on a CPU."""
    planned_bytes: int = 0
    """What steps and evaluation take of it, where that was planned."""
    inputs: NDArray[np.float32] | None = None
    """(N, E): extra numbers of each sample that the network is given, in the table's own units."""
    ends_s: float = math.inf
    """When training ends, after an epoch, by `time.monotonic`."""
    unit: ClassVar[str] = "images"

    @property
    @abstractmethod
    def sample_bytes(self) -> int:
        """Of one sample as it is read."""

    @property
    def ram_bytes(self) -> int:
        """What inputs take of the memory of every process that trains."""
        return 0

    @property
    def held_bytes(self) -> int:
        """How much of that this process holds already."""
        return 0

    def can_checkpoint(self) -> bool:
        """Whether the part that trains can compute activations again instead of keeping them."""
        return False

    def build(self, device: torch.device) -> tuple[TrainableNetwork, InputSource, LoopObjective]:
        """The network before its first step, where its inputs come from, and what it is trained for."""
        source, objective = self.open(device)
        return self.build_network(objective, seed=self.loop.seed), source, objective

    @abstractmethod
    def open(self, device: torch.device) -> tuple[InputSource, LoopObjective]:
        """Where inputs come from, and what is learnt from them."""

    @abstractmethod
    def build_network(self, objective: Any, *, seed: int) -> TrainableNetwork:
        """The trainable part as it is before the first step, for an objective of `open`."""

    @abstractmethod
    def over_noise(self, num: int) -> TrainingJob:
        """The same over `num` samples of noise, with random weights: takes as much memory, and needs no data."""

    def noise_problem(self, num: int) -> Problem:
        """`num` samples of noise; every class, or a spread of values, is among them as far as there is room."""
        kind, names = self.problem.kind, tuple(self.problem.names)
        ids, order = [str(number) for number in range(num)], np.arange(num, dtype=np.int64)
        if kind == MULTI_LABEL:
            marks = (order[:, None] + np.arange(len(names))) % 2
            return Problem(kind, names, marks.astype(np.float32), {"train": order}, ids)
        if kind != "regression":
            return Problem(kind, names, order % len(names), {"train": order}, ids)
        values = np.repeat((order % 7 + 1).astype(np.float32)[:, None], len(names), axis=1)
        return Problem(kind, names, values, {"train": order}, ids)


def run_job(
    job: TrainingJob,
    *,
    on_event: OnEvent,
    stop: Callable[[], bool] = lambda: False,
    ranks: Ranks = ALONE,
    profiler: LoopProfiler = NO_PROFILER,
) -> LoopResult:
    """Train from scratch, or from where the job's folder says an earlier process was."""
    keep_freed_memory(job.loop.keep_freed)
    torch.set_num_threads(job.loop.threads)
    device = torch.device(job.device)
    where = LoopContext(
        device,
        job.folder,
        on_event,
        job.workers,
        job.pin,
        stop,
        job.checkpoint_every_s,
        ranks,
        job.unit,
        profiler,
        job.limit_bytes,
        job.planned_bytes,
        job.ends_s,
    )
    before, trained = kept_peak(job.folder), True
    gauge = Gauge(device, limit_bytes=job.limit_bytes, on_over=lambda held: on_event(Note(_over_limit(held, job), "warning")))
    try:
        with gauge:
            network, source, objective = job.build(device)
            done = finetune(network, source, job.problem, objective, job.loop, metric=job.metric, where=where, inputs=job.inputs)
            trained = done.num_steps > done.resumed_step  # a process that finds it finished only looks at its result
    finally:
        counts = ranks.leads and (trained or before is None)
        if counts and job.folder is not None and gauge.peak_bytes > (before or 0):
            checksums.save_checked_json(job.folder / PEAK_FILE, {"peak_bytes": gauge.peak_bytes})
    return done


def kept_peak(folder: Path | None) -> int | None:
    """The most memory any process took that worked on the training in `folder`; None if nobody measured."""
    if folder is None or not (folder / PEAK_FILE).exists():
        return None
    file = folder / PEAK_FILE
    again = f"delete {file}: the peak is measured anew"
    with checksums.making_sense(file, try_=again):
        return int(checksums.load_checked_json(file, try_=again)["peak_bytes"])


def _over_limit(held_bytes: int, job: TrainingJob) -> str:
    limit = format_bytes(job.limit_bytes or 0)
    half = max(1, job.loop.sub_batch // 2)
    return f"training holds {format_bytes(held_bytes)}, more than the {limit} of --memory; --sub-batch {half} would take less"
