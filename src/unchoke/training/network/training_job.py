"""A training as one plain value that any process can run: this one, or one of several that train together.

In: a `TrainingJob` (names, arrays and settings; no network, no open file). Out: what the loop gives. Everything a process needs
is built here from the job, the same way everywhere, so that two processes that are handed the same job start from the same bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core import atomic
from unchoke.core.errors import UsageError
from unchoke.core.events import Note, OnEvent
from unchoke.core.mixing import hash_ids
from unchoke.core.units import format_bytes
from unchoke.features.cut import cut_network
from unchoke.features.encoders import Encoder, load_encoder
from unchoke.features.feature_store import FeatureStore, Placement
from unchoke.machine.backend import keep_freed_memory
from unchoke.machine.memory.gauge import Gauge
from unchoke.photos.pixels.tile_grid import TilePlan
from unchoke.photos.targets import TargetPlan
from unchoke.training.data import Problem, Standardiser
from unchoke.training.network.finetune import finetune
from unchoke.training.network.loop_config import Finetuned, LoopConfig, Where
from unchoke.training.network.objective import Aim, Objective
from unchoke.training.network.parallel import ALONE, Ranks
from unchoke.training.network.sources import ActivationSource, Source
from unchoke.training.network.tiled_network import Fusion, TiledNetwork, Trainable
from unchoke.training.step_profiler import UNPROFILED, Unprofiled
from unchoke.training.task import column_scale

PEAK_FILE = "peak.json"
"""Beside the snapshots: the most memory the training took."""


@dataclass(frozen=True)
class NetworkSpec:
    """Which backbone, where it is cut, and how pictures are shown to it."""

    encoder: str
    cut: str
    weights: str | None = None
    weights_sha256: str = ""
    input_px: int | None = None
    tiles: TilePlan = field(default_factory=TilePlan)
    fusion: Fusion = "mean"

    def load(self) -> Encoder:
        """The pretrained backbone; refused if its weights are not the ones the job was made for."""
        encoder = load_encoder(self.encoder, weights=Path(self.weights) if self.weights else None, input_px=self.input_px)
        if self.weights_sha256 not in ("", encoder.spec.weights_sha256):
            raise UsageError(
                f"the weights of {self.encoder} changed while the command ran",
                why="the frozen part and the trained part must come from the same ones",
                try_="run the same command again",
            )
        return encoder


class SourceSpec(Protocol):
    """Where inputs come from, as a plain value."""

    @property
    def sample_bytes(self) -> int:
        """Of one sample as it is read."""
        ...

    def open(self, sample_ids: Sequence[str], seed: int) -> Source: ...


@dataclass(frozen=True, eq=False)
class StoredActivations:
    """Activations cached by extraction."""

    placement: Placement
    row_shape: tuple[int, ...]
    num_augmented: int

    @property
    def sample_bytes(self) -> int:
        return 2 * math.prod(self.row_shape)

    def open(self, sample_ids: Sequence[str], seed: int) -> Source:
        store = FeatureStore(self.placement, row_shape=self.row_shape, num_augmented=self.num_augmented)
        return ActivationSource(store, hash_ids(sample_ids), seed)


class Job(Protocol):
    """A training that any process can run: a frozen dataclass of plain values that knows how to build what it is about."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def problem(self) -> Problem: ...
    @property
    def inputs(self) -> NDArray[np.float32] | None: ...
    @property
    def loop(self) -> LoopConfig: ...
    @property
    def metric(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def folder(self) -> Path | None: ...
    @property
    def workers(self) -> int: ...
    @property
    def pin(self) -> bool: ...
    @property
    def checkpoint_every_s(self) -> float: ...
    @property
    def limit_bytes(self) -> int | None: ...
    @property
    def sample_bytes(self) -> int: ...
    @property
    def unit(self) -> str:
        """What samples are called when progress is told."""
        ...

    def build(self, device: torch.device) -> tuple[Trainable, Source, Aim]:
        """The network before its first step, where its inputs come from, and what it is trained for."""
        ...


@dataclass(frozen=True, eq=False)
class TrainingJob:
    """Everything a training depends on, and where it keeps its snapshots."""

    network: NetworkSpec
    source: SourceSpec
    problem: Problem
    targets: TargetPlan | None
    inputs: NDArray[np.float32] | None
    loop: LoopConfig
    metric: str
    device: str
    folder: Path | None
    workers: int = 0
    pin: bool = False
    checkpoint_every_s: float = 60.0
    limit_bytes: int | None = None
    """What this process may take: enforced by the allocator of a card, watched on a CPU."""

    @property
    def sample_bytes(self) -> int:
        return self.source.sample_bytes

    @property
    def unit(self) -> str:
        return "images"

    def build(self, device: torch.device) -> tuple[TiledNetwork, Source, Objective]:
        objective = build_objective(self, device)
        return build_network(self, objective), self.source.open(self.problem.sample_ids, self.loop.seed), objective


def run_job(
    job: Job,
    *,
    on_event: OnEvent,
    stop: Callable[[], bool] = lambda: False,
    ranks: Ranks = ALONE,
    profiler: Unprofiled = UNPROFILED,
) -> Finetuned:
    """Train from scratch, or from where the job's folder says an earlier process was."""
    keep_freed_memory(job.loop.keep_freed)
    torch.set_num_threads(job.loop.threads)
    device = torch.device(job.device)
    where = Where(device, job.folder, on_event, job.workers, job.pin, stop, job.checkpoint_every_s, ranks, job.unit, profiler)
    with measured_peak(job, device, on_event, leads=ranks.leads) as work:
        network, source, objective = job.build(device)
        done = finetune(network, source, job.problem, objective, job.loop, metric=job.metric, where=where, inputs=job.inputs)
        work.trained = done.num_steps > done.resumed_step
    return done


@dataclass
class Work:
    """Whether a process trained; one that finds a finished training only looks at its result."""

    trained: bool = True


@contextmanager
def measured_peak(job: Job, device: torch.device, on_event: OnEvent, *, leads: bool) -> Iterator[Work]:
    """Keep to the job's limit, and write down the most that training took, however it ends."""
    before, work = kept_peak(job.folder), Work()

    def tell(held_bytes: int) -> None:
        on_event(Note(_over_limit(held_bytes, job), "warning"))

    gauge = Gauge(device, limit_bytes=job.limit_bytes, on_over=tell)
    try:
        with gauge:
            yield work
    finally:
        counts = leads and (work.trained or before is None)
        if counts and job.folder is not None and gauge.peak_bytes > (before or 0):
            atomic.write_json(job.folder / PEAK_FILE, {"peak_bytes": gauge.peak_bytes})


def kept_peak(folder: Path | None) -> int | None:
    """The most memory any process took that worked on the training in `folder`; None if nobody measured."""
    if folder is None or not (folder / PEAK_FILE).exists():
        return None
    return int(json.loads((folder / PEAK_FILE).read_text(encoding="utf-8"))["peak_bytes"])


def _over_limit(held_bytes: int, job: Job) -> str:
    limit = format_bytes(job.limit_bytes or 0)
    half = max(1, job.loop.sub_batch // 2)
    return f"training holds {format_bytes(held_bytes)}, more than the {limit} of --memory; --sub-batch {half} would take less"


def build_objective(job: TrainingJob, device: torch.device) -> Objective:
    loop = job.loop
    return Objective.of(
        job.problem, job.targets, label_smoothing=loop.label_smoothing, class_weights=loop.class_weights, device=device
    )


def build_network(job: TrainingJob, objective: Objective) -> TiledNetwork:
    """The trainable part as it is before the first step."""
    encoder = job.network.load()
    cut = cut_network(encoder, job.network.cut, verify=False)
    return TiledNetwork.of(
        cut.suffix,
        objective,
        tiles=job.network.tiles,
        dim=encoder.spec.dim,
        fusion=job.network.fusion,
        input_scale=input_scale(job.problem, job.inputs),
        seed=job.loop.seed,
    )


def input_scale(problem: Problem, inputs: NDArray[np.float32] | None) -> Standardiser | None:
    """Mean and deviation of the extra columns on the train split."""
    return None if inputs is None else column_scale(inputs[problem.positions("train")])
