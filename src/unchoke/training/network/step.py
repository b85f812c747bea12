"""Prepares a network for training and runs one step of it, or one pass of prediction; both survive running out of memory.

In: a batch that is fed in parts, and where the network stands. Out: gradients in place (or outputs), exactly those of the whole
batch: each part's loss is divided by the size of the whole, so parts add up to it. When memory runs out, everything the step did
so far is forgotten, the parts are halved, and the same samples are run again. The smaller size is kept from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import nn

from unchoke.core.clock import Clock
from unchoke.core.errors import MachineError
from unchoke.core.events import Note, OnEvent
from unchoke.core.fingerprint import hash_int
from unchoke.features.cut import set_batch_norm_eval
from unchoke.machine.backend import autocast, empty_cache, send, torch_memory_format
from unchoke.machine.memory.oom import out_of_memory
from unchoke.training.data import Positions
from unchoke.training.network.feeding import HostBatch, MixShares
from unchoke.training.network.loop_config import LoopConfig
from unchoke.training.network.objective import LoopObjective
from unchoke.training.network.tiled_network import TrainableNetwork

Part = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]
_OTHER_STATISTICS = "; batch statistics are now those of smaller parts, so results differ a little"


@dataclass
class PartSize:
    """How many samples run at once, and how often that had to be halved."""

    value: int
    halvings: int = 0

    def halve(self, tried: int, fact: str) -> None:
        """From `tried` samples at once, which did not fit, to half of them."""
        if tried <= 1:
            raise MachineError(
                "one sample alone does not fit in memory",
                code="out-of-memory",
                why=fact,
                try_="--grad-ckpt, a smaller --input-px, a later --cut, or a larger --memory",
            )
        self.value = -(-tried // 2)
        self.halvings += 1


def in_parts(
    num: int,
    size: PartSize,
    run: Callable[[int, int], None],
    *,
    forget: Callable[[], None],
    on_event: OnEvent,
    remark: str = "",
) -> None:
    """Call `run(start, stop)` until `num` samples are through. Out of memory: `forget`, halve, begin again with the first."""
    while True:
        tried = min(num, size.value)
        fact = _try_parts(num, size.value, run)
        if fact is None:
            return
        forget()
        size.halve(tried, fact)
        told = f"out of memory with {tried} samples at once: they are run again in parts of {size.value}{remark}"
        on_event(Note(told, "warning"))


def _try_parts(num: int, size: int, run: Callable[[int, int], None]) -> str | None:
    """None if all went well, else what the allocator said. The failed frames are let go of before anyone tries again."""
    try:
        for start in range(0, num, size):
            run(start, min(start + size, num))
    except (RuntimeError, MemoryError) as error:
        found = out_of_memory(error)
        if found is None or not found.can_repeat or (min(num, size) == 1 and not found.certain):
            raise
        return found.message
    return None


@dataclass
class Stepper:
    """What a step needs to know; it changes nothing but gradients (and batch statistics, where those are trained)."""

    network: TrainableNetwork
    run_network: Callable[..., torch.Tensor]
    objective: LoopObjective
    device: torch.device
    dtype: torch.dtype
    size: PartSize
    inputs: torch.Tensor | None
    on_event: OnEvent
    scaler: torch.amp.GradScaler
    statistics: Sequence[torch.Tensor] = field(default_factory=list)
    """Buffers a forward pass changes (batch statistics in training): put back before a step is repeated."""
    clock: Clock = field(default_factory=Clock)
    whole: int = 0
    """The size that smaller batches are filled up to where they run at once: a device may have to build kernels for each size."""

    def backward(self, fed: HostBatch, num_global: int, *, seed: int, kept: MixShares | None = None) -> torch.Tensor:
        """Gradients of the mean loss over the global batch, as far as these samples contribute; return their summed loss.

        For mixup (`kept`) one sample more is fed than counts: the one the last is mixed with. `seed` is for networks that drop
        something at random. The loss stays on the device: reading it here would make every step wait for it.
        """
        losses: list[torch.Tensor] = []
        before = [value.clone() for value in self.statistics]

        def forget() -> None:
            losses.clear()
            self.network.zero_grad(set_to_none=True)
            for value, old in zip(self.statistics, before, strict=True):
                value.copy_(old)
            empty_cache(self.device)

        def run(start: int, stop: int) -> None:
            torch.manual_seed(hash_int(seed, start))
            with self.clock.stage("prepare"):
                x, extra, targets = self._part(fed, start, stop, kept)
            with self.clock.stage("forward"):
                summed = self._counted_losses((x, extra, targets)).sum()
            with self.clock.stage("backward"):
                torch.autograd.backward(self.scaler.scale(summed / num_global))
            losses.append(summed.detach())

        self.network.zero_grad(set_to_none=True)
        num = len(fed) if kept is None else len(kept)
        in_parts(num, self.size, run, forget=forget, on_event=self.on_event, remark=_OTHER_STATISTICS if before else "")
        return torch.stack(losses).sum() if losses else torch.zeros((), device=self.device)

    def _part(self, fed: HostBatch, start: int, stop: int, kept: MixShares | None) -> Part:
        """Network input, extra columns and targets of some samples; for mixup, all three mixed with those of the next sample."""
        if kept is None:
            positions = fed.positions[start:stop]
            return fed.part(start, stop), self._extra(positions), self.objective.target_rows(positions, epoch=fed.epoch)
        positions = fed.positions[start : stop + 1]
        extra = self._extra(positions)
        targets = self.objective.target_rows(positions, soft=True, epoch=fed.epoch)
        return mix_part((fed.part(start, stop + 1), extra, targets), send(torch.from_numpy(kept[start:stop]), self.device))

    def _counted_losses(self, part: Part) -> torch.Tensor:
        """The losses of a part, which runs as a whole batch where that is asked for; what fills it up does not count."""
        num = len(part[0])
        if not num < self.whole <= self.size.value:
            return self.losses(*part)
        x, extra, targets = (None if rows is None else fill_up(rows, self.whole) for rows in part)
        assert x is not None
        assert targets is not None
        return self.losses(x, extra, targets)[:num]

    def losses(self, x: torch.Tensor, extra: torch.Tensor | None, targets: torch.Tensor) -> torch.Tensor:
        """One loss per sample."""
        return self.objective.losses(self._outputs(x, extra).float(), targets)

    def _extra(self, positions: Positions) -> torch.Tensor | None:
        return None if self.inputs is None else self.inputs[send(torch.from_numpy(positions), self.device)]

    def _outputs(self, x: torch.Tensor, extra: torch.Tensor | None) -> torch.Tensor:
        with autocast(self.device, self.dtype):
            return self.run_network(x, extra)

    def predict(self, fed: HostBatch, size: PartSize) -> torch.Tensor:
        """What is kept of the outputs for the fed samples, without gradients. It stays on the device, which is not waited for."""
        found: list[torch.Tensor] = []

        def run(start: int, stop: int) -> None:
            with torch.inference_mode():
                positions = fed.positions[start:stop]
                outputs = self._outputs(fed.part(start, stop), self._extra(positions)).float()
                found.append(self.objective.judged(outputs, positions))

        def forget() -> None:
            found.clear()
            empty_cache(self.device)

        in_parts(len(fed.positions), size, run, forget=forget, on_event=self.on_event)
        return torch.cat(found)


def fill_up(rows: torch.Tensor, num: int) -> torch.Tensor:
    """The rows, and their first one again until there are `num`."""
    return torch.cat([rows, rows[:1].expand(num - len(rows), *rows.shape[1:])])


def mix_part(part: Part, share: torch.Tensor) -> Part:
    """Inputs, extra columns and targets, each mixed with those of the next sample."""
    x, extra, targets = part
    return _mixed(x, share), None if extra is None else _mixed(extra, share), _mixed(targets, share)


def _mixed(rows: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """Each row but the last, with the one after it in place of what is not kept."""
    return torch.lerp(rows[1:], rows[:-1], share.view(-1, *[1] * (rows.ndim - 1)))


def batch_statistics(network: nn.Module) -> list[torch.Tensor]:
    """The running statistics a forward pass in training mode would change."""
    norms = [module for module in network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training]
    return [buffer for module in norms for buffer in module.buffers()]


N = TypeVar("N", bound=TrainableNetwork)


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


def _channels_last(_module: nn.Module, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(value.contiguous(memory_format=torch.channels_last) if value.ndim == 4 else value for value in args)


def training_mode(network: nn.Module, config: LoopConfig) -> None:
    """Training mode; batch norm keeps its pretrained statistics unless they are to be trained as well."""
    network.train()
    if config.batch_norm == "frozen":
        set_batch_norm_eval(network)
