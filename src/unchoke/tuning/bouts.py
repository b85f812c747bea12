"""Real steps of a training, a few at a time, to be timed and compared: what `unchoke tune` runs.

In: a network, a source and a `LoopConfig`, as a run has them. Out: the seconds a sample takes in training and in evaluation, and
the numbers of one step (outputs and gradients). No file is written, weights are the caller's to throw away, and which way of
computing is better is decided elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unchoke.core.mixing import hash_ids
from unchoke.machine.backend import synchronize
from unchoke.training.data import Positions
from unchoke.training.network.feeding import HostBatch, MixShares
from unchoke.training.network.finetune import NetworkTraining, most_evaluated
from unchoke.training.network.photo_job import NoiseActivations
from unchoke.training.network.sources import ActivationSource, InputSource
from unchoke.training.network.step import training_mode
from unchoke.tuning.compare import Numbers

_DROPPING = ("DropPath", "PatchDropout", "DropBlock2d")
"""timm's modules that drop something at random, beside torch's own."""


class Bout(NetworkTraining):
    """The loop itself, without files, run for a few steps whenever it is asked to."""

    def numbers(self) -> Numbers:
        """Outputs and gradients of the first step, with everything off that drops at random. To be asked before any step."""
        training_mode(self.network, self.config)
        for module in self.network.modules():
            if isinstance(module, nn.modules.dropout._DropoutNd) or type(module).__name__ in _DROPPING:
                module.eval()
        batch = self._batch(0)
        kept = self.batches.mixing(0, 0, len(batch))
        (fed,) = self._feed([self.batches.own(batch, kept)], 0)
        self.stepper.backward(fed, len(batch), seed=0, kept=kept)
        scale = self.scaler.get_scale()
        gradients = {
            name: (parameter.grad.float() / scale).cpu().numpy()
            for name, parameter in self.network.named_parameters()
            if parameter.grad is not None
        }
        return Numbers(self._outputs(fed, len(batch), kept), gradients)

    def _outputs(self, fed: HostBatch, num: int, kept: MixShares | None) -> NDArray[np.float32]:
        size = self.stepper.size.value
        with torch.no_grad():
            parts = [self.stepper._part(fed, start, min(start + size, num), kept) for start in range(0, num, size)]
            found = [self.stepper._outputs(x, extra).float().cpu() for x, extra, _ in parts]
        return torch.cat(found).numpy()

    def train_steps(self, num: int) -> float:
        """Seconds a sample takes in `num` steps, reading included, as an epoch begins."""
        training_mode(self.network, self.config)
        self.standing.step = 0  # the rate stays that of the first step, so that the weights stay about where they are
        batches = [self._batch(number) for number in range(num)]
        mixing = [self.batches.mixing(0, number, len(batch)) for number, batch in enumerate(batches)]
        started_s = time.perf_counter()
        fed_batches = self._feed([self.batches.own(*pair) for pair in zip(batches, mixing, strict=True)], 0)
        for batch, kept, fed in zip(batches, mixing, fed_batches, strict=True):
            self._step(fed, len(batch), kept)
        synchronize(self.where.device)
        spent_s = time.perf_counter() - started_s
        self.unread_losses.clear()
        return spent_s / sum(map(len, batches))

    def evaluate(self, num: int, *, num_judged: int) -> float:
        """Seconds a sample takes in evaluation, over about `num` of them, in batches as a split of `num_judged` is read in."""
        size = max(1, min(self.eval_size.value, most_evaluated(num_judged)))
        batches = [np.resize(self.train, size)] * -(-num // size)
        self.network.eval()
        self.network.zero_grad(set_to_none=True)
        started_s = time.perf_counter()
        for fed in self._feed(batches, None):
            self.stepper.predict(fed, self.eval_size)
        synchronize(self.where.device)
        return (time.perf_counter() - started_s) / (len(batches) * size)

    def _batch(self, number: int) -> Positions:
        """A whole batch; starts again with the first sample where there are not enough."""
        size = self.config.batch_size
        return np.resize(np.roll(self.train, -number * size), size)


class RepeatingSource:
    """A source whose batches are read once and shown again and again: what a step takes if loading is free."""

    def __init__(self, source: InputSource) -> None:
        self._source = source
        self._read: dict[tuple[int, bool], torch.Tensor] = {}
        self.sample_shape, self.sample_bytes = source.sample_shape, source.sample_bytes

    def read(self, positions: Positions, epoch: int | None, *, pin: bool = False) -> torch.Tensor:
        key = len(positions), epoch is None
        if key not in self._read:
            self._read[key] = self._source.read(positions, epoch, pin=pin)
        return self._read[key]

    def prepare(self, raw: torch.Tensor, positions: Positions, epoch: int | None) -> torch.Tensor:
        return self._source.prepare(raw, positions, epoch)


@dataclass(frozen=True, eq=False)
class HeldActivations:
    """Activations of a few pictures, in memory; there may be more samples than rows, which then share them."""

    rows: NDArray[np.float16]

    @property
    def sample_bytes(self) -> int:
        return int(self.rows[0].nbytes)

    @property
    def ram_bytes(self) -> int:
        return int(self.rows.nbytes)

    @property
    def held_bytes(self) -> int:
        return self.ram_bytes

    def open(self, sample_ids: Sequence[str], seed: int) -> InputSource:
        return ActivationSource(_SharedRows(self.rows), hash_ids(sample_ids), seed)

    def noise(self) -> NoiseActivations:
        return NoiseActivations(self.rows.shape[1:])


@dataclass(frozen=True, eq=False)
class _SharedRows:
    """Rows by position, over and over."""

    held: NDArray[np.float16]
    num_views: int = 1

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.held.shape[1:]

    def rows(
        self, positions: Positions, views: Positions | int = 0, *, out: NDArray[np.float16] | None = None
    ) -> NDArray[np.float16]:
        del views  # there is only the plain picture
        found = self.held[positions % len(self.held)]
        if out is None:
            return found
        out[:] = found
        return out
