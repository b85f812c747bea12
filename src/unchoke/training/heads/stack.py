"""Heads of one shape that see the same batches, trained as one, by an AdamW that steps all of them.

In: batches. Out: changed parameters and one loss per head. Every random draw is a function of (seed, epoch, batch),
never of which other heads are in the stack, so a head trained among many equals the same head trained alone, up to the
rounding of a larger matrix product. On a GPU an update is a CUDA graph, because dozens of small calls cost more than the work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from unchoke.core.clock import Clock
from unchoke.core.fingerprint import hash_int
from unchoke.machine.backend import send
from unchoke.training.heads.heads import HeadConfig, Params, forward, init_params, stack_params, unstack_params
from unchoke.training.scoring.selection import DeviceTargets, ValScores

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8
_WARMUP_SHARE = 0.05
_GRAPH_TOLERANCE = 1e-5
"""How far a replayed update may differ from the one it was recorded from, as a share of the largest value."""
Record = Callable[[Callable[[], None]], Callable[[], None]]
"""Runs a function once, records what it launches on the device, and returns what replays that."""
UpdateInputs = tuple[torch.Tensor | None, ...]
"""What differs from batch to batch: features, positions, step count, learning rates, mix-up shares, dropout mask."""


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
        """`record` records updates as CUDA graphs, where the device can."""
        self.task, self._clock, self._record = task, clock, record
        self.kind = members[0].config.kind
        self._adopt(members)
        if saved:
            parts = [[saved[m.index][name] for m in members] for name in ("params", "first", "second")]
        else:
            first_biases = [task.first_bias(m.config.class_weights) for m in members]
            begun = [init_params(m.config, dim=dim, num_outputs=task.num_outputs) for m in members]
            parts = [[{**params, "bias": bias} for params, bias in zip(begun, first_biases, strict=True)]]
        self._start_optimiser(*(stack_params(part, device=task.device) for part in parts))

    def _adopt(self, members: Sequence[Member]) -> None:
        """Take the members' settings as tensors (K,); None where a setting is off for all."""

        def setting(values: list[float]) -> torch.Tensor | None:
            return torch.tensor(values, dtype=torch.float32).to(self.task.device) if any(values) else None

        self.members = list(members)
        configs = [member.config for member in members]
        self.smoothing = setting([config.label_smoothing for config in configs])
        self.drop_share = setting([config.dropout if config.kind != "linear" else 0.0 for config in configs])
        self.class_weights: torch.Tensor | None = None
        if any(config.class_weights != "none" for config in configs):
            self.class_weights = torch.stack([self.task.class_weights(config.class_weights) for config in configs], dim=1)

    def _start_optimiser(self, params: Params, first: Params | None = None, second: Params | None = None) -> None:
        decays = [member.config.weight_decay for member in self.members]
        self.optimiser = StackedAdamW(params, weight_decay=decays, first=first, second=second)
        for tensor in params.values():
            tensor.requires_grad_(True)
        self._epoch_losses = torch.zeros(len(self.members), device=self.task.device)
        self._recorded: RecordedUpdate | None = None
        if self._record is not None:
            moments = [*self.optimiser.first.values(), *self.optimiser.second.values()]
            self._recorded = RecordedUpdate(self._replayable, [*params.values(), *moments, self._epoch_losses], self._record)

    def begin_epoch(self, *, epoch: int, num_batches: int) -> None:
        """Draw the mix-up shares of this epoch and clear the loss."""
        self._epoch_losses.zero_()
        self._mix: torch.Tensor | None = None
        if any(member.config.mixup for member in self.members):
            shares = [_mixup_shares(member.config, epoch=epoch, num_batches=num_batches) for member in self.members]
            self._mix = torch.from_numpy(np.stack(shares, axis=1)).to(self.task.device)

    def train_batch(self, feats: torch.Tensor, positions: torch.Tensor, *, epoch: int, batch: int, num_batches: int) -> None:
        """One update of every head; epochs and batches count from 0."""
        step = epoch * num_batches + batch
        rates = [scheduled_lr(m.config, step=step, num_steps=m.config.epochs * num_batches) for m in self.members]
        if self._recorded is None:
            with self._clock.stage("forward"):
                mix, dropout = self._noise(len(feats), epoch=epoch, batch=batch)
                losses = self._losses(feats, positions, mix, dropout)
            count = torch.full((), float(step + 1), device=self.task.device)  # filled there: a copy would wait for the device
            self._step(losses, len(feats), count, rates, self._clock)
            return
        with self._clock.stage("replay"):
            noise = self._noise(len(feats), epoch=epoch, batch=batch)
            numbers = send(torch.tensor([step + 1, *rates], dtype=torch.float32), self.task.device)
            self._recorded((feats, positions, numbers[0], numbers[1:], *noise))

    def _replayable(self, inputs: UpdateInputs) -> None:
        """An update that reads nothing but tensors, so that it can be recorded."""
        feats, positions, count, rates, mix, dropout = inputs
        assert feats is not None and positions is not None and count is not None and rates is not None
        self._step(self._losses(feats, positions, mix, dropout), len(feats), count, rates.unbind(), Clock())

    def _losses(
        self, feats: torch.Tensor, positions: torch.Tensor, mix: torch.Tensor | None, dropout: torch.Tensor | None
    ) -> torch.Tensor:
        """The mean loss of each head (K,); with mix-up, the loss against each of the two targets in its share."""
        targets = self.task.targets[positions]
        outputs = forward(self.kind, self.optimiser.params, feats, mix=mix, dropout=dropout)
        if self.task.kind == "classification":
            outputs = outputs.log_softmax(-1)
        losses = self._row_losses(outputs, targets)
        if mix is not None:
            losses = torch.lerp(self._row_losses(outputs, targets.flip(0)), losses, mix)
        return losses.mean(dim=0)

    def _step(
        self,
        losses: torch.Tensor,
        num_rows: int,
        count: torch.Tensor,
        rates: Sequence[float] | Sequence[torch.Tensor],
        clock: Clock,
    ) -> None:
        with clock.stage("backward"):
            names = list(self.optimiser.params)
            grads = torch.autograd.grad(losses.sum(), [self.optimiser.params[name] for name in names])
        with clock.stage("optimizer"):
            self.optimiser.step(dict(zip(names, grads, strict=True)), count=count, lr=rates)
            self._epoch_losses += losses.detach() * num_rows

    def _noise(self, num_rows: int, *, epoch: int, batch: int) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """The mix-up shares (K,) and the dropout mask of a batch."""
        config = self.members[0].config
        mix = None if self._mix is None else self._mix[batch]
        if self.drop_share is None:
            return mix, None
        generator = torch.Generator().manual_seed(hash_int(config.seed, "dropout", epoch, batch) >> 1)
        draw = send(torch.rand((num_rows, 1, config.hidden), generator=generator), self.task.device)
        share = self.drop_share.view(1, -1, 1)
        return mix, (draw >= share) / (1 - share)

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
        return [float(value) / num_rows for value in self._epoch_losses.tolist()]

    def pace(self, member: Member, *, epoch: int, num_batches: int) -> dict[str, float]:
        """How a member trained in this epoch, for its curve: its learning rate at the end."""
        config = member.config
        return {"lr": scheduled_lr(config, step=(epoch + 1) * num_batches - 1, num_steps=config.epochs * num_batches)}

    def member_params(self, place: int) -> Params:
        """A copy of one head's parameters, on the CPU."""
        return unstack_params(self.optimiser.params, place)

    def member_state(self) -> dict[int, dict[str, Params]]:
        """What a checkpoint needs of each head here, on the CPU."""
        parts = {"params": self.optimiser.params, "first": self.optimiser.first, "second": self.optimiser.second}
        return {
            member.index: {name: unstack_params(part, place) for name, part in parts.items()}
            for place, member in enumerate(self.members)
        }

    def shrink(self) -> None:
        """Let go of the members that are done."""
        staying = [place for place, member in enumerate(self.members) if not member.done]
        if len(staying) == len(self.members):
            return
        old = self.optimiser
        self._adopt([self.members[place] for place in staying])
        if staying:
            parts = (old.params, old.first, old.second)
            self._start_optimiser(*({name: one.detach()[staying].clone() for name, one in part.items()} for part in parts))


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
        """One update, the `count`th, from 1 on; `lr` holds one learning rate per head."""
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


