"""Training as work that can be done in several ways: real steps over the user's own pictures, for `unchoke tune`.

In: a training as a value, over a sample of the pictures. Out: for any `TrainSetup`, whether its outputs and gradients are those
of plain float32, and how many seconds a sample takes. Every way starts from the same weights, sees the same batches, and is
thrown away afterwards; nothing is written but decoded pictures in a folder of the caller's. Compiling may take for ever, so it is
tried in a process of its own, which builds the same training from the same values and is ended when its time is over.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unchoke.core.choices import Choice
from unchoke.core.events import ignore
from unchoke.core.mixing import hash_ids
from unchoke.core.units import format_count, format_seconds
from unchoke.machine.backend import (
    empty_cache,
    keep_freed_memory,
    rounding_of,
    synchronize,
    torch_device,
    torch_dtype,
    unshortened,
)
from unchoke.machine.memory.probe import probe
from unchoke.machine.policy import LONG, SHORT
from unchoke.training.data import Positions
from unchoke.training.network.finetune import NetworkTraining
from unchoke.training.network.loop_config import LoopConfig, LoopContext
from unchoke.training.network.photo_job import PhotoJob, StoredActivations
from unchoke.training.network.prepare_pixels import StoredPixels
from unchoke.training.network.sources import ActivationSource, InputSource
from unchoke.training.network.step import training_mode
from unchoke.tuning.compare import Likeness, Numbers, equal_outputs
from unchoke.tuning.trials import NO_TIME, Attempt, attempt, quickest

_BLOCK_S = 0.7
_MOST_STEPS = 32
_LONGEST_STEP_S, _SHORTER_STEP_S = 3.0, 2.0
_FEW = 4
"""Samples of the first steps, which tell how long others would take."""
_TARGET = "unchoke.tuning.tune_training:run_apart"
_UNKNOWN = Likeness(False, "not looked at")
_DROPPING = ("DropPath", "PatchDropout", "DropBlock2d")
"""timm's modules that drop something at random, beside torch's own."""


@dataclass(frozen=True)
class TrainSetup:
    """One way to train. The names are those of the switches."""

    train_precision: str
    channels_last: bool
    compile: bool
    sub_batch: int
    threads: int
    workers: int
    pin_memory: bool
    keep_freed_memory: bool = True
    cache: str = ""

    @classmethod
    def of(cls, job: PhotoJob) -> TrainSetup:
        """The way a job would be run."""
        loop, source = job.loop, job.source
        return cls(
            train_precision=SHORT[loop.dtype],
            channels_last=loop.memory_format == "channels_last",
            compile=loop.compile,
            sub_batch=loop.sub_batch,
            threads=loop.threads,
            workers=job.workers,
            pin_memory=job.pin,
            keep_freed_memory=loop.keep_freed,
            cache=str(source.cache.value) if isinstance(source, StoredPixels) else "",
        )

    def plain(self, batch_size: int) -> TrainSetup:
        """The way that defines what is right: float32, as torch lays it out, whole batches, nothing compiled."""
        return replace(self, train_precision="f32", channels_last=False, compile=False, sub_batch=batch_size)

    def loop(self, loop: LoopConfig, batch_size: int) -> LoopConfig:
        """The loop of a run in this way, with steps of `batch_size`."""
        return replace(
            loop,
            batch_size=batch_size,
            dtype=LONG[self.train_precision],
            memory_format="channels_last" if self.channels_last else "contiguous",
            compile=self.compile,
            sub_batch=min(self.sub_batch, batch_size),
            threads=self.threads,
            keep_freed=self.keep_freed_memory,
        )


class ShortTraining(NetworkTraining):
    """The loop itself, without files, run for a few steps whenever it is asked to."""

    def numbers(self) -> Numbers:
        """Outputs and gradients of the first step, with everything off that drops at random. To be asked before any step."""
        training_mode(self.network, self.config)
        for module in self.network.modules():
            if isinstance(module, nn.modules.dropout._DropoutNd) or type(module).__name__ in _DROPPING:
                module.eval()
        batch = self._batch(0)
        kept = self.batches.mixing(0, 0, len(batch))
        (fed,) = self.feed([self.batches.own(batch, kept)], 0)
        self.stepper.backward(fed, len(batch), seed=0, kept=kept)
        scale = self.stepper.scaler.get_scale()
        gradients = {
            name: (parameter.grad.float() / scale).cpu().numpy()
            for name, parameter in self.network.named_parameters()
            if parameter.grad is not None
        }
        size = self.stepper.size.value
        with torch.no_grad():
            parts = [self.stepper._part(fed, at, min(at + size, len(batch)), kept) for at in range(0, len(batch), size)]
            outputs = [self.stepper._outputs(x, extra).float().cpu() for x, extra, _ in parts]
        return Numbers(torch.cat(outputs).numpy(), gradients)

    def train_steps(self, num: int) -> float:
        """Seconds a sample takes in `num` steps, reading included, as an epoch begins."""
        training_mode(self.network, self.config)
        self.standing.step = 0  # the rate stays that of the first step, so that the weights stay about where they are
        batches = [self._batch(number) for number in range(num)]
        mixing = [self.batches.mixing(0, number, len(batch)) for number, batch in enumerate(batches)]
        started_s = time.perf_counter()
        fed_batches = self.feed([self.batches.own(*pair) for pair in zip(batches, mixing, strict=True)], 0)
        for batch, kept, fed in zip(batches, mixing, fed_batches, strict=True):
            self.step(fed, len(batch), kept)
        synchronize(self.where.device)
        spent_s = time.perf_counter() - started_s
        self.unread_losses.clear()
        return spent_s / sum(map(len, batches))

    def _batch(self, number: int) -> Positions:
        """A whole batch; starts again with the first sample where there are not enough."""
        size = self.config.batch_size
        return np.resize(np.roll(self.train, -number * size), size)


@dataclass(frozen=True, eq=False)
class HeldActivations:
    """Activations of a few pictures, in memory; there may be more samples than rows, which then share them."""

    held: NDArray[np.float16]
    num_views: int = 1

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.held.shape[1:]

    @property
    def sample_bytes(self) -> int:
        return int(self.held[0].nbytes)

    @property
    def ram_bytes(self) -> int:
        return int(self.held.nbytes)

    @property
    def held_bytes(self) -> int:
        return self.ram_bytes

    def open(self, sample_ids: Sequence[str], seed: int) -> InputSource:
        return ActivationSource(self, hash_ids(sample_ids), seed)

    def noise(self) -> StoredActivations:
        return StoredActivations(None, self.row_shape)

    def rows(
        self, positions: Positions, views: Positions | int = 0, *, out: NDArray[np.float16] | None = None
    ) -> NDArray[np.float16]:
        del views  # there is only the plain picture
        return np.take(self.held, positions % len(self.held), axis=0, out=out)


class TrainWork:
    """Steps of one training.

    Steps have the run's own batch, unless one takes so long that nothing could be compared: then as many samples as do not.
    """

    def __init__(self, job: PhotoJob, *, folder: Path) -> None:
        self.job, self.folder = job, folder
        self._device = torch_device(job.device)
        quick = replace(job, source=_kept_in(job.source, "none", folder))
        _, self._objective = quick.open(self._device)
        self._network = quick.build_network(self._objective, seed=job.loop.seed)
        # A new head begins next to nothing, and outputs that hardly move would hide what differs.
        weight = self._network.head.weight
        nn.init.normal_(weight, std=weight.shape[1] ** -0.5, generator=torch.Generator().manual_seed(0))
        self._sources: dict[str, InputSource] = {}
        self._trainings: dict[TrainSetup, ShortTraining] = {}
        self._reference: Numbers | None = None
        self._state: tuple[int, bool] | None = None
        self.batch_size, self.steps, self.block_s = job.loop.batch_size, 1, 0.0

    @property
    def piece(self) -> str:
        """What is timed at once, in words."""
        usual = self.job.loop.batch_size
        shorter = "" if self.batch_size == usual else f", because steps of {usual} take too long to be compared often"
        return f"{format_count(self.steps, 'step')} of {format_count(self.batch_size, 'image')}{shorter}"

    def calibrate(self, setup: TrainSetup, *, budget_s: float) -> None:
        """Find out how much a timed piece does, so that it is neither lost in noise nor takes for ever."""
        wanted = self.job.loop.batch_size
        self.batch_size = min(wanted, _FEW)
        sample_s = quickest(self.timed(setup), budget_s=budget_s)
        shorter = min(wanted, max(_FEW, int(_SHORTER_STEP_S / sample_s)))
        self.batch_size = wanted if wanted * sample_s < _LONGEST_STEP_S else shorter
        self.let_go()
        step_s = quickest(self.timed(setup), budget_s=budget_s) * self.batch_size
        self.steps = min(_MOST_STEPS, max(1, round(_BLOCK_S / step_s)))
        self.block_s = self.steps * step_s

    def changed(self, setup: TrainSetup, name: str, value: Any) -> TrainSetup:
        return replace(setup, **{name: value})

    def alike(self, setup: TrainSetup) -> Likeness:
        if self._reference is None:
            with unshortened():
                self._reference = self._numbers(TrainSetup.of(self.job).plain(self.batch_size))
        rounding = rounding_of(self._device, torch_dtype(LONG[setup.train_precision]))
        return equal_outputs(self._reference, self._numbers(setup), rounding)

    def timed(self, setup: TrainSetup) -> Callable[[], float]:
        if setup not in self._trainings:
            self._trainings[setup] = self._training(setup)
        training = self._trainings[setup]

        def run() -> float:
            if self._enter(setup):
                training.train_steps(1)  # threads and memory settle
            found = training.train_steps(self.steps)
            self.block_s += (found * self.steps * self.batch_size - self.block_s) / 4  # what a piece takes lately
            return found

        self._enter(setup)
        if training.num_run == 0:
            training.train_steps(1)  # which pays for what the first step pays
        return run

    def let_go(self, *but: TrainSetup) -> None:
        self._trainings = {setup: training for setup, training in self._trainings.items() if setup in but}
        empty_cache(self._device)

    def attempt_apart(self, now: TrainSetup, trick: TrainSetup, *, budget_s: float) -> Attempt:
        """Ask another process; one that does not answer in time is ended."""
        if budget_s <= 0:
            return Attempt(_UNKNOWN, why_not=NO_TIME)
        task = (self.job, self.folder, self.batch_size, self.steps, now, trick, budget_s)
        found = probe(_TARGET, task, timeout_s=budget_s)
        for answer in found.values:
            return cast("Attempt", answer)
        if found.outcome == "timed out":
            why = f"it was not ready and compared within the {format_seconds(budget_s)} left for it: ask for more --minutes"
            return Attempt(_UNKNOWN, why_not=why)
        raise MemoryError(found.fact)

    def _enter(self, setup: TrainSetup) -> bool:
        """Put the whole process in the state this way wants; whether it was in another."""
        wanted = (setup.threads, setup.keep_freed_memory)
        if wanted == self._state:
            return False
        torch.set_num_threads(setup.threads)
        keep_freed_memory(setup.keep_freed_memory)
        self._state = wanted
        return True

    def _numbers(self, setup: TrainSetup) -> Numbers:
        self._enter(setup)
        training = self._trainings[setup] = self._training(setup)
        return training.numbers()

    def _training(self, setup: TrainSetup) -> ShortTraining:
        """This way before its first step."""
        job, network, source = self.job, copy.deepcopy(self._network), self._source(setup.cache)
        where = LoopContext(self._device, None, ignore, setup.workers, setup.pin_memory)
        loop = setup.loop(job.loop, self.batch_size)
        return ShortTraining(
            network, source, job.problem, self._objective, loop, metric=job.metric, where=where, inputs=job.inputs
        )

    def _source(self, cache: str) -> InputSource:
        """The pictures as they are kept in this way, every one decoded where it is to be kept."""
        if cache not in self._sources:
            spec = _kept_in(self.job.source, cache, self.folder)
            if isinstance(spec, StoredPixels) and cache != "none":
                pixels = spec.open_cache()
                for position in pixels.missing().tolist():
                    pixels.row(position)
                if cache == "ram":
                    spec = replace(spec, filled=pixels)
                else:
                    pixels.close()
            self._sources[cache] = spec.open(self.job.problem.sample_ids, self.job.loop.seed)
        return self._sources[cache]


def _kept_in(source: Any, mode: str, folder: Path) -> Any:
    """Pixels kept in this way, all of them, in a folder that is not the user's; activations are where they are."""
    if not isinstance(source, StoredPixels):
        return source
    num = 0 if mode == "none" else len(source.sample_ids)
    row_bytes = math.prod(source.canvas.row_shape) * 3
    cache = Choice("cache", mode, "to be compared", {"capacity_rows": num, "bytes": num * row_bytes})
    return replace(source, cache=cache, folder=folder / f"pixels-{mode}", filled=None)


def run_apart(task: tuple[PhotoJob, Path, int, int, TrainSetup, TrainSetup, float]) -> Iterator[Attempt]:
    """The other end of `attempt_apart`: one attempt, with an eye on the clock."""
    started_s = time.monotonic()
    job, folder, batch_size, steps, now, trick, budget_s = task
    work = TrainWork(job, folder=folder)
    work.batch_size, work.steps = batch_size, steps
    yield attempt(work, now, trick, budget_s=0.9 * budget_s - (time.monotonic() - started_s))
