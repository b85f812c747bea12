"""The loop itself over noise, to see what it takes: what a memory plan measures, in a process of its own.

The network has the run's structure and random weights, its inputs are noise of the right shape, and everything else is the loop,
with its source, step, clipping, AdamW and average. Running out of memory is an answer here: nothing is halved.
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
from unchoke.training.network.finetune import NetworkTraining
from unchoke.training.network.loop_config import LoopConfig, LoopContext
from unchoke.training.network.step import MicroBatch, training_mode
from unchoke.training.network.training_job import TrainingJob

Way = Literal["train", "train_ckpt", "evaluation"]
TARGET = "unchoke.training.network.memory_trial:run_trial"
_STEPS = 3
_SETTLING = 2
"""The heap of a CPU grows for some steps in micro-batches: what is freed does not fit what is asked for next."""
_LONG_ENOUGH_S = 60.0
_LONGEST_STEP_S = 10.0


@dataclass(frozen=True)
class MemoryTrial:
    """What to try: a training over noise (`TrainingJob.over_noise`), and how many samples at once (`sizes`).

    With `room`, sizes descend until one fits; without, they ascend until one does not, or a step takes `longest_s`. After
    training, up to twice as many samples are evaluated, at most `most_evaluated`, or just `eval_batch` where that is given.
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


def run_trial(trial: MemoryTrial) -> Iterator[StepCost | str]:
    """What each size takes, measured in this process; in words why, where a size did not fit.

    On a CPU only one size that does not fit is tried: its memory would count for the next.
    """
    prepare_torchvision()
    import timm  # noqa: F401 (part of every run, and so of what this process takes before the network)

    keep_freed_memory(trial.job.loop.keep_freed)
    torch.set_num_threads(trial.job.loop.threads)
    device, on_cpu = torch.device(trial.job.device), is_cpu(torch.device(trial.job.device))
    training: NoiseTraining | None = None
    bare_bytes = 0
    for size in trial.sizes:
        evaluated = size if trial.way == "evaluation" else trial.eval_batch or min(2 * size, trial.most_evaluated)
        gauge = Gauge(device, limit_bytes=None if on_cpu else trial.limit_bytes, others_bytes=trial.others_bytes)
        try:
            with gauge:
                if training is None:
                    loop = replace(trial.job.loop, grad_ckpt=trial.way == "train_ckpt")
                    training = rehearse(trial.job, replace(loop, batch_size=max(loop.batch_size, *trial.sizes)))
                seconds = training.take(size, evaluated, trial, on_cpu=on_cpu)
        except (RuntimeError, MemoryError) as error:
            if (lack := out_of_memory(error)) is None:
                raise
            fact = lack.message
        else:
            bare_bytes = bare_bytes if on_cpu and bare_bytes else gauge.baseline_bytes
            parts = {**training.part_bytes(), "baseline": bare_bytes}
            yield (cost := StepCost(size, gauge.peak_bytes, seconds, parts, evaluated))
            if cost.fits(trial.room) or on_cpu if trial.room else seconds > trial.longest_s:
                return
            fact = ""
        if training is not None:  # beyond the failed frames: what they held is free for the next size
            training.network.zero_grad(set_to_none=True)
        empty_cache(device)
        if fact:
            yield fact
            if trial.room is None or on_cpu:
                return


def rehearse(job: TrainingJob, loop: LoopConfig) -> NoiseTraining:
    """The loop over noise, everything allocated that is there before the first step; one batch is all its data."""
    job = replace(job.over_noise(loop.batch_size), loop=loop)
    device = torch.device(job.device)
    network, source, objective = job.build(device)
    where = LoopContext(device, None, ignore, job.workers)
    return NoiseTraining(network, source, job.problem, objective, loop, metric="loss", where=where, inputs=job.inputs)


class _FixedSize(MicroBatch):
    """A size that is not halved: what does not fit is the answer."""

    def halve(self, tried: int, fact: str) -> None:
        raise MemoryError(fact)


class NoiseTraining(NetworkTraining):
    """The loop itself, over noise and without files."""

    def take(self, size: int, evaluated: int, trial: MemoryTrial, *, on_cpu: bool) -> float:
        """Train and evaluate so many samples at once; seconds of the quickest step.

        A smaller number than the batch runs as two micro-batches: the second runs beside the gradients of the first.
        """
        self.stepper.size, self.stepper.eval_size = _FixedSize(size), _FixedSize(evaluated)
        seconds = 0.0
        if trial.way != "evaluation":
            parts = 1 if size >= trial.job.loop.batch_size else 2
            num = (_SETTLING if on_cpu and parts > 1 else 1) * trial.steps
            seconds = self.train_steps(num, parts * size, longest_s=_LONG_ENOUGH_S) / parts
        eval_s = self.evaluate(evaluated, trial.steps) if evaluated else 0.0
        return seconds or eval_s

    def train_steps(self, num: int, samples: int | None = None, *, longest_s: float = math.inf) -> float:
        """Run steps over the same samples (by default a batch), only three if those took long; seconds of the quickest."""
        training_mode(self.network, self.config)
        positions = np.resize(self.train, samples or self.config.batch_size)
        seconds: list[float] = []
        while len(seconds) < num and (len(seconds) < _STEPS or sum(seconds) < longest_s):
            kept = self.batches.mixing(0, len(seconds), len(positions))
            (fed,) = self.feed([self.batches.own(positions, kept)], 0)
            started_s = time.perf_counter()
            self.step(fed, len(positions), kept)
            self.unread_losses.clear()  # random weights may well diverge, which says nothing about memory
            synchronize(self.where.device)
            seconds.append(time.perf_counter() - started_s)
        return min(seconds[1:] or seconds)

    def evaluate(self, batch: int, num: int) -> float:
        """Predict some batches as evaluation does; seconds of the quickest. The best weights lie beside, as after training."""
        best = {} if self.stepper.average else {name: value.cpu().clone() for name, value in self.network.state_dict().items()}
        self.network.eval()
        self.network.zero_grad(set_to_none=True)
        empty_cache(self.where.device)
        shown = np.resize(self.train, batch)
        ahead = [shown] * (self.where.workers + 1)  # read while the others are computed on, as in a run
        seconds = []
        for _, fed in zip(range(num), self.feed([shown] * num + ahead, None), strict=False):
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