class RecordedUpdate:
    """Replays `update` on batches of one size; `state` are the tensors it changes.

    The recording is replayed once on the state it began with and compared; where the two differ, `update` is called as before.
    """

    def __init__(self, update: Callable[[UpdateInputs], None], state: Sequence[torch.Tensor], record: Record) -> None:
        self._update, self._state, self._record = update, state, record
        self._inputs: UpdateInputs | None = None
        self._replay: Callable[[], None] | None = None
        self.agrees = True

    def __call__(self, inputs: UpdateInputs) -> None:
        if self._inputs is None:
            self._begin(inputs)
        elif self._replay is not None and _shapes(self._inputs) == _shapes(inputs):
            for kept, given in zip(self._inputs, inputs, strict=True):
                if kept is not None and given is not None:
                    kept.copy_(given)
            self._replay()
        else:
            self._update(inputs)

    def _begin(self, inputs: UpdateInputs) -> None:
        """Record this update; it happens once, whether the recording is used or not."""
        self._inputs = own = tuple(None if tensor is None else tensor.clone() for tensor in inputs)
        before = [tensor.detach().clone() for tensor in self._state]
        replay = self._record(lambda: self._update(own))
        after = [tensor.detach().clone() for tensor in self._state]
        self._restore(before)
        replay()
        with torch.no_grad():
            self.agrees = all(
                torch.allclose(ours, theirs, rtol=0.0, atol=_GRAPH_TOLERANCE * max(float(theirs.abs().amax()), 1e-12))
                for ours, theirs in zip(self._state, after, strict=True)
            )
        self._restore(after)
        self._replay = replay if self.agrees else None

    @torch.no_grad()
    def _restore(self, values: Sequence[torch.Tensor]) -> None:
        for tensor, value in zip(self._state, values, strict=True):
            tensor.copy_(value)


def _shapes(inputs: UpdateInputs) -> list[torch.Size | None]:
    return [None if tensor is None else tensor.shape for tensor in inputs]
