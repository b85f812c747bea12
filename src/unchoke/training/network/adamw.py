"""AdamW with a learning rate that falls layer by layer towards the input, its schedule, and an average of the weights.

In: a network and its learning rates. Out: an optimizer whose groups know their base rate, with its moments allocated already: a
step then needs no memory it does not have yet, so running out of it cannot leave half of the weights updated.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from unchoke.features.cut import layer_numbers
from unchoke.machine.backend import has_fused_adamw
from unchoke.training.network.tiled_network import TrainableNetwork

_EMA_WARMUP = 10
_EPS = 1e-6
"""Where a gradient is nothing but rounding (the bias of attention keys has no other), AdamW's usual 1e-8 would follow the
rounding, and two runs that add up in another order would drift apart there.
"""


def build_optimizer(
    network: TrainableNetwork, *, lr: float, body_lr: float, weight_decay: float, layer_decay: float
) -> torch.optim.AdamW:
    """One group per layer and kind of parameter. The head learns at `lr`, the suffix's last layer at `body_lr`, each one before
    at `layer_decay` times the next. Biases and norms (one-dimensional parameters) are not decayed.
    """
    numbers = layer_numbers(network.suffix)
    deepest = max(numbers.values(), default=0)
    groups: dict[tuple[float, float], list[nn.Parameter]] = defaultdict(list)
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            continue
        inner = name.removeprefix("suffix.")
        rate = body_lr * layer_decay ** (deepest - numbers[inner]) if name != inner else lr
        groups[rate, weight_decay if parameter.ndim > 1 else 0.0].append(parameter)
    described = [{"params": found, "lr": rate, "base_lr": rate, "weight_decay": decay} for (rate, decay), found in groups.items()]
    device = next(iter(network.parameters())).device
    optimizer = torch.optim.AdamW(described, eps=_EPS, fused=has_fused_adamw(device))
    # the state AdamW would make in its first step, made now
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            step = torch.zeros((), dtype=torch.float32, device=parameter.device if group["fused"] else None)
            moments = {
                name: torch.zeros_like(parameter, memory_format=torch.preserve_format) for name in ("exp_avg", "exp_avg_sq")
            }
            optimizer.state[parameter] = {"step": step, **moments}
    return optimizer


def set_lr(optimizer: torch.optim.AdamW, factor: float, *, rounded: bool = False) -> None:
    """The learning rates of a step. `rounded` to float32, which is what a device reads them as that reads them by itself."""
    for group in optimizer.param_groups:
        rate = group["base_lr"] * factor
        group["lr"] = float(np.float32(rate)) if rounded else rate


@torch.no_grad()
def step_at(optimizer: torch.optim.AdamW, rates: Sequence[torch.Tensor]) -> None:
    """What `optimizer.step()` does where it is fused, to the bit, each group at its rate of `rates` (float32, on the device): it
    can be recorded, and repeated with other rates.
    """
    groups = [(group, [one for one in group["params"] if one.grad is not None]) for group in optimizer.param_groups]
    state: Any = optimizer.state
    steps = {id(group): [state[one]["step"] for one in trained] for group, trained in groups}
    torch._foreach_add_([step for found in steps.values() for step in found], 1)
    for (group, trained), rate in zip(groups, rates, strict=True):
        beta1, beta2 = group["betas"]
        torch._fused_adamw_(
            trained,
            [one.grad for one in trained],
            [state[one]["exp_avg"] for one in trained],
            [state[one]["exp_avg_sq"] for one in trained],
            [],
            steps[id(group)],
            lr=rate,
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )


@torch.no_grad()
def load_optimizer(optimizer: torch.optim.AdamW, saved: dict[str, Any]) -> None:
    """Fill in what `optimizer.state_dict()` gave. Moments stay laid out as their weights: fused kernels walk all of them as they
    lie in memory, and torch's own loading would leave them as the file had them.
    """
    for group, saved_group in zip(optimizer.param_groups, saved["param_groups"], strict=True):
        group["lr"] = saved_group["lr"]
        for parameter, number in zip(group["params"], saved_group["params"], strict=True):
            for name, value in optimizer.state[parameter].items():
                value.copy_(saved["state"][number][name])


class WeightAverage:
    """An exponential moving average of the trained weights; it begins short, so that early steps are forgotten."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self._followed = [value for value in network.state_dict().values() if value.is_floating_point()]
        self._names = [name for name, value in network.state_dict().items() if value.is_floating_point()]
        self.values = [value.detach().clone() for value in self._followed]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Follow the weights after `step` (from 0)."""
        torch._foreach_lerp_(self.values, self._followed, self.share(step))

    def share(self, step: int) -> float:
        """How much of the weights after `step` goes into the average."""
        return 1 - min(self.decay, (1 + step) / (_EMA_WARMUP + step))

    @torch.no_grad()
    def follow(self, share: torch.Tensor) -> None:
        """The same with a share that is on the device."""
        apart = torch._foreach_sub(self._followed, self.values)
        torch._foreach_mul_(apart, share)
        torch._foreach_add_(self.values, apart)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the average and the weights; twice is nothing."""
        for kept, live in zip(self.values, self._followed, strict=True):
            other = live.clone()
            live.copy_(kept)
            kept.copy_(other)

    def state_dict(self) -> dict[str, torch.Tensor]:
        return dict(zip(self._names, self.values, strict=True))

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        for name, value in zip(self._names, self.values, strict=True):
            value.copy_(state[name])


def lr_factor(step: int, *, num_steps: int, warmup_steps: int) -> float:
    """What the base rate is multiplied by in `step` (from 0). The first step already moves; the last one hardly does."""
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    left = max(1, num_steps - warmup_steps)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warmup_steps) / left)))
