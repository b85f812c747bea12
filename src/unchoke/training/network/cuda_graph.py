"""A whole step recorded once as a CUDA graph and repeated by a single call: augmentation, both passes, clipping, AdamW, average.

In: what a step is made of, and for each epoch a table of everything in which its steps differ: which samples, what was drawn
for them, the learning rates. Out: the same weights as step by step, without a thousand calls to the device in each. The table
is sent once an epoch, and which row is next is counted on the device, so that the host only asks for a step. The odd last batch
of an epoch is padded with samples that do not count, except where the network takes statistics of its batches: there it is
computed call by call.

Whether that is sound and pays is decided by taking a few steps both ways; the training then stands exactly where it stood. The
graph is kept only where the weights agree and it is faster by more than noise. What a run began with is kept in `step.json`
beside its checkpoints, so that a run that is continued computes the same way.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unchoke.core import checksums
from unchoke.core.choices import Choice
from unchoke.core.events import Chosen
from unchoke.core.units import format_bytes, format_count
from unchoke.machine.backend import (
    can_record,
    context_bytes,
    device_room_bytes,
    empty_cache,
    held_memory_bytes,
    passing_bytes,
    random_state,
    record_work,
    send,
    synchronize,
)
from unchoke.machine.memory.oom import out_of_memory
from unchoke.training.data import Positions
from unchoke.training.network.adamw import step_at
from unchoke.training.network.feeding import Batches, HostBatch, MixShares, feed
from unchoke.training.network.gpu_rows import GpuRows
from unchoke.training.network.loop_config import LoopContext
from unchoke.training.network.sources import DrawnSource, InputSource
from unchoke.training.network.step import Stepper, mix_part

FILE = "step.json"
GRAPH, EAGER = "graph", "eager"
TRIED_STEPS = 4
FEWEST_STEPS = 200
"""Fewer are not worth the second that recording and comparing takes."""
_LEAST_GAIN = 1.1
_TOLERANCE = 0.05
"""How far apart weights may end, as a share of the way they moved. Usually they end in the same bits; where the device adds up in
another order, AdamW's first steps turn rounding into whole steps wherever a gradient is next to nothing.
"""
_STEP_SHARE = 1.75
"""Of what a step takes: itself, what recording rounds up to, and evaluation."""


class NotRecordable(RuntimeError):  # noqa: N818 (a fact about the step)
    """Why a step cannot be recorded, in words."""


@dataclass(frozen=True, eq=False)
class StepTable:
    """A row for each step. Numbers: the samples, then where their rows lie on the GPU (0 where they are fed). Values: what was
    drawn for each sample, what mixup keeps of it, whether it counts, the learning rate of each group, what the average takes of
    the weights, and one over the number of samples that count.
    """

    numbers: NDArray[np.int64]
    values: NDArray[np.float32]


class CudaGraph:
    """Steps over whole batches; where `pads` also over smaller ones. Until something is recorded, each step is computed call by
    call, from the same table.
    """

    def __init__(self, stepper: Stepper, source: DrawnSource, batches: Batches) -> None:
        self._stepper, self.source, self._config, self.batches = stepper, source, stepper.config, batches
        self.pads = not stepper.statistics
        self.num_steps = batches.per_epoch if self.pads else num_whole(batches)
        """Steps of an epoch that are computed this way."""
        self._mixes = stepper.config.mixup > 0 and stepper.config.batch_size > 1
        self._cursor = torch.zeros(1, dtype=torch.int64, device=stepper.device)
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=stepper.device)
        self._numbers = self._values = self._raw = torch.empty(0)
        self._replay: Callable[[], None] = self.work

    @property
    def is_fed(self) -> bool:
        """Whether each step is handed its rows; else they lie on the GPU."""
        return not isinstance(self.source, GpuRows)

    def takes(self, num: int) -> bool:
        """Whether a batch of `num` samples is computed this way."""
        return num == self._config.batch_size or (self.pads and num < self._config.batch_size)

    def planned(self, epoch: int, first: int, num: int | None = None) -> tuple[list[Positions], list[MixShares | None]]:
        """The batches from step `first` of an epoch on, as they are fed, and what mixup keeps of each."""
        batches, mixing = self.batches.plan(epoch, first)
        taken = list(zip(batches, mixing, strict=True))[: max(0, self.num_steps - first)][:num]
        return [self.batches.own(*pair) for pair in taken], [kept for _, kept in taken]

    def table(self, epoch: int, first: int, num: int | None = None) -> StepTable:
        """What those steps differ in; what is drawn is drawn for all of them at once. A batch smaller than the others is padded
        with its first sample, which then does not count again.
        """
        fed, mixing = self.planned(epoch, first, num)
        size, num_fed = self._config.batch_size, self._config.batch_size + self._mixes
        positions = np.concatenate([np.append(one, np.repeat(one[:1], num_fed - len(one))) for one in fed])
        places = self.source.places(positions, epoch) if isinstance(self.source, GpuRows) else np.zeros_like(positions)
        sizes = np.array([len(one) if kept is None else len(kept) for one, kept in zip(fed, mixing, strict=True)])
        numbers = [epoch * self.batches.per_epoch + step for step in range(first, first + len(fed))]
        bases = [group["base_lr"] for group in self._stepper.optimizer.param_groups]
        average, draws = self._stepper.average, self.source.draws(positions, epoch)
        shares = np.ones((len(fed), size), np.float32)  # padding is mixed with nothing
        for row, kept in zip(shares, mixing, strict=True):
            row[: 0 if kept is None else len(kept)] = 1 if kept is None else kept
        columns: list[NDArray[Any]] = [
            *([] if draws is None else [draws.reshape(len(fed), -1)]),
            *([shares] if self._mixes else []),
            np.arange(size) < sizes[:, None],
            np.outer([self._stepper.lr_factor(number) for number in numbers], bases),
            np.array([average.share(number) if average else 0.0 for number in numbers])[:, None],
            1 / sizes[:, None],
        ]
        indices = np.concatenate([found.reshape(len(fed), -1) for found in (positions, places)], axis=1)
        return StepTable(indices, np.concatenate(columns, axis=1).astype(np.float32))

    def load(self, table: StepTable) -> None:
        """Take the steps of `table` next, from its first row on. What is recorded reads any table from the same place."""

        def place_for(part: NDArray[Any]) -> torch.Tensor:
            like = torch.from_numpy(part[:1])
            return like.new_zeros((self.num_steps, part.shape[1]), device=self._stepper.device)

        if self._numbers.numel() == 0:
            self._numbers, self._values = place_for(table.numbers), place_for(table.values)
        for kept, part in ((self._numbers, table.numbers), (self._values, table.values)):
            kept[: len(part)].copy_(send(torch.from_numpy(part), kept.device))
        self._cursor.zero_()

    def step(self, fed: HostBatch | None = None) -> None:
        """The next step of the table; nothing is waited for."""
        if fed is not None:
            if self._raw.numel() == 0:
                shape = (self._config.batch_size + self._mixes, *fed.raw.shape[1:])
                self._raw = torch.zeros(shape, dtype=fed.raw.dtype, device=self._stepper.device)
            self._raw[: len(fed.raw)].copy_(fed.raw, non_blocking=True)
        self._replay()

    def record(self, record: Callable[[Callable[[], None]], Callable[[], None]]) -> None:
        """From now on, repeat what one step hands to the device. That changes weights: the caller puts them back."""
        self._replay = record(self.work)

    def forget(self) -> None:
        """Compute call by call again; what was recorded goes, with the memory it held."""
        self._replay = self.work
        self._stepper.network.zero_grad(set_to_none=True)
        empty_cache(self._stepper.device)

    def take_loss(self) -> float:
        """What the steps lost since this was last asked; the device is waited for."""
        lost = float(self._loss_sum)
        self._loss_sum.zero_()
        return lost

    def work(self) -> None:
        """One step, call by call: nothing in it is read by the host or depends on where the host stands."""
        stepper, num = self._stepper, self._config.batch_size
        numbers, values = (table.index_select(0, self._cursor)[0] for table in (self._numbers, self._values))
        self._cursor.add_(1)
        positions, places = numbers.view(2, -1).unbind()
        num_kept, num_rates = num if self._mixes else 0, len(stepper.optimizer.param_groups)
        lengths = [num_kept, num, num_rates, 1, 1]
        drawn, kept, counts, rates, share, inverse = torch.split_with_sizes(values, [len(values) - sum(lengths), *lengths])
        draws = drawn.view(len(positions), -1) if len(drawn) else None
        x = self.source.shown(self._raw if self.is_fed else places, draws)
        extra = None if stepper.inputs is None else stepper.inputs[positions]
        part = x, extra, stepper.objective.targets_at(positions, soft=self._mixes)
        stepper.network.zero_grad(set_to_none=True)
        summed = (stepper.losses(*(mix_part(part, kept) if self._mixes else part)) * counts).sum()
        torch.autograd.backward(summed * inverse[0])
        if self._config.clip:
            nn.utils.clip_grad_norm_(stepper.network.parameters(), self._config.clip)
        step_at(stepper.optimizer, rates.unbind())
        if stepper.average is not None:
            stepper.average.follow(share[0])
        self._loss_sum.add_(summed.detach())


def num_whole(batches: Batches) -> int:
    """Steps of a whole batch in an epoch."""
    return len(batches.train) // batches.batch_size


# -- whether to record -----------------------------------------------------------------------------------------------------


def choose_graph(
    stepper: Stepper, source: InputSource, batches: Batches, where: LoopContext, *, identity: str, epoch: int, first: int
) -> CudaGraph | None:
    """A recorded step, where that pays; None where steps are computed call by call. What the run began with stands."""
    first = first if first < num_whole(batches) else 0
    file, kept = None if where.folder is None else where.folder / FILE, None
    if file is not None and file.exists():
        begun = f"delete {file.parent}: the run is trained anew"
        with checksums.making_sense(file, try_=begun):
            told = checksums.load_checked_json(file, try_=begun)
            if told["identity"] == identity:
                kept = Choice("step", told["step"], f"as this run began, kept in {FILE}", told["evidence"])
    graph = None
    if why := _why_eager(stepper, source, batches, where, left_from=(epoch, first), begun=kept is not None):
        choice = Choice("step", EAGER, why)
    else:
        assert isinstance(source, DrawnSource)
        graph = CudaGraph(stepper, source, batches)
        choice = kept if kept is not None and kept.value != GRAPH else _record(graph, stepper, where, kept, epoch, first)
        if kept is None and file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            about = {"identity": identity, "step": choice.value, "reason": choice.reason, "evidence": choice.evidence}
            checksums.save_checked_json(file, about)
    where.on_event(Chosen(choice))
    return graph if choice.value == GRAPH else None


def _why_eager(
    stepper: Stepper, source: InputSource, batches: Batches, where: LoopContext, *, left_from: tuple[int, int], begun: bool
) -> str:
    """Why steps are not even tried to be recorded; "" where they are."""
    config = stepper.config
    per_epoch = num_whole(batches) if stepper.statistics else batches.per_epoch
    left = (config.epochs - left_from[0]) * per_epoch - left_from[1]
    unsound = {
        "this device records nothing": not can_record(where.device),
        "no batch is whole": num_whole(batches) == 0,
        "several processes train together": where.ranks.world > 1,
        "a batch runs in micro-batches": stepper.size.value < config.batch_size,
        "a loss scale looks at every step": stepper.scaler.is_enabled(),
        "the network is compiled": config.compile,
        "activations are computed again": config.grad_ckpt,
        "every stage is to be seen by itself": where.profiler.mark is not None,
        "targets are read for each step": not stepper.objective.holds_targets,
        "inputs are made on the host": not isinstance(source, DrawnSource),
        f"{format_count(left, 'step')} left: recording one would not pay": not begun and left < FEWEST_STEPS,
    }
    return next((why for why, holds in unsound.items() if holds), "")


def _record(graph: CudaGraph, stepper: Stepper, where: LoopContext, kept: Choice | None, epoch: int, first: int) -> Choice:
    """Record a step: as the run began, without comparing, or after a few steps both ways. The training stands where it stood."""
    moments = [value for state in stepper.optimizer.state.values() for value in state.values()]
    average = stepper.average.values if stepper.average else []
    changed = [value.detach() for value in (*stepper.network.state_dict().values(), *moments, *average)]
    begun: list[torch.Tensor] = []

    @torch.no_grad()
    def put_back() -> None:
        for value, old in zip(changed, begun, strict=False):  # none were kept if memory ran out on the way
            value.copy_(old)

    try:
        begun = [value.clone() for value in changed]
        choice = _try_both(graph, stepper, where, kept, epoch, first, put_back)
    except (RuntimeError, MemoryError) as error:
        found = out_of_memory(error)
        said = f"recording it ran out of memory: {found.message}" if found else f"it cannot be recorded: {error}"
        choice = Choice("step", EAGER, said.splitlines()[0])
    finally:
        put_back()
    if choice.value != GRAPH:
        graph.forget()
    return choice


@dataclass(frozen=True)
class StepTrial:
    """Seconds of one step each way. `apart` is how far the weights end from each other, as a share of the way they moved;
    `noise` the same between two passes call by call.
    """

    eager_s: float
    graph_s: float
    apart: float
    noise: float


def _try_both(
    graph: CudaGraph,
    stepper: Stepper,
    where: LoopContext,
    kept: Choice | None,
    epoch: int,
    first: int,
    put_back: Callable[[], None],
) -> Choice:
    """Take the next few steps each way, twice, from where the training stands; the first pass of each is not timed. A run that
    began with a graph only records it.
    """
    device, num = where.device, min(TRIED_STEPS, num_whole(graph.batches) - first)
    table, (batches, mixing) = graph.table(epoch, first, num), graph.planned(epoch, first, num)
    fed = list(feed(graph.source, batches, epoch=epoch, device=device, workers=where.workers, pin=where.pin))
    handed = fed if graph.is_fed else [None] * num
    number, size = epoch * graph.batches.per_epoch + first, stepper.config.batch_size

    def record() -> None:
        empty_cache(device)  # recording does so anyway: what steps took call by call is free for it
        step, held = passing_bytes(device), held_memory_bytes(device) or 0
        room = (device_room_bytes(device) if where.limit_bytes is None else where.limit_bytes) - context_bytes(device)
        if held + _STEP_SHARE * step > room:  # evaluation needs some of its own beside it
            taken = f"a recorded step keeps {format_bytes(step)} for good, beside {format_bytes(held)}"
            raise NotRecordable(f"{taken}: too much of {format_bytes(room)}")
        for _ in range(2):
            graph.load(table)
            before = random_state(device)
            graph.step(handed[0])
            if not torch.equal(before, random_state(device)):
                raise NotRecordable("the network draws at random")
        graph.load(table)
        graph.record(lambda work: record_work(work, device))
        graph.take_loss()

    def take(step: Callable[[int], object]) -> tuple[float, list[torch.Tensor]]:
        """Seconds of one step of a pass, and where it ended."""
        put_back()
        graph.load(table)
        synchronize(device)
        started_s = time.perf_counter()
        for at in range(num):
            step(at)
        synchronize(device)
        seconds = (time.perf_counter() - started_s) / num
        graph.take_loss()
        return seconds, [value.detach().clone() for value in stepper.network.parameters()]

    def eager(at: int) -> object:
        return stepper.step(fed[at], size, mixing[at], number + at)

    def replayed(at: int) -> None:
        graph.step(handed[at])

    if kept is not None:
        record()
        return kept
    before = [value.detach().clone() for value in stepper.network.parameters()]
    (_, once), (eager_s, again) = take(eager), take(eager)
    put_back()
    record()
    take(replayed)
    graph_s, third = take(replayed)
    moved = max(_distance(before, once), 1e-30)
    return judge(StepTrial(eager_s, graph_s, _distance(once, third) / moved, _distance(once, again) / moved), batch_size=size)


def _distance(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> float:
    squares = [(one.double() - other.double()).square().sum() for one, other in zip(some, others, strict=True)]
    return math.sqrt(float(torch.stack(squares).sum()))


def judge(trial: StepTrial, *, batch_size: int) -> Choice:
    """Recorded, where both ways end in the same place and it is faster by more than noise."""
    rates = {EAGER: batch_size / trial.eager_s, GRAPH: batch_size / trial.graph_s}
    shown = ", ".join(f"{way} {rate:,.0f} samples/s" for way, rate in rates.items())
    allowed = max(_TOLERANCE, 2 * trial.noise)
    evidence = {
        "samples_per_s": {way: round(rate, 1) for way, rate in rates.items()},
        "apart": round(trial.apart, 6),
        "noise": round(trial.noise, 6),
        "tolerance": round(allowed, 6),
        "steps": TRIED_STEPS,
    }
    if not trial.apart <= allowed:
        return Choice("step", EAGER, f"as a CUDA graph, weights end {trial.apart:.1%} of their way apart ({shown})", evidence)
    if trial.eager_s < _LEAST_GAIN * trial.graph_s:
        return Choice("step", EAGER, f"a CUDA graph of it gains too little ({shown})", evidence)
    agreed = f"the weights agree to {trial.apart:.2%} of the way they move"
    return Choice("step", GRAPH, f"recorded as a CUDA graph and repeated by one call: {shown}; {agreed}", evidence)
