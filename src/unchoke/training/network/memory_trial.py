"""One real piece of a training, run to see what it takes: the body of a memory probe.

In: a `Trial` (the network, the loop's settings and the shape of its inputs; no data) and how many samples run at once. Out: the
peak of memory, the seconds, and what is known of the parts. The network has the run's structure and random weights, its inputs
are noise of the right shape, and everything else is the loop itself: `Training` with its source, step, clipping, AdamW and
average. Running out of memory is an error here: nothing is halved. Meant for a process of its own (`machine/memory/probe.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from unchoke.core.events import ignore
from unchoke.core.mixing import hash_ids
from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.features.cut import END, Cut, cut_network
from unchoke.features.encoders import bare_encoder
from unchoke.machine.backend import empty_cache, is_cpu, keep_freed_memory, synchronize
from unchoke.machine.memory.gauge import Gauge
from unchoke.machine.memory.probe import Measured
from unchoke.photos.pixels.augment_batch import augment_spec
from unchoke.photos.pixels.canvas import Canvas
from unchoke.photos.pixels.image import Pixels
from unchoke.photos.targets import TargetPlan
from unchoke.training.data import Positions, Problem, ProblemKind, Standardiser
from unchoke.training.network.finetune import Training
from unchoke.training.network.loop_config import LoopConfig, Where
from unchoke.training.network.modes import training_mode
from unchoke.training.network.objective import Objective
from unchoke.training.network.sources import ActivationSource, PixelSource, Source
from unchoke.training.network.step import PartSize
from unchoke.training.network.stored_pixels import StoredPixels
from unchoke.training.network.tiled_network import TiledNetwork
from unchoke.training.network.training_job import NetworkSpec, TrainingJob

TARGET = "unchoke.training.network.memory_trial:run_trial"
_STEPS = 3
_SETTLING = 2
"""The heap of a CPU still grows for some steps when they run in parts: what is freed does not fit what is asked for next."""
_LONG_ENOUGH_S = 60.0
_PICTURE_PX = 3, 4


class AnyTrial(Protocol):
    """What `run_trial` needs of a trial: a frozen dataclass that crosses to another process and rehearses there."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def loop(self) -> LoopConfig: ...
    @property
    def device(self) -> str: ...
    @property
    def evaluation(self) -> bool: ...
    @property
    def limit_bytes(self) -> int | None: ...
    @property
    def others_bytes(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def workers(self) -> int: ...

    def rehearse(self, loop: LoopConfig) -> Rehearsal:
        """The loop as `loop` has it, over noise, everything allocated that is there before the first step."""
        ...

    def can_checkpoint(self) -> bool:
        """Whether the part that trains can compute activations again instead of keeping them."""
        ...


@dataclass(frozen=True)
class Trial:
    """What to try. `canvas` is how pictures lie in memory where pixels are the input; None where cached activations are.

    `loop.batch_size` is the run's own: a smaller number of samples at once is tried as two parts of one step, because the second
    runs beside the gradients of the first. `others_bytes` is what was in use on a card before this process came.
    """

    network: NetworkSpec
    loop: LoopConfig
    device: str
    kind: ProblemKind = "classification"
    names: tuple[str, ...] = ("a", "b")
    targets: TargetPlan | None = None
    num_inputs: int = 0
    canvas: Canvas | None = None
    augment: str = "none"
    evaluation: bool = False
    limit_bytes: int | None = None
    others_bytes: int = 0
    steps: int = _STEPS
    workers: int = 0

    @classmethod
    def of(cls, job: TrainingJob) -> Trial:
        """The trial of a training."""
        source = job.source if isinstance(job.source, StoredPixels) else None
        return cls(
            network=replace(job.network, weights=None, weights_sha256=""),
            loop=job.loop,
            device=job.device,
            kind=job.problem.kind,
            names=tuple(job.problem.names),
            targets=job.targets,
            num_inputs=0 if job.inputs is None else job.inputs.shape[1],
            canvas=source.canvas if source else None,
            augment=source.augment if source else "none",
            workers=job.workers,
        )

    def rehearse(self, loop: LoopConfig) -> Rehearsal:
        return build_rehearsal(self, loop)

    def can_checkpoint(self) -> bool:
        return can_checkpoint(self.network)


def run_trial(trial: AnyTrial, batch: int) -> Measured:
    """Run `batch` samples at once, a few times over, in this process."""
    prepare_torchvision()
    import timm  # noqa: F401 (part of every run, and so of what this process takes before the network)

    keep_freed_memory(trial.loop.keep_freed)
    torch.set_num_threads(trial.loop.threads)
    with gauge_of(trial) as gauge:
        rehearsal = trial.rehearse(_loop(trial, batch))
        rehearsal.stepper.size = rehearsal.eval_size = _Unyielding(batch)
        if trial.evaluation:
            seconds = rehearsal.evaluate(batch, trial.steps)
        else:
            settling = _SETTLING if is_cpu(torch.device(trial.device)) and batch < trial.loop.batch_size else 1
            seconds = rehearsal.train_steps(settling * trial.steps, longest_s=_LONG_ENOUGH_S)
    return Measured(gauge.peak_bytes, seconds, {**rehearsal.part_bytes(), "baseline": gauge.baseline_bytes})


def can_checkpoint(spec: NetworkSpec) -> bool:
    """Whether the part that trains can compute activations again instead of keeping them."""
    if spec.cut == END:
        return False
    prepare_torchvision()
    import timm

    with torch.device("meta"):
        network: Any = timm.create_model(spec.encoder, num_classes=0)
    try:
        network.set_grad_checkpointing(True)
    except (AttributeError, AssertionError, NotImplementedError):
        return False
    return True


def gauge_of(trial: AnyTrial) -> Gauge:
    """What measures a trial, with its limit in force where the device enforces one."""
    limit_bytes = None if is_cpu(torch.device(trial.device)) else trial.limit_bytes
    return Gauge(torch.device(trial.device), limit_bytes=limit_bytes, others_bytes=trial.others_bytes)


def _loop(trial: AnyTrial, batch: int) -> LoopConfig:
    """The run's loop with `batch` samples at once: the whole step, or one of two parts."""
    num_parts = 1 if trial.evaluation or batch >= trial.loop.batch_size else 2
    return replace(trial.loop, batch_size=num_parts * batch, sub_batch=batch, eval_batch=batch)


class _Unyielding(PartSize):
    """A size that is not halved: what does not fit is the answer."""

    def halve(self, tried: int, fact: str) -> None:
        raise MemoryError(fact)


class Rehearsal(Training):
    """The loop itself, over noise and without files."""

    def train_steps(self, num: int, longest_s: float = math.inf) -> float:
        """Run optimizer steps over the same samples, only three if those took long; seconds of one part of the quickest."""
        training_mode(self.network, self.config)
        num_parts = -(-self.config.batch_size // self.config.sub_batch)
        seconds: list[float] = []
        while len(seconds) < num and (len(seconds) < _STEPS or sum(seconds) < longest_s):
            seconds.append(self._timed_step(len(seconds)))
        return min(seconds[1:] or seconds) / num_parts

    def _timed_step(self, number: int) -> float:
        kept = self.batches.mixing(0, number, len(self.train))
        for fed in self._feed([self.batches.own(self.train, kept)], 0):
            started_s = time.perf_counter()
            self._step(fed, len(self.train), kept)
            self.unread_losses.clear()  # random weights may well diverge, which says nothing about memory
            synchronize(self.where.device)
            spent_s = time.perf_counter() - started_s
        return spent_s

    def evaluate(self, batch: int, num: int) -> float:
        """Predict some batches as evaluation does; seconds of the quickest. The best weights lie beside, as after training."""
        best = {} if self.average else {name: value.cpu().clone() for name, value in self.network.state_dict().items()}
        self.network.eval()
        self.network.zero_grad(set_to_none=True)
        empty_cache(self.where.device)
        shown = np.resize(self.train, batch)
        ahead = [shown] * (self.where.workers + 1)  # read while the others are computed on, as in a run
        seconds = []
        for _, fed in zip(range(num), self._feed([shown] * num + ahead, None), strict=False):
            started_s = time.perf_counter()
            self.stepper.predict(fed, self.eval_size)
            synchronize(self.where.device)
            seconds.append(time.perf_counter() - started_s)
        best.clear()
        return min(seconds[1:] or seconds)

    def part_bytes(self) -> dict[str, int]:
        """What is known of the memory taken; the rest are activations."""
        average = self.average.values if self.average is not None else []
        moments = [value for state in self.optimizer.state.values() for value in state.values()]
        trained = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
        return {
            "weights": _size([*self.network.parameters(), *self.network.buffers()]),
            "gradients": _size(trained),
            "optimizer": _size(moments) + _size(average),
        }


def build_rehearsal(trial: Trial, loop: LoopConfig) -> Rehearsal:
    """The loop as `loop` has it, everything allocated that is there before the first step; one batch is all its data."""
    device = torch.device(trial.device)
    problem = _problem(trial, loop.batch_size)
    objective = Objective.of(
        problem, trial.targets, label_smoothing=loop.label_smoothing, class_weights=loop.class_weights, device=device
    )
    network, cut = _network(trial, objective)
    inputs = np.zeros((len(problem.sample_ids), trial.num_inputs), np.float32) if trial.num_inputs else None
    source = _source(trial, cut, problem.sample_ids)
    where = Where(device, None, ignore, trial.workers)
    return Rehearsal(network, source, problem, objective, loop, metric="loss", where=where, inputs=inputs)


def _network(trial: Trial, objective: Objective) -> tuple[TiledNetwork, Cut]:
    spec = trial.network
    encoder = bare_encoder(spec.encoder, input_px=spec.input_px)
    cut = cut_network(encoder, spec.cut, verify=False)
    columns = Standardiser(np.zeros(trial.num_inputs, np.float32), np.ones(trial.num_inputs, np.float32))
    network = TiledNetwork.of(
        cut.suffix,
        objective,
        tiles=spec.tiles,
        dim=encoder.spec.dim,
        fusion=spec.fusion,
        input_scale=columns if trial.num_inputs else None,
        seed=0,
    )
    return network, replace(cut, prefix=None)


def _problem(trial: Trial, num: int) -> Problem:
    """`num` samples of no meaning; every class, or a spread of values, is among them as far as there is room."""
    ids = [str(number) for number in range(num)]
    order = np.arange(num, dtype=np.int64)
    if trial.kind == "classification":
        return Problem(trial.kind, trial.names, order % len(trial.names), {"train": order}, ids)
    values = np.repeat((order % 7 + 1).astype(np.float32)[:, None], len(trial.names), axis=1)
    return Problem(trial.kind, trial.names, values, {"train": order}, ids)


def _source(trial: Trial, cut: Cut, sample_ids: Sequence[str]) -> Source:
    if trial.canvas is None:
        shape = (trial.network.tiles.num_tiles, *cut.shape)
        return ActivationSource(NoiseRows(len(sample_ids), shape), hash_ids(sample_ids), trial.loop.seed)
    cache: Any = _NoiseCache(trial.canvas)
    return PixelSource(cache, trial.canvas, sample_ids, seed=trial.loop.seed, augment=augment_spec(trial.augment))


@dataclass(frozen=True, eq=False)
class NoiseRows:
    """Cached activations of no meaning: the same row for every sample."""

    num_samples: int
    row_shape: tuple[int, ...]
    num_views: int = 1
    _row: list[NDArray[np.float16]] = field(default_factory=list)

    def rows(
        self, positions: Positions, views: Positions | int = 0, *, out: NDArray[np.float16] | None = None
    ) -> NDArray[np.float16]:
        if not self._row:
            noise = np.random.default_rng(0).standard_normal(math.prod(self.row_shape), np.float32)
            self._row.append(noise.astype(np.float16).reshape(self.row_shape))
        found = np.empty((len(positions), *self.row_shape), np.float16) if out is None else out
        found[:] = self._row[0]
        return found


class _NoiseCache:
    """A pixel cache in which every picture is the same noise."""

    def __init__(self, canvas: Canvas) -> None:
        height, width = (4 * canvas.preprocess.resize_px * side // min(_PICTURE_PX) for side in _PICTURE_PX)
        noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
        self._row: Pixels = canvas.draw(noise)

    def read_into(self, row: int, out: Pixels) -> None:
        out[:] = self._row


def _size(tensors: Iterable[torch.Tensor]) -> int:
    return sum(value.numel() * value.element_size() for value in tensors)
