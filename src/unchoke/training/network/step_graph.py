"""A whole step recorded once and repeated by a single call: rows by number, augmentation, both passes, clipping, AdamW, average.

In: what a step is made of, and for each epoch a table of everything in which its steps differ: which samples, what was drawn for
them, the rates. Out: the same weights as step by step, without a thousand calls to the device in each. The table is sent once an
epoch, and which row is next is counted on the device, so that the host has nothing to do for a step but to ask for it. The odd
last batch of an epoch is filled up with samples that do not count, except where the network takes statistics of its batches:
there it is computed as ever. Whether all this pays is decided in `choose_step.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unchoke.machine.backend import send
from unchoke.training.data import Positions
from unchoke.training.network.adamw import WeightAverage, step_at
from unchoke.training.network.card_rows import CardRows
from unchoke.training.network.feeding import HostBatch, MixShares
from unchoke.training.network.sources import DrawnSource
from unchoke.training.network.step import Stepper, mix_part

Record = Callable[[Callable[[], None]], Callable[[], None]]
"""Records what a function hands to the device; what it returns repeats that."""


@dataclass(frozen=True, eq=False)
class StepTable:
    """A row for each step. Numbers: the samples, then where their rows lie on the card (0 where they are fed). Values: what was
    drawn for each sample, what mixup keeps of it, whether it counts, the rate of each group, what the average takes of weights,
    and one over the number of samples that count.
    """

    numbers: NDArray[np.int64]
    values: NDArray[np.float32]


def plan_table(
    source: DrawnSource,
    fed: Sequence[Positions],
    mixing: Sequence[MixShares | None],
    *,
    epoch: int,
    rates: NDArray[np.float64],
    shares: Sequence[float],
    batch_size: int,
    mixes: bool,
) -> StepTable:
    """The table of some steps of an epoch; what is drawn is drawn for all of them at once. A batch smaller than `batch_size` is
    filled up with its first sample, which then does not count again.
    """
    num_fed = batch_size + mixes
    positions = np.concatenate([np.append(one, np.repeat(one[:1], num_fed - len(one))) for one in fed])
    places = source.places(positions, epoch) if isinstance(source, CardRows) else np.zeros_like(positions)
    sizes = np.array([len(one) if kept is None else len(kept) for one, kept in zip(fed, mixing, strict=True)])
    draws = source.draws(positions, epoch)
    columns: list[NDArray[Any]] = [
        *([] if draws is None else [draws.reshape(len(fed), -1)]),
        *([np.stack([_kept(kept, batch_size) for kept in mixing])] if mixes else []),
        np.arange(batch_size) < sizes[:, None],
        rates,
        np.array(shares)[:, None],
        1 / sizes[:, None],
    ]
    numbers = np.concatenate([found.reshape(len(fed), -1) for found in (positions, places)], axis=1)
    return StepTable(numbers, np.concatenate(columns, axis=1).astype(np.float32))


def _kept(shares: MixShares | None, num: int) -> MixShares:
    """What mixup keeps of each sample: all of those that only fill up, and of one that is alone."""
    kept = np.ones(num, np.float32)
    kept[: 0 if shares is None else len(shares)] = 1 if shares is None else shares
    return kept


class StepGraph:
    """Steps over `batch_size` samples, at most `num_steps` of them from one table.

    `clip` 0 clips nothing; without `average` nothing is averaged. Until something is recorded, each step is computed call by
    call, from the same table. `fills_up` says whether smaller batches are computed this way too.
    """

    def __init__(
        self,
        stepper: Stepper,
        source: DrawnSource,
        optimizer: torch.optim.AdamW,
        average: WeightAverage | None,
        *,
        batch_size: int,
        num_steps: int,
        clip: float,
        mixes: bool,
        fills_up: bool,
    ) -> None:
        self._stepper, self._source, self._optimizer, self._average = stepper, source, optimizer, average
        self._batch_size, self.num_steps, self._clip, self._mixes, self._fills_up = batch_size, num_steps, clip, mixes, fills_up
        device = stepper.device
        self._cursor = torch.zeros(1, dtype=torch.int64, device=device)
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        self._numbers = self._values = self._raw = torch.empty(0)
        self._replay: Callable[[], None] = self.work

    @property
    def is_fed(self) -> bool:
        """Whether each step is handed its rows; else they lie on the card."""
        return not isinstance(self._source, CardRows)

    def takes(self, num: int) -> bool:
        """Whether a batch of `num` samples is computed this way."""
        return num == self._batch_size or (self._fills_up and num < self._batch_size)

    def load(self, table: StepTable) -> None:
        """Take the steps of `table` next, from its first row on."""
        if self._numbers.numel() == 0:
            self._numbers, self._values = self._room_for(table.numbers), self._room_for(table.values)
        for kept, part in ((self._numbers, table.numbers), (self._values, table.values)):
            kept[: len(part)].copy_(send(torch.from_numpy(part), kept.device))
        self._cursor.zero_()

    def _room_for(self, part: NDArray[Any]) -> torch.Tensor:
        """Where a part of any table goes: what is recorded reads it from there."""
        like = torch.from_numpy(part[:1])
        return like.new_zeros((self.num_steps, part.shape[1]), device=self._stepper.device)

    def step(self, fed: HostBatch | None = None) -> None:
        """The next step of the table; nothing is waited for."""
        if fed is not None:
            self._take(fed.raw)
        self._replay()

    def _take(self, raw: torch.Tensor) -> None:
        if self._raw.numel() == 0:
            shape = (self._batch_size + self._mixes, *raw.shape[1:])
            self._raw = torch.zeros(shape, dtype=raw.dtype, device=self._stepper.device)
        self._raw[: len(raw)].copy_(raw, non_blocking=True)

    def record(self, record: Record) -> None:
        """From now on, repeat what one step hands to the device. That changes weights: the caller puts them back."""
        self._replay = record(self.work)

    def forget(self) -> None:
        """Compute call by call again; what was recorded goes, with the memory it held."""
        self._replay = self.work
        self._stepper.network.zero_grad(set_to_none=True)

    def take_loss(self) -> float:
        """What the steps lost since this was last asked; the device is waited for."""
        lost = float(self._loss_sum)
        self._loss_sum.zero_()
        return lost

    def work(self) -> None:
        """One step, call by call: nothing in it is read by the host or depends on where the host stands."""
        stepper, num = self._stepper, self._batch_size
        numbers, values = (table.index_select(0, self._cursor)[0] for table in (self._numbers, self._values))
        self._cursor.add_(1)
        positions, places = numbers.view(2, -1).unbind()
        num_kept, num_rates = num if self._mixes else 0, len(self._optimizer.param_groups)
        lengths = [num_kept, num, num_rates, 1, 1]
        drawn, kept, counts, rates, share, inverse = torch.split_with_sizes(values, [len(values) - sum(lengths), *lengths])
        draws = drawn.view(len(positions), -1) if len(drawn) else None
        x = self._source.shown(self._raw if self.is_fed else places, draws)
        extra = None if stepper.inputs is None else stepper.inputs[positions]
        part = x, extra, stepper.objective.targets_at(positions, soft=self._mixes)
        stepper.network.zero_grad(set_to_none=True)
        summed = (stepper.losses(*(mix_part(part, kept) if self._mixes else part)) * counts).sum()
        torch.autograd.backward(summed * inverse[0])
        self._move(rates, share[0])
        self._loss_sum.add_(summed.detach())

    def _move(self, rates: torch.Tensor, share: torch.Tensor) -> None:
        """Clip the gradients, move the weights, and have the average follow."""
        if self._clip:
            nn.utils.clip_grad_norm_(self._stepper.network.parameters(), self._clip)
        step_at(self._optimizer, rates.unbind())
        if self._average is not None:
            self._average.follow(share)
