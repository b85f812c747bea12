"""Training as work that can be done in several ways: real steps over the user's own pictures, for `unchoke tune`.

In: a training as a value, over a sample of the pictures. Out: for any `TrainSetup`, whether its outputs and gradients are those
of plain float32, and how many seconds a sample takes. Every way starts from the same weights, sees the same batches, and is
thrown away afterwards; nothing is written but decoded pictures in a folder of the caller's. What may take for ever to get ready,
such as compiling, is tried in a process of its own (`attempt_apart`), which builds the same training from the same values and is
ended when its time is over; running out of memory there is an answer, too.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch

from unchoke.core.choices import Choice
from unchoke.core.events import ignore
from unchoke.core.units import format_count, format_seconds
from unchoke.machine.backend import empty_cache, keep_freed_memory, rounding_of, torch_device, torch_dtype, unshortened
from unchoke.machine.memory.probe import probe
from unchoke.machine.policy import LONG, SHORT
from unchoke.training.network.loop_config import LoopConfig, LoopContext
from unchoke.training.network.photo_job import PhotoJob
from unchoke.training.network.prepare_pixels import StoredPixels
from unchoke.training.network.sources import InputSource
from unchoke.training.network.tiled_network import TiledNetwork
from unchoke.tuning.bouts import Bout, RepeatingSource
from unchoke.tuning.compare import NO_TIME, Attempt, Likeness, Numbers, attempt, equal_outputs, quickest

_BLOCK_S = 0.7
_MOST_STEPS = 32
_LONGEST_STEP_S, _SHORTER_STEP_S = 3.0, 2.0
_FEW = 4
"""Samples of the first steps, which tell how long others would take."""
TARGET = "unchoke.tuning.tune_training:run_apart"
_UNKNOWN = Likeness(False, "not looked at")


@dataclass(frozen=True)
class TrainSetup:
    """One way to train. The names are those of the switches; `around` is what steps run inside of."""

    train_precision: str
    channels_last: bool
    compile: bool
    sub_batch: int
    eval_batch: int
    threads: int
    workers: int
    pin_memory: bool
    keep_freed_memory: bool = True
    cache: str = ""
    around: Callable[[], AbstractContextManager[Any]] = nullcontext

    @classmethod
    def of(cls, job: PhotoJob) -> TrainSetup:
        """The way a job would be run."""
        loop, source = job.loop, job.source
        return cls(
            train_precision=SHORT[loop.dtype],
            channels_last=loop.memory_format == "channels_last",
            compile=loop.compile,
            sub_batch=loop.sub_batch,
            eval_batch=loop.eval_batch,
            threads=loop.threads,
            workers=job.workers,
            pin_memory=job.pin,
            keep_freed_memory=loop.keep_freed,
            cache=str(source.cache.value) if isinstance(source, StoredPixels) else "",
        )

    def changed(self, name: str, value: Any) -> TrainSetup:
        """The same with one switch set."""
        return replace(self, **{name: value})

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
            eval_batch=self.eval_batch,
            threads=self.threads,
            keep_freed=self.keep_freed_memory,
        )


class TrainWork:
    """Steps of one training. `num_judged` is the size of the val split that an epoch of a run ends with.

    Steps have the run's own batch, unless one takes so long that nothing could be compared: then as many samples as do not.
    """

    def __init__(self, job: PhotoJob, *, num_judged: int, folder: Path) -> None:
        self.job, self.num_judged, self.folder = job, num_judged, folder
        self._device = torch_device(job.device)
        quick = replace(job, source=_kept_in(job.source, "none", folder))
        _, self._objective = quick.open(self._device)
        self._network = quick.build_network(self._objective, seed=job.loop.seed)
        _draw_head(self._network)
        self._sources: dict[str, InputSource] = {}
        self._bouts: dict[TrainSetup, Bout] = {}
        self._reference: Numbers | None = None
        self._state: tuple[int, bool] | None = None
        self.batch_size, self.steps, self.block_s = job.loop.batch_size, 1, 0.0

    def calibrate(self, setup: TrainSetup, *, budget_s: float) -> None:
        """Find out how much a timed piece does, so that it is neither lost in noise nor takes for ever."""
        wanted = self.job.loop.batch_size
        self.batch_size = min(wanted, _FEW)
        sample_s = quickest(self.timed(setup, "train"), budget_s=budget_s)
        shorter = min(wanted, max(_FEW, int(_SHORTER_STEP_S / sample_s)))
        self.batch_size = wanted if wanted * sample_s < _LONGEST_STEP_S else shorter
        self.let_go()
        step_s = quickest(self.timed(setup, "train"), budget_s=budget_s) * self.batch_size
        self.steps = min(_MOST_STEPS, max(1, round(_BLOCK_S / step_s)))
        self.block_s = self.steps * step_s

    @property
    def piece(self) -> str:
        """What is timed at once, in words."""
        usual = self.job.loop.batch_size
        shorter = "" if self.batch_size == usual else f", because steps of {usual} take too long to be compared often"
        return f"{format_count(self.steps, 'step')} of {format_count(self.batch_size, 'image')}{shorter}"

    def alike(self, setup: TrainSetup) -> Likeness:
        if self._reference is None:
            with unshortened():
                self._reference = self._numbers(TrainSetup.of(self.job).plain(self.batch_size))
        rounding = rounding_of(self._device, torch_dtype(LONG[setup.train_precision]))
        return equal_outputs(self._reference, self._numbers(setup), rounding)

    def timed(self, setup: TrainSetup, what: str) -> Callable[[], float]:
        bout = self._bouts.get(setup) or self._fresh(setup)
        return self._runner(setup, bout, what)

    def free(self, setup: TrainSetup) -> Callable[[], float]:
        """The same steps with loading free: one batch is read once and shown again and again."""
        return self._runner(setup, self._bout(setup, RepeatingSource(self._source(setup.cache))), "train")

    def let_go(self, *but: TrainSetup) -> None:
        self._bouts = {setup: bout for setup, bout in self._bouts.items() if setup in but}
        empty_cache(self._device)

    def _runner(self, setup: TrainSetup, bout: Bout, what: str) -> Callable[[], float]:
        """A function that runs a piece in this way, after one step that pays for what the first step pays."""

        def run() -> float:
            with setup.around():
                if self._enter(setup):
                    bout.train_steps(1)  # threads and memory settle
                if what == "evaluate":
                    found = bout.evaluate(self.steps * self.batch_size, num_judged=self.num_judged)
                else:
                    found = bout.train_steps(self.steps)
            if what == "train":
                self.block_s += (found * self.steps * self.batch_size - self.block_s) / 4  # what a piece takes lately
            return found

        with setup.around():
            self._enter(setup)
            if bout.num_run == 0:
                bout.train_steps(1)
            if what == "evaluate":
                bout.evaluate(1, num_judged=self.num_judged)
        return run

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
        with setup.around():
            self._enter(setup)
            return self._fresh(setup).numbers()

    def _fresh(self, setup: TrainSetup) -> Bout:
        """This way before its first step."""
        self._bouts[setup] = self._bout(setup, self._source(setup.cache))
        return self._bouts[setup]

    def _bout(self, setup: TrainSetup, source: InputSource) -> Bout:
        job = self.job
        where = LoopContext(self._device, None, ignore, setup.workers, setup.pin_memory)
        network, loop = copy.deepcopy(self._network), setup.loop(job.loop, self.batch_size)
        return Bout(network, source, job.problem, self._objective, loop, metric=job.metric, where=where, inputs=self.job.inputs)

    def _source(self, cache: str) -> InputSource:
        if cache not in self._sources:
            spec = _filled(_kept_in(self.job.source, cache, self.folder))
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


def _filled(source: Any) -> Any:
    """The same, every picture decoded where it is to be kept."""
    if not isinstance(source, StoredPixels) or source.cache.value == "none":
        return source
    cache = source.open_cache()
    for position in cache.missing().tolist():
        cache.row(position)
    if source.cache.value == "ram":
        return replace(source, filled=cache)
    cache.close()
    return source


def _draw_head(network: TiledNetwork) -> None:
    """A head that tells features apart: it begins next to nothing, and outputs that hardly move would hide what differs."""
    weight = network.head.weight
    torch.nn.init.normal_(weight, std=weight.shape[1] ** -0.5, generator=torch.Generator().manual_seed(0))


@dataclass(frozen=True, eq=False)
class AttemptTask:
    """What the other process is to do."""

    job: PhotoJob
    num_judged: int
    folder: Path
    batch_size: int
    steps: int
    now: TrainSetup
    trick: TrainSetup
    timed: str
    budget_s: float


def attempt_apart(work: TrainWork, now: TrainSetup, trick: TrainSetup, *, timed: str, budget_s: float) -> Attempt:
    """Ask another process; one that does not answer in time is ended."""
    if budget_s <= 0:
        return Attempt(_UNKNOWN, why_not=NO_TIME)
    piece = (work.folder, work.batch_size, work.steps)
    task = AttemptTask(work.job, work.num_judged, *piece, now, trick, timed, budget_s)
    found = probe(TARGET, task, timeout_s=budget_s)
    if found.values:
        return cast("Attempt", found.values[0])
    if found.outcome == "timed out":
        why = f"it was not ready and compared within the {format_seconds(budget_s)} left for it: ask for more --minutes"
        return Attempt(_UNKNOWN, why_not=why)
    raise MemoryError(found.fact)


def run_apart(task: AttemptTask) -> Iterator[Attempt]:
    """The other end: one attempt, with an eye on the clock."""
    started_s = time.monotonic()
    work = TrainWork(task.job, num_judged=task.num_judged, folder=task.folder)
    work.batch_size, work.steps = task.batch_size, task.steps
    left_s = 0.9 * task.budget_s - (time.monotonic() - started_s)
    yield attempt(work, task.now, task.trick, timed=task.timed, budget_s=left_s)
