"""The loop itself over noise, to see what it takes: what a memory plan measures, in a process of its own.

The network has the run's structure and random weights, its inputs are noise of the right shape, and everything else is the loop,
with its source, step, clipping, AdamW and average. Running out of memory is an error here: nothing is halved.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from unchoke.core.events import ignore
from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.machine.backend import empty_cache, is_cpu, keep_freed_memory, synchronize, tensor_bytes
from unchoke.machine.memory.memory_plan import MemoryRoom, StepCost
from unchoke.machine.memory.memory_watch import Gauge
from unchoke.machine.memory.oom import out_of_memory
from unchoke.training.data import Positions
from unchoke.training.network.finetune import NetworkTraining
from unchoke.training.network.loop_config import LoopConfig, LoopContext
from unchoke.training.network.step import MicroBatch, training_mode
from unchoke.training.network.training_job import TrainingJob

Way = Literal["train", "train_ckpt", "evaluation"]
TARGET = "unchoke.training.network.memory_trial:run_trial"
_STEPS = 3
_SETTLING = 2
"""The heap of a CPU still grows for some steps when they run in micro-batches: what is freed does not fit what is asked for
next.
"""
_LONG_ENOUGH_S = 60.0
_LONGEST_STEP_S = 10.0
_FIRST_SIZES = 3
_EVAL_FACTOR = 2


@dataclass(frozen=True)
class MemoryTrial:
    """What to try: a training over noise (`TrainingJob.over_noise`), and how many samples at once (`sizes`, ascending).

    With `room`, the largest size that fits is looked for; without, all are tried, until a step takes `longest_s`. After training,
    up to twice as many samples are evaluated, at most `most_evaluated`, or just `eval_batch` where that is given.
    `others_bytes` is what was in use on a GPU before this process came.
    """

    job: TrainingJob
    way: Way = "train"
    sizes: tuple[int, ...] = ()
    room: MemoryRoom | None = None
    most_evaluated: int = 0
    eval_batch: int | None = None
    limit_bytes: int | None = None
    others_bytes: int = 0
    steps: int = _STEPS
    longest_s: float = _LONGEST_STEP_S

    def rehearse(self, loop: LoopConfig) -> NoiseTraining:
        """The loop as `loop` has it, everything allocated that is there before the first step; one batch is all its data."""
        job = replace(self.job.over_noise(loop.batch_size), loop=loop)
        device = torch.device(job.device)
        network, source, objective = job.build(device)
        where = LoopContext(device, None, ignore, job.workers)
        return NoiseTraining(network, source, job.problem, objective, loop, metric="loss", where=where, inputs=job.inputs)

    def evaluated(self, size: int) -> int:
        """How many samples are evaluated at once where `size` run at once."""
        if self.way == "evaluation":
            return size
        return self.eval_batch or min(_EVAL_FACTOR * size, self.most_evaluated)


def run_trial(trial: MemoryTrial) -> Iterator[StepCost]:
    """What each size takes, measured in this process."""
    prepare_torchvision()
    import timm  # noqa: F401 (part of every run, and so of what this process takes before the network)

    keep_freed_memory(trial.job.loop.keep_freed)
    torch.set_num_threads(trial.job.loop.threads)
    meter = _Meter(trial)
    if trial.room is None:
        for size in trial.sizes:
            yield (cost := meter.cost(size))
            if cost.seconds > trial.longest_s:
                return
        return
    small: list[StepCost] = []
    for size in trial.sizes[:_FIRST_SIZES]:
        small.append(meter.cost(size))
        yield small[-1]
        if not small[-1].fits(trial.room):
            return
    for size in reversed(trial.sizes[_FIRST_SIZES:]):
        if not _may_fit(size, small, trial):
            continue
        try:
            cost = meter.cost(size)
        except Exception as error:
            if out_of_memory(error) is None:
                raise
            continue
        yield cost
        if cost.fits(trial.room):
            return


def _may_fit(size: int, small: list[StepCost], trial: MemoryTrial) -> bool:
    """Whether the line through the last two sizes says so, and that a step takes seconds."""
    assert trial.room is not None
    before, last = small[-2:]
    each = max(0.0, (last.peak_bytes - before.peak_bytes) / (last.batch - before.batch))
    alone = last.parts["gradients"] if size >= trial.job.loop.batch_size else 0  # no other micro-batch's gradients lie beside it
    peak_bytes = last.peak_bytes + each * (size - last.batch) - alone
    return replace(last, peak_bytes=int(peak_bytes)).fits(trial.room) and last.seconds * size / last.batch <= trial.longest_s


class _Meter:
    """One network over noise, and what it takes with any number of samples at once."""

    def __init__(self, trial: MemoryTrial) -> None:
        self._trial, self._device = trial, torch.device(trial.job.device)
        self._training: NoiseTraining | None = None
        self._bare_bytes = 0

    def cost(self, size: int) -> StepCost:
        """A smaller number than the batch is tried as two micro-batches: the second runs beside the gradients of the first."""
        trial, on_cpu = self._trial, is_cpu(self._device)
        evaluated, seconds = trial.evaluated(size), 0.0
        limit_bytes = None if on_cpu else trial.limit_bytes
        with Gauge(self._device, limit_bytes=limit_bytes, others_bytes=trial.others_bytes) as gauge:
            if self._training is None:
                loop = replace(trial.job.loop, grad_ckpt=trial.way == "train_ckpt")
                self._training = trial.rehearse(replace(loop, batch_size=max(loop.batch_size, trial.sizes[-1])))
            training = self._training
            training.stepper.size, training.stepper.eval_size = _FixedSize(size), _FixedSize(evaluated)
            if trial.way != "evaluation":
                parts = 1 if size >= trial.job.loop.batch_size else 2
                num = (_SETTLING if on_cpu and parts > 1 else 1) * trial.steps
                seconds = training.train_steps(num, parts * size, longest_s=_LONG_ENOUGH_S) / parts
            if evaluated:
                eval_s = training.evaluate(evaluated, trial.steps)
                seconds = seconds or eval_s
        if not on_cpu or not self._bare_bytes:
            self._bare_bytes = gauge.baseline_bytes
        empty_cache(self._device)
        return StepCost(size, gauge.peak_bytes, seconds, {**training.part_bytes(), "baseline": self._bare_bytes}, evaluated)


class _FixedSize(MicroBatch):
    """A size that is not halved: what does not fit is the answer."""

    def halve(self, tried: int, fact: str) -> None:
        raise MemoryError(fact)


class NoiseTraining(NetworkTraining):
    """The loop itself, over noise and without files."""

    def train_steps(self, num: int, samples: int | None = None, *, longest_s: float = math.inf) -> float:
        """Run steps over the same samples (by default a batch), only three if those took long; seconds of the quickest."""
        training_mode(self.network, self.config)
        positions = np.resize(self.train, samples or self.config.batch_size)
        seconds: list[float] = []
        while len(seconds) < num and (len(seconds) < _STEPS or sum(seconds) < longest_s):
            seconds.append(self._timed_step(positions, len(seconds)))
        return min(seconds[1:] or seconds)

    def _timed_step(self, positions: Positions, number: int) -> float:
        kept = self.batches.mixing(0, number, len(positions))
        for fed in self._feed([self.batches.own(positions, kept)], 0):
            started_s = time.perf_counter()
            self._step(fed, len(positions), kept)
            self.unread_losses.clear()  # random weights may well diverge, which says nothing about memory
            synchronize(self.where.device)
            spent_s = time.perf_counter() - started_s
        return spent_s

    def evaluate(self, batch: int, num: int) -> float:
        """Predict some batches as evaluation does; seconds of the quickest. The best weights lie beside, as after training."""
        best = {} if self.stepper.average else {name: value.cpu().clone() for name, value in self.network.state_dict().items()}
        self.network.eval()
        self.network.zero_grad(set_to_none=True)
        empty_cache(self.where.device)
        shown = np.resize(self.train, batch)
        ahead = [shown] * (self.where.workers + 1)  # read while the others are computed on, as in a run
        seconds = []
        for _, fed in zip(range(num), self._feed([shown] * num + ahead, None), strict=False):
            started_s = time.perf_counter()
            self.stepper.predict(fed, self.stepper.eval_size)
            synchronize(self.where.device)
            seconds.append(time.perf_counter() - started_s)
        best.clear()
        return min(seconds[1:] or seconds)

    def part_bytes(self) -> dict[str, int]:
        """What is known of the memory taken; the rest are activations."""
        average = self.stepper.average.values if self.stepper.average is not None else []
        moments = [value for state in self.stepper.optimizer.state.values() for value in state.values()]
        trained = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
        return {
            "weights": tensor_bytes([*self.network.parameters(), *self.network.buffers()]),
            "gradients": tensor_bytes(trained),
            "optimizer": tensor_bytes(moments) + tensor_bytes(average),
        }
