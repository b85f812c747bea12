"""A training on a card: where its rows lie and how its steps are computed, settled with reasons before the first step.

In: the pieces of a training that is about to begin. Out: the source it reads from then on, and a `StepGraph` where steps are
repeated from a recording. On a device without memory of its own nothing happens, and nothing is said.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from unchoke.core.choices import Choice
from unchoke.core.clock import Clock, Loading
from unchoke.core.events import Chosen
from unchoke.core.units import format_bytes
from unchoke.machine.backend import (
    can_record,
    context_bytes,
    device_room_bytes,
    empty_cache,
    held_memory_bytes,
    is_cpu,
    passing_bytes,
    random_state,
    record_work,
    synchronize,
)
from unchoke.machine.memory.oom import out_of_memory
from unchoke.training.data import Positions, Problem
from unchoke.training.network.adamw import WeightAverage
from unchoke.training.network.card_rows import IN_MEMORY, ON_CARD, choose_place, fill_card, rows_in_use
from unchoke.training.network.choose_step import (
    EAGER,
    GRAPH,
    TRIED_STEPS,
    StatePoint,
    judge,
    load_choice,
    save_choice,
    too_few,
    try_both,
)
from unchoke.training.network.feeding import Batches, HostBatch, MixShares, feed
from unchoke.training.network.loop_config import LoopConfig, LoopContext
from unchoke.training.network.sources import DrawnSource, InputSource, NumberedSource
from unchoke.training.network.step import Stepper
from unchoke.training.network.step_graph import StepGraph, StepTable, plan_table

_STEP_SHARE = 1.75
"""Of what a step takes: itself, what recording rounds up to, and evaluation."""
EagerStep = Callable[[HostBatch, int, MixShares | None, int], object]
"""Computes one step call by call: a batch, the size of the global one, what mixup keeps, and the number of the step."""


class NotRecordable(RuntimeError):  # noqa: N818 (a fact about the step)
    """Why a step cannot be recorded, in words."""


def place_rows(
    source: InputSource, problem: Problem, config: LoopConfig, where: LoopContext, clock: Clock, loading: Loading
) -> InputSource:
    """The source with its rows on the card, where they fit."""
    if not isinstance(source, NumberedSource):
        return source
    numbers = rows_in_use(source, problem, epochs=config.epochs)
    choice = choose_place(source, len(numbers), where.device, limit_bytes=where.limit_bytes, planned_bytes=where.planned_bytes)
    where.on_event(Chosen(choice))
    if choice.value != ON_CARD:
        return source
    try:
        with clock.stage("fill"):
            pin = where.pin and not is_cpu(where.device)
            return fill_card(source, numbers, where.device, workers=where.workers, pin=pin, loading=loading)
    except (RuntimeError, MemoryError) as error:  # others may have taken what was free
        found = out_of_memory(error)
        if found is None:
            raise
        where.on_event(Chosen(Choice("inputs", IN_MEMORY, f"they did not fit on the card after all: {found.message}")))
        return source


@dataclass(frozen=True, eq=False)
class CardSteps:
    """What steps are made of. `factor_at` is what rates are multiplied by in a step of the whole training."""

    stepper: Stepper
    source: InputSource
    optimizer: torch.optim.AdamW
    average: WeightAverage | None
    config: LoopConfig
    batches: Batches
    where: LoopContext
    factor_at: Callable[[int], float]
    eager_step: EagerStep

    @property
    def num_whole(self) -> int:
        """Steps of a whole batch in an epoch."""
        return len(self.batches.train) // self.config.batch_size

    @property
    def fills_up(self) -> bool:
        """Whether samples that do not count may stand beside others: not where batches have statistics."""
        return not self.stepper.statistics

    @property
    def per_epoch(self) -> int:
        """Steps of an epoch that a recording can take."""
        return self.batches.per_epoch if self.fills_up else self.num_whole

    def choose(self, identity: str, *, epoch: int, first: int) -> StepGraph | None:
        """A recording of the step, where that pays; None where steps are computed call by call."""
        folder = self.where.folder
        kept = load_choice(folder, identity)
        first = first if first < self.num_whole else 0
        why = self._why_eager(epoch, first, begun=kept is not None)
        if why is not None:
            self._tell(Choice("step", EAGER, why))
            return None
        graph, choice = self._as_begun(kept, epoch, first) if kept else self._tried(epoch, first)
        self._tell(choice)
        if kept is None:
            save_choice(folder, identity, choice)
        return graph

    def _tell(self, choice: Choice) -> None:
        self.where.on_event(Chosen(choice))

    def table(self, epoch: int, first: int, num: int | None = None) -> StepTable:
        """What the steps differ in that are repeated from a recording, from step `first` of an epoch on."""
        fed, mixing = self.planned(epoch, first, num)
        numbers = [epoch * self.batches.per_epoch + step for step in range(first, first + len(fed))]
        bases = [group["base_lr"] for group in self.optimizer.param_groups]
        assert isinstance(self.source, DrawnSource)
        return plan_table(
            self.source,
            fed,
            mixing,
            epoch=epoch,
            rates=np.outer([self.factor_at(number) for number in numbers], bases),
            shares=[self.average.share(number) if self.average else 0.0 for number in numbers],
            batch_size=self.config.batch_size,
            mixes=self._mixes,
        )

    def planned(self, epoch: int, first: int, num: int | None = None) -> tuple[list[Positions], list[MixShares | None]]:
        """The batches of those steps, as they are fed, and what mixup keeps of each."""
        batches, mixing = self.batches.plan(epoch, first)
        taken = list(zip(batches, mixing, strict=True))[: max(0, self.per_epoch - first)][:num]
        return [self.batches.own(*pair) for pair in taken], [kept for _, kept in taken]

    @property
    def _mixes(self) -> bool:
        return self.config.mixup > 0 and self.config.batch_size > 1

    def _why_eager(self, epoch: int, first: int, *, begun: bool) -> str | None:
        """Why steps are not even tried to be recorded."""
        config, where = self.config, self.where
        left = (config.epochs - epoch) * self.per_epoch - first
        unsound = {
            "this device records nothing": not can_record(where.device),
            "no batch is whole": self.num_whole == 0,
            "several processes train together": where.ranks.world > 1,
            "a batch runs in parts": self.stepper.size.value < config.batch_size,
            "a loss scale looks at every step": self.stepper.scaler.is_enabled(),
            "the network is compiled": config.compile,
            "activations are computed again": config.grad_ckpt,
            "every stage is to be seen by itself": where.profiler.mark is not None,
            "targets are read for each step": not self.stepper.objective.holds_targets,
            "inputs are made on the host": not isinstance(self.source, DrawnSource),
        }
        found = next((why for why, holds in unsound.items() if holds), None)
        return found or (None if begun else too_few(left))

    def _graph(self) -> StepGraph:
        assert isinstance(self.source, DrawnSource)
        return StepGraph(
            self.stepper,
            self.source,
            self.optimizer,
            self.average,
            batch_size=self.config.batch_size,
            num_steps=self.per_epoch,
            clip=self.config.clip,
            mixes=self._mixes,
            fills_up=self.fills_up,
        )

    def _as_begun(self, kept: Choice, epoch: int, first: int) -> tuple[StepGraph | None, Choice]:
        """As the run began; what was recorded then is recorded again, without comparing."""
        if kept.value != GRAPH:
            return None, kept
        graph, trial = self._graph(), _Passes(self, epoch, first)
        point = StatePoint(self.state())
        try:
            trial.record(graph)
        except (RuntimeError, MemoryError) as error:
            return self._given_up(graph, error)
        finally:
            point.restore()
        return graph, kept

    def _tried(self, epoch: int, first: int) -> tuple[StepGraph | None, Choice]:
        """A few steps both ways; the training stands where it stood afterwards."""
        graph, passes = self._graph(), _Passes(self, epoch, first)
        try:
            trial = try_both(
                self.state(),
                list(self.stepper.network.parameters()),
                eager=passes.eager,
                record=lambda: passes.record(graph),
                graph=lambda: passes.replayed(graph),
            )
        except (RuntimeError, MemoryError) as error:
            return self._given_up(graph, error)
        choice = judge(trial, batch_size=self.config.batch_size)
        if choice.value == GRAPH:
            return graph, choice
        self._let_go(graph)
        return None, choice

    def _given_up(self, graph: StepGraph, error: Exception) -> tuple[None, Choice]:
        self._let_go(graph)
        found = out_of_memory(error)
        said = f"recording it ran out of memory: {found.message}" if found else f"it cannot be recorded: {error}"
        return None, Choice("step", EAGER, said.splitlines()[0])

    def _let_go(self, graph: StepGraph) -> None:
        graph.forget()
        empty_cache(self.where.device)

    def state(self) -> list[torch.Tensor]:
        """Every tensor that a step changes."""
        moments = [value for state in self.optimizer.state.values() for value in state.values()]
        return [*self.stepper.network.state_dict().values(), *moments, *(self.average.values if self.average else [])]

    def refuse_tight(self) -> None:
        """A recording holds a step's memory for good, and evaluation needs some of its own beside it."""
        device = self.where.device
        empty_cache(device)  # recording does so anyway: what steps took call by call is free for it
        step, held = passing_bytes(device), held_memory_bytes(device) or 0
        room = device_room_bytes(device) if self.where.limit_bytes is None else self.where.limit_bytes
        room -= context_bytes(device)
        if held + _STEP_SHARE * step > room:
            taken = f"a recorded step keeps {format_bytes(step)} for good, beside {format_bytes(held)}"
            raise NotRecordable(f"{taken}: too much of {format_bytes(room)}")


