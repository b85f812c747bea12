"""Pooled maps of several blocks beside a network's end: ``--cut blocks``.

In: a whole network. Out: a module whose row is the network's pooled features, followed by the mean and the standard deviation of
each channel after three of its stages. Earlier blocks still hold texture and colour that the end, made for ImageNet's classes,
has thrown away. The network runs once; the row is a plain vector that heads train on like any other.

Which stages: the last three strides of a network that halves its maps, and after each third of a transformer's blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from unchoke.core.errors import UsageError

_NUM_STAGES = 3


class BlockPools(nn.Module):
    """The end's features, then each stage's mean and deviation. A mean that the end repeats (a ResNet's last) is left out.

    It shares its weights with `network`, which stays as it is.
    """

    def __init__(self, network: nn.Module, stages: Sequence[int], *, last_is_end: bool) -> None:
        super().__init__()
        self.network = network
        self.stages = list(stages)
        self.last_is_end = last_is_end

    def forward(self, images_nchw: torch.Tensor) -> torch.Tensor:
        end, maps = run_stages(self.network, images_nchw, self.stages)
        parts = [end.float()]
        for stage, map_nchw in zip(self.stages, maps, strict=True):
            mean, deviation = pool(map_nchw)
            parts += [deviation] if self.last_is_end and stage == self.stages[-1] else [mean, deviation]
        return torch.cat(parts, dim=1)


def pool_blocks(network: nn.Module, name: str, example_nchw: torch.Tensor) -> BlockPools:
    """The pools of `network`, which is called `name`; `example_nchw` shows whether its end is the mean of its last stage."""
    stages = _stages(network, name)
    with torch.inference_mode():
        end, maps = run_stages(network, example_nchw, stages)
    mean = pool(maps[-1])[0]
    same = mean.shape == end.shape and bool(torch.allclose(mean, end.float(), atol=1e-5, rtol=1e-4))
    return BlockPools(network, stages, last_is_end=same).eval().requires_grad_(False)


def run_stages(network: Any, images_nchw: torch.Tensor, stages: Sequence[int]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The network's own features, and its maps after `stages`, in one pass."""
    last, maps = network.forward_intermediates(images_nchw, indices=list(stages), output_fmt="NCHW")
    return network.forward_head(last), list(maps)


def pool(map_nchw: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard deviation of each channel, over all places."""
    values = map_nchw.float()
    mean = values.mean(dim=(2, 3), keepdim=True)
    return mean.flatten(1), (values - mean).square().mean(dim=(2, 3)).sqrt()


def has_stages(network: nn.Module) -> bool:
    """Whether timm hands out the maps inside this network."""
    return all(hasattr(network, name) for name in ("forward_intermediates", "forward_head", "feature_info"))


def _stages(network: Any, name: str) -> list[int]:
    """Numbers of stages, as timm counts them for this network."""
    if not has_stages(network):
        raise UsageError(
            f"{name} cannot be pooled after several blocks",
            code="no-block-pools",
            why=f"timm does not hand out the maps inside a {type(network).__name__}",
            try_="--cut end",
        )
    strides = [stage["reduction"] for stage in network.feature_info]
    num = len(strides)
    if len(set(strides)) == 1:
        return sorted({max(0, round(num * (third + 1) / _NUM_STAGES) - 1) for third in range(_NUM_STAGES)})
    return list(range(max(0, num - _NUM_STAGES), num))
