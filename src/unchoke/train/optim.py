"""AdamW for a stack of heads: every head has its own learning rate, schedule and weight decay; decay spares biases.

In: stacked parameters (K, ...) and their gradients. Out: the parameters, changed in place. The state is the two
moments; the step number comes from the caller, so nothing else needs saving.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from unchoke.train.heads import HeadConfig, Params

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8
_WARMUP_SHARE = 0.05
_BLOCK_VALUES = 1 << 17
"""Parameters updated at a time: 0.5 MB each of weight, gradient and moments stays in a core's cache between the passes."""


def scheduled_lr(config: HeadConfig, *, step: int, num_steps: int) -> float:
    """A linear warm-up over the first twentieth, then half a cosine down to zero."""
    warmup = max(1, round(num_steps * _WARMUP_SHARE))
    if step < warmup:
        return config.lr * (step + 1) / (warmup + 1)
    return config.lr * 0.5 * (1.0 + math.cos(math.pi * (step - warmup) / max(1, num_steps - warmup)))


class StackedAdamW:
    """Moments for stacked parameters, and the step that uses them."""

    def __init__(self, params: Params, *, weight_decay: Sequence[float]) -> None:
        self.params = params
        self.weight_decay = weight_decay
        self.first = {name: torch.zeros_like(tensor) for name, tensor in params.items()}
        self.second = {name: torch.zeros_like(tensor) for name, tensor in params.items()}

    @torch.no_grad()
    def step(self, grads: Params, *, step: int, lr: Sequence[float]) -> None:
        """One update; `step` counts from 0, `lr` holds one rate per head."""
        correction1, correction2 = 1 - _BETA1 ** (step + 1), math.sqrt(1 - _BETA2 ** (step + 1))
        device = next(iter(self.params.values())).device
        rates = torch.tensor([-rate * correction2 / correction1 for rate in lr]).unsqueeze(1).to(device)
        keeps = (
            torch.tensor([1 - rate * decay for rate, decay in zip(lr, self.weight_decay, strict=True)]).unsqueeze(1).to(device)
        )
        for name, param in self.params.items():
            flat = [tensor.flatten(1) for tensor in (param, grads[name], self.first[name], self.second[name])]
            per_block = max(1, _BLOCK_VALUES // flat[0].shape[1])
            for block in zip(*(torch.split(tensor, per_block) for tensor in (*flat, rates, keeps)), strict=True):
                _update(*block, decays=name.endswith("weight"), epsilon=_EPSILON * correction2)


def _update(
    param: torch.Tensor,
    grad: torch.Tensor,
    first: torch.Tensor,
    second: torch.Tensor,
    rate: torch.Tensor,
    keep: torch.Tensor,
    *,
    decays: bool,
    epsilon: float,
) -> None:
    first.lerp_(grad, 1 - _BETA1)
    second.mul_(_BETA2).addcmul_(grad, grad, value=1 - _BETA2)
    change = torch.sqrt(second).add_(epsilon)
    torch.div(first, change, out=change)
    if decays:
        param.mul_(keep)
    param.addcmul_(change, rate)
