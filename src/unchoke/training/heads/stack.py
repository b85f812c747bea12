"""Heads of one shape that see the same batches, trained as one, by an AdamW that steps all of them.

In: batches. Out: changed parameters and one loss per head. Every random draw is a function of (seed, epoch, batch),
never of which other heads are in the stack, so a head trained among many equals the same head trained alone, up to the
rounding of a larger matrix product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from unchoke.core.clock import Clock
from unchoke.core.fingerprint import hash_int
from unchoke.machine.backend import send
from unchoke.training.heads.heads import HeadConfig, Noise, Params, forward, init_params, stack_params, unstack_params
from unchoke.training.scoring.selection import DeviceTargets, ValScores

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8
_WARMUP_SHARE = 0.05


@dataclass(eq=False)
class Member:
    """One configuration's progress: its curve, its best so far, and where it stands. Epochs count from 1."""

    index: int
    config: HeadConfig
    curve: list[dict[str, float]] = field(default_factory=list)
    best_metric: float | None = None
    best_loss: float | None = None
    best_epoch: int = 0
    best_params: Params | None = None
    done: bool = False
    diverged: bool = False

    def improves(self, scores: ValScores) -> bool:
        """Whether these scores beat the best so far: a higher metric, or the same metric at a lower loss."""
        if self.best_metric is None or self.best_loss is None:
            return True
        return (scores.metric, -scores.loss) > (self.best_metric, -self.best_loss)


