"""The network as its training wants it: on its device, laid out, in training mode, computing activations again where asked to.

In: a network and how the loop was settled. Out: the same network, changed in place. It knows nothing of steps or data.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import nn

from unchoke.features.cut import set_batch_norm_eval
from unchoke.machine.backend import torch_memory_format
from unchoke.training.network.loop_config import LoopConfig
from unchoke.training.network.tiled_network import Trainable

N = TypeVar("N", bound=Trainable)


def prepare_network(network: N, config: LoopConfig, device: torch.device) -> N:
    """The network on its device, laid out and in the mode `config` asks for."""
    network.to(device)
    memory_format = torch_memory_format(config.memory_format)
    if memory_format is torch.channels_last:
        network.to(memory_format=memory_format)  # type: ignore[call-overload]
        network.suffix.register_forward_pre_hook(_channels_last)
    if config.grad_ckpt:
        set_grad_checkpointing(network.suffix)
    training_mode(network, config)
    return network


def set_grad_checkpointing(suffix: nn.Module) -> None:
    """Compute activations again in the backward pass instead of keeping them, where timm's network can do that."""
    switch: Any = getattr(suffix, "set_grad_checkpointing", None)
    if switch is not None:
        switch(True)


def _channels_last(module: nn.Module, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(value.contiguous(memory_format=torch.channels_last) if value.ndim == 4 else value for value in args)


def training_mode(network: nn.Module, config: LoopConfig) -> None:
    """Training mode; batch norm keeps its pretrained statistics unless they are to be trained as well."""
    network.train()
    if config.batch_norm == "frozen":
        set_batch_norm_eval(network)
