"""One real piece of a training, run to see what it takes: the body of a memory probe.

In: a `MemoryTrial` (what is trained, over noise; the loop's settings; no data) and how many samples run at once. Out: the
peak of memory, the seconds, and what is known of the parts. The network has the run's structure and random weights, its inputs
are noise of the right shape, and everything else is the loop itself, with its source, step, clipping, AdamW and average.
Running out of memory is an error here: nothing is halved. Meant for a process of its own (`machine/memory/probe.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from unchoke.core.events import ignore
from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.machine.backend import empty_cache, is_cpu, keep_freed_memory, synchronize
from unchoke.machine.memory.gauge import Gauge
from unchoke.machine.memory.live_tensors import tensor_bytes
from unchoke.machine.memory.probe import StepCost
from unchoke.training.data import Problem, ProblemKind
from unchoke.training.network.finetune import NetworkTraining
from unchoke.training.network.loop_config import LoopConfig, LoopContext
from unchoke.training.network.step import PartSize, training_mode
from unchoke.training.network.training_job import Blueprint, TrainingJob

TARGET = "unchoke.training.network.memory_trial:run_trial"
_STEPS = 3
_SETTLING = 2
"""The heap of a CPU still grows for some steps when they run in parts: what is freed does not fit what is asked for next."""
_LONG_ENOUGH_S = 60.0


@dataclass(frozen=True)
class MemoryTrial:
    """What to try: a blueprint over noise, and what is learnt by kind and names.

    `loop.batch_size` is the run's own: a smaller number of samples at once is tried as two parts of one step, because the second
    runs beside the gradients of the first. `others_bytes` is what was in use on a card before this process came; None where
    others come and go meanwhile.
    """

    blueprint: Blueprint
    loop: LoopConfig
    device: str
    kind: ProblemKind = "classification"
    names: tuple[str, ...] = ("a", "b")
    evaluation: bool = False
    limit_bytes: int | None = None
    others_bytes: int | None = 0
    steps: int = _STEPS
    workers: int = 0

    @classmethod
    def of(cls, job: TrainingJob) -> MemoryTrial:
        """The trial of a training."""
        names = tuple(job.problem.names)
        return cls(job.blueprint.noise(1), job.loop, job.device, job.problem.kind, names, workers=job.workers)

    def rehearse(self, loop: LoopConfig) -> NoiseTraining:
        """The loop as `loop` has it, everything allocated that is there before the first step; one batch is all its data."""
        device, blueprint = torch.device(self.device), self.blueprint.noise(loop.batch_size)
        problem = noise_problem(self.kind, self.names, loop.batch_size)
        network, source, objective = blueprint.build(problem, loop, device)
        where = LoopContext(device, None, ignore, self.workers)
        return NoiseTraining(network, source, problem, objective, loop, metric="loss", where=where, inputs=blueprint.inputs)

    def gauge(self) -> Gauge:
        """What measures it, with its limit in force where the device enforces one."""
        device = torch.device(self.device)
        return Gauge(device, limit_bytes=None if is_cpu(device) else self.limit_bytes, others_bytes=self.others_bytes)


def noise_problem(kind: ProblemKind, names: Sequence[str], num: int) -> Problem:
    """`num` samples of noise; every class, or a spread of values, is among them as far as there is room."""
    ids, order = [str(number) for number in range(num)], np.arange(num, dtype=np.int64)
    if kind != "regression":
        return Problem(kind, tuple(names), order % len(names), {"train": order}, ids)
    values = np.repeat((order % 7 + 1).astype(np.float32)[:, None], len(names), axis=1)
    return Problem(kind, tuple(names), values, {"train": order}, ids)


def run_trial(trial: MemoryTrial, batch: int) -> StepCost:
    """Run `batch` samples at once, a few times over, in this process."""
    prepare_torchvision()
    import timm  # noqa: F401 (part of every run, and so of what this process takes before the network)

    keep_freed_memory(trial.loop.keep_freed)
    torch.set_num_threads(trial.loop.threads)
    with trial.gauge() as gauge:
        rehearsal = trial.rehearse(_loop(trial, batch))
        rehearsal.stepper.size = rehearsal.eval_size = _FixedSize(batch)
        if trial.evaluation:
            seconds = rehearsal.evaluate(batch, trial.steps)
        else:
            settling = _SETTLING if is_cpu(torch.device(trial.device)) and batch < trial.loop.batch_size else 1
            seconds = rehearsal.train_steps(settling * trial.steps, longest_s=_LONG_ENOUGH_S)
    return StepCost(gauge.peak_bytes, seconds, {**rehearsal.part_bytes(), "baseline": gauge.baseline_bytes})


def _loop(trial: MemoryTrial, batch: int) -> LoopConfig:
    """The run's loop with `batch` samples at once: the whole step, or one of two parts."""
    num_parts = 1 if trial.evaluation or batch >= trial.loop.batch_size else 2
    return replace(trial.loop, batch_size=num_parts * batch, sub_batch=batch, eval_batch=batch)


class _FixedSize(PartSize):
    """A size that is not halved: what does not fit is the answer."""

    def halve(self, tried: int, fact: str) -> None:
        raise MemoryError(fact)


class NoiseTraining(NetworkTraining):
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
            "weights": tensor_bytes([*self.network.parameters(), *self.network.buffers()]),
            "gradients": tensor_bytes(trained),
            "optimizer": tensor_bytes(moments) + tensor_bytes(average),
        }