class Stack:
    """The heads of one shape still in training, as tensors with a leading K."""

    def __init__(
        self,
        members: Sequence[Member],
        *,
        task: DeviceTargets,
        dim: int,
        saved: dict[int, dict[str, Params]],
        clock: Clock,
        record: Record | None = None,
    ) -> None:
        """`record` records updates, where the device can repeat them by one call (`recorded_update.py`)."""
        self.task, self._clock, self._record = task, clock, record
        self.kind = members[0].config.kind
        self._adopt(members)
        params = [saved[m.index]["params"] if saved else _begin(m.config, task=task, dim=dim) for m in members]
        moments = [[saved[m.index][name] for m in members] for name in ("first", "second")] if saved else []
        self._start_optimiser(*(stack_params(part, device=task.device) for part in (params, *moments)))

    def _adopt(self, members: Sequence[Member]) -> None:
        """Take the members' settings as tensors (K,); None where a setting is off for all."""
        self.members = list(members)
        configs = [member.config for member in members]
        self.smoothing = self._setting([config.label_smoothing for config in configs])
        self.drop_share = self._setting([config.dropout if config.kind != "linear" else 0.0 for config in configs])
        self.class_weights: torch.Tensor | None = None
        if any(config.class_weights != "none" for config in configs):
            self.class_weights = torch.stack([self.task.class_weights(config.class_weights) for config in configs], dim=1)

    def _setting(self, values: list[float]) -> torch.Tensor | None:
        return torch.tensor(values, dtype=torch.float32).to(self.task.device) if any(values) else None

    def _start_optimiser(self, params: Params, first: Params | None = None, second: Params | None = None) -> None:
        decays = [member.config.weight_decay for member in self.members]
        self.optimiser = StackedAdamW(params, weight_decay=decays, first=first, second=second)
        for tensor in params.values():
            tensor.requires_grad_(True)
        self._losses = torch.zeros(len(self.members), device=self.task.device)
        self._recorded: RecordedUpdate | None = None
        if self._record is not None:
            optimiser = self.optimiser
            changed = [*params.values(), *optimiser.first.values(), *optimiser.second.values(), self._losses]
            self._recorded = RecordedUpdate(self._update_from, changed, self._record)

    def begin_epoch(self, *, epoch: int, num_batches: int) -> None:
        """Draw the mix-up shares of this epoch and clear the loss."""
        self._losses.zero_()
        self._mix: torch.Tensor | None = None
        if any(member.config.mixup for member in self.members):
            shares = [_mixup_shares(member.config, epoch=epoch, num_batches=num_batches) for member in self.members]
            self._mix = torch.from_numpy(np.stack(shares, axis=1)).to(self.task.device)

    def train_batch(self, feats: torch.Tensor, positions: torch.Tensor, *, epoch: int, batch: int, num_batches: int) -> None:
        """One update of every head; epochs and batches count from 0."""
        step = epoch * num_batches + batch
        rates = [scheduled_lr(m.config, step=step, num_steps=m.config.epochs * num_batches) for m in self.members]
        if self._recorded is None:
            noise = partial(self._noise, len(feats), epoch=epoch, batch=batch)
            count = torch.full((), float(step + 1), device=self.task.device)  # filled there: a copy would wait for the device
            self._update(feats, positions, noise, count, rates, self._clock)
            return
        with self._clock.stage("replay"):
            drawn = self._noise(len(feats), epoch=epoch, batch=batch)
            numbers = send(torch.tensor([step + 1, *rates], dtype=torch.float32), self.task.device)
            self._recorded(UpdateInputs(feats, positions, numbers[0], numbers[1:], drawn.mix, drawn.dropout))

    def _update_from(self, inputs: UpdateInputs) -> None:
        """An update that reads nothing but tensors, so that it can be recorded; what it spends is counted by who asks for it."""
        noise = Noise(inputs.mix, inputs.dropout)
        self._update(inputs.feats, inputs.positions, lambda: noise, inputs.count, inputs.rates.unbind(), Clock())

    def _update(
        self,
        feats: torch.Tensor,
        positions: torch.Tensor,
        draw: Callable[[], Noise],
        count: torch.Tensor,
        rates: Sequence[float] | Sequence[torch.Tensor],
        clock: Clock,
    ) -> None:
        with clock.stage("forward"):
            noise = draw()
            outputs = forward(self.kind, self.optimiser.params, feats, noise=noise)
            losses = self._batch_losses(outputs, self.task.targets[positions], noise.mix)
        with clock.stage("backward"):
            names = list(self.optimiser.params)
            grads = torch.autograd.grad(losses.sum(), [self.optimiser.params[name] for name in names])
        with clock.stage("optimizer"):
            self.optimiser.step(dict(zip(names, grads, strict=True)), count=count, lr=rates)
            self._losses += losses.detach() * len(feats)

    def _noise(self, num_rows: int, *, epoch: int, batch: int) -> Noise:
        config = self.members[0].config
        mix = None if self._mix is None else self._mix[batch]
        if self.drop_share is None:
            return Noise(mix)
        generator = torch.Generator().manual_seed(hash_int(config.seed, "dropout", epoch, batch) >> 1)
        draw = send(torch.rand((num_rows, 1, config.hidden), generator=generator), self.task.device)
        share = self.drop_share.view(1, -1, 1)
        return Noise(mix, (draw >= share) / (1 - share))

    def _batch_losses(self, outputs: torch.Tensor, targets: torch.Tensor, mix: torch.Tensor | None) -> torch.Tensor:
        """The mean loss of each head (K,); with mix-up, the loss against each of the two targets in its share."""
        if self.task.kind == "classification":
            outputs = outputs.log_softmax(-1)
        losses = self._row_losses(outputs, targets)
        if mix is not None:
            losses = torch.lerp(self._row_losses(outputs, targets.flip(0)), losses, mix)
        return losses.mean(dim=0)

    def _row_losses(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """(n, K): squared error, or weighted and smoothed cross-entropy from log-probabilities."""
        if self.task.kind == "regression":
            return (outputs - targets.unsqueeze(1)).square().mean(-1)
        wanted = targets.view(-1, 1, 1).expand(-1, outputs.shape[1], 1)
        gained = outputs.gather(-1, wanted).squeeze(-1)
        if self.smoothing is not None:
            gained = torch.lerp(gained, outputs.mean(-1), self.smoothing)
        return -gained if self.class_weights is None else -gained * self.class_weights[targets]

    @torch.no_grad()
    def outputs(self, feats: torch.Tensor) -> torch.Tensor:
        """(n, K, outputs) without dropout or mix-up."""
        return forward(self.kind, self.optimiser.params, feats)

    def epoch_losses(self, num_rows: int) -> list[float]:
        """Each head's mean training loss over the epoch, smoothing, weights and mix-up included."""
        return [float(value) / num_rows for value in self._losses.tolist()]

    def pace(self, member: Member, *, epoch: int, num_batches: int) -> dict[str, float]:
        """How a member trained in this epoch, for its curve: its learning rate at the end."""
        config = member.config
        return {"lr": scheduled_lr(config, step=(epoch + 1) * num_batches - 1, num_steps=config.epochs * num_batches)}

    def member_params(self, place: int) -> Params:
        """A copy of one head's parameters, on the CPU."""
        return unstack_params(self.optimiser.params, place)

    def shrink(self) -> None:
        """Let go of the members that are done."""
        staying = [place for place, member in enumerate(self.members) if not member.done]
        if len(staying) == len(self.members):
            return
        old = self.optimiser
        self._adopt([self.members[place] for place in staying])
        if staying:
            self._start_optimiser(*(_pick(part, staying) for part in (old.params, old.first, old.second)))

    def member_state(self) -> dict[int, dict[str, Params]]:
        """What a checkpoint needs of each head here, on the CPU."""
        optimiser = self.optimiser
        parts: dict[str, Any] = {"params": optimiser.params, "first": optimiser.first, "second": optimiser.second}
        return {
            member.index: {name: unstack_params(part, place) for name, part in parts.items()}
            for place, member in enumerate(self.members)
        }


def _begin(config: HeadConfig, *, task: DeviceTargets, dim: int) -> Params:
    return {**init_params(config, dim=dim, num_outputs=task.num_outputs), "bias": task.first_bias(config.class_weights)}


def _pick(stacked: Params, places: list[int]) -> Params:
    return {name: tensor.detach()[places].clone() for name, tensor in stacked.items()}


def _mixup_shares(config: HeadConfig, *, epoch: int, num_batches: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    if config.mixup == 0:
        return np.ones(num_batches, dtype=np.float32)
    generator = np.random.Generator(np.random.PCG64(hash_int(config.seed, "mixup", epoch)))
    return generator.beta(config.mixup, config.mixup, size=num_batches).astype(np.float32)


def scheduled_lr(config: HeadConfig, *, step: int, num_steps: int) -> float:
    """A linear warm-up over the first twentieth, then half a cosine down to zero."""
    warmup = max(1, round(num_steps * _WARMUP_SHARE))
    if step < warmup:
        return config.lr * (step + 1) / (warmup + 1)
    return config.lr * 0.5 * (1.0 + math.cos(math.pi * (step - warmup) / max(1, num_steps - warmup)))


class StackedAdamW:
    """Moments for stacked parameters, and the step that uses them.

    The arithmetic is torch's fused kernel, the one behind `torch.optim.AdamW(fused=True)`, called for each head's slice:
    one pass over memory instead of eight, and one meeting of the threads, which matters most when the cores are busy.
    """

    def __init__(
        self, params: Params, *, weight_decay: Sequence[float], first: Params | None = None, second: Params | None = None
    ) -> None:
        self.params = params
        self.first = first or {name: torch.zeros_like(tensor) for name, tensor in params.items()}
        self.second = second or {name: torch.zeros_like(tensor) for name, tensor in params.items()}
        self._weight_decay = weight_decay
        parts = [([name for name in params if name.endswith("weight") is decays], decays) for decays in (True, False)]
        self._parts = [(names, decays) for names, decays in parts if names]
        with torch.no_grad():
            self._slices = [[_by_head(values, names) for values in (params, self.first, self.second)] for names, _ in self._parts]

    @torch.no_grad()
    def step(self, grads: Params, *, count: torch.Tensor, lr: Sequence[float] | Sequence[torch.Tensor]) -> None:
        """One update, the `count`th, from 1 on; `lr` holds one rate per head."""
        # The kernel walks memory in order: a gradient that is a transposed view would be read in the wrong one.
        grads = {name: grad.contiguous() for name, grad in grads.items()}
        for (names, decays), (params, first, second) in zip(self._parts, self._slices, strict=True):
            slopes = _by_head(grads, names)
            rate: Any  # torch takes numbers and tensors, in two signatures
            for head, rate in enumerate(lr):
                torch._fused_adamw_(
                    params[head],
                    slopes[head],
                    first[head],
                    second[head],
                    [],
                    [count] * len(names),
                    lr=rate,
                    beta1=_BETA1,
                    beta2=_BETA2,
                    weight_decay=self._weight_decay[head] if decays else 0.0,
                    eps=_EPSILON,
                    amsgrad=False,
                    maximize=False,
                )


def _by_head(stacked: Params, names: list[str]) -> list[list[torch.Tensor]]:
    """For each head, its slices of the named tensors, sharing memory with the stack."""
    return [list(slices) for slices in zip(*(stacked[name].unbind() for name in names), strict=True)]


_TOLERANCE = 1e-5
"""How far a repeated update may lie from the one it was recorded from, as a share of the largest value."""


@dataclass(frozen=True, eq=False)
class UpdateInputs:
    """What differs from batch to batch. Where a setting is off for all heads there is no tensor for it."""

    feats: torch.Tensor
    positions: torch.Tensor
    count: torch.Tensor
    rates: torch.Tensor
    mix: torch.Tensor | None = None
    dropout: torch.Tensor | None = None

    def tensors(self) -> list[torch.Tensor]:
        found = (self.feats, self.positions, self.count, self.rates, self.mix, self.dropout)
        return [tensor for tensor in found if tensor is not None]

    def clone(self) -> UpdateInputs:
        def copy(tensor: torch.Tensor | None) -> torch.Tensor | None:
            return None if tensor is None else tensor.clone()

        return UpdateInputs(
            self.feats.clone(), self.positions.clone(), self.count.clone(), self.rates.clone(), copy(self.mix), copy(self.dropout)
        )

    def fits(self, other: UpdateInputs) -> bool:
        return [tensor.shape for tensor in self.tensors()] == [tensor.shape for tensor in other.tensors()]


Record = Callable[[Callable[[], None]], Callable[[], None]]
"""Runs a function once, records what it hands to the device, and returns what repeats that."""


class RecordedUpdate:
    """Repeats `update` on batches of one size; `state` are the tensors it changes."""

    def __init__(self, update: Callable[[UpdateInputs], None], state: Sequence[torch.Tensor], record: Record) -> None:
        self._update, self._state, self._record = update, state, record
        self._inputs: UpdateInputs | None = None
        self._repeat: Callable[[], None] | None = None
        self.agrees = True
        """False once a repetition differed: from then on nothing is recorded any more."""

    def __call__(self, inputs: UpdateInputs) -> None:
        """Update the heads, by what was recorded where the batch has its size."""
        if self._inputs is None and self.agrees:
            self._begin(inputs)
        elif self._repeat is not None and self._inputs is not None and self._inputs.fits(inputs):
            for kept, given in zip(self._inputs.tensors(), inputs.tensors(), strict=True):
                kept.copy_(given)
            self._repeat()
        else:
            self._update(inputs)

    def _begin(self, inputs: UpdateInputs) -> None:
        """Record this update; it happens once, whatever comes of the recording."""
        self._inputs = kept = inputs.clone()
        before = [tensor.detach().clone() for tensor in self._state]
        repeat = self._record(lambda: self._update(kept))
        after = [tensor.detach().clone() for tensor in self._state]
        self._put(before)
        repeat()
        self.agrees = all(_close(ours, theirs) for ours, theirs in zip(self._state, after, strict=True))
        self._put(after)
        self._repeat = repeat if self.agrees else None

    @torch.no_grad()
    def _put(self, values: Sequence[torch.Tensor]) -> None:
        for tensor, value in zip(self._state, values, strict=True):
            tensor.copy_(value)


@torch.no_grad()
def _close(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    largest = float(theirs.abs().max()) if theirs.numel() else 0.0
    return bool(torch.allclose(ours, theirs, rtol=0.0, atol=_TOLERANCE * max(largest, 1e-12)))
