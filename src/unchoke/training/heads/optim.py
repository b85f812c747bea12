"""AdamW for a stack of heads: every head has its own learning rate, schedule and weight decay; decay spares biases.

In: stacked parameters (K, ...) and their gradients. Out: the parameters, changed in place. The state is the two moments; the
step number comes from the caller, so nothing else needs saving.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from unchoke.training.heads.heads import HeadConfig, Params

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8
_WARMUP_SHARE = 0.05


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

    @torch.no_grad()
    def step(self, grads: Params, *, step: int, lr: Sequence[float]) -> None:
        """One update; `step` counts from 0, `lr` holds one rate per head."""
        # The kernel walks memory in order: a gradient that is a transposed view would be read in the wrong one.
        grads = {name: grad.contiguous() for name, grad in grads.items()}
        count = torch.tensor(float(step + 1)).to(next(iter(self.params.values())).device)
        for names, decays in self._parts:
            params, slopes, first, second = (_by_head(values, names) for values in (self.params, grads, self.first, self.second))
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
