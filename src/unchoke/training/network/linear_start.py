"""Where a network's head begins: at a linear head that was solved on the features its blocks give before they train.

In: a `TrainedHead` on standardised features. Out: the same answers as plain weights on the features as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unchoke.training.heads.heads import TrainedHead


@dataclass(frozen=True, eq=False)
class LinearStart:
    """Weights (outputs, dim) and bias (outputs,), float32, for features that nobody standardised."""

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]

    @classmethod
    def of(cls, head: TrainedHead) -> LinearStart:
        """Standardising first and multiplying then is one multiplication with other weights."""
        weight = head.params["weight"].double().numpy() / head.standardiser.std.astype(np.float64)
        bias = head.params["bias"].double().numpy() - weight @ head.standardiser.mean.astype(np.float64)
        return cls(weight.astype(np.float32), bias.astype(np.float32))

    @torch.no_grad()
    def fill(self, layer: nn.Linear) -> None:
        layer.weight.copy_(torch.from_numpy(self.weight))
        layer.bias.copy_(torch.from_numpy(self.bias))