class _Passes:
    """The next few steps, each way."""

    def __init__(self, steps: CardSteps, epoch: int, first: int) -> None:
        self._steps, self._device = steps, steps.where.device
        self._number = epoch * steps.batches.per_epoch + first
        num = min(TRIED_STEPS, steps.num_whole - first)
        self._table = steps.table(epoch, first, num)
        fed, self._mixing = steps.planned(epoch, first, num)
        where = steps.where
        read = feed(steps.source, fed, epoch=epoch, device=where.device, workers=where.workers, pin=where.pin)
        self._fed = list(read)

    def eager(self) -> float:
        """Seconds of one of them, call by call."""
        size = self._steps.config.batch_size

        def step(place: int) -> None:
            self._steps.eager_step(self._fed[place], size, self._mixing[place], self._number + place)

        return self._timed(step)

    def replayed(self, graph: StepGraph) -> float:
        """Seconds of one of them, repeated from what was recorded."""
        graph.load(self._table)
        seconds = self._timed(lambda place: graph.step(self._handed(graph, place)))
        graph.take_loss()
        return seconds

    def record(self, graph: StepGraph) -> None:
        """Compute one step call by call, then record it."""
        self._steps.refuse_tight()
        for _ in range(2):
            graph.load(self._table)
            before = random_state(self._device)
            graph.step(self._handed(graph, 0))
            if not torch.equal(before, random_state(self._device)):
                raise NotRecordable("the network draws at random")
        graph.load(self._table)
        graph.record(lambda work: record_work(work, self._device))
        graph.take_loss()

    def _handed(self, graph: StepGraph, place: int) -> HostBatch | None:
        return self._fed[place] if graph.is_fed else None

    def _timed(self, step: Callable[[int], None]) -> float:
        synchronize(self._device)
        started_s = time.perf_counter()
        for place in range(len(self._fed)):
            step(place)
        synchronize(self._device)
        return (time.perf_counter() - started_s) / len(self._fed)
