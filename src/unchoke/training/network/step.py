"""One step of a training, or one pass of prediction; both survive running out of memory.

In: a batch, and the network. Out: moved weights (or outputs). A batch may run as micro-batches whose gradients add up to exactly
those of the whole: each loss is divided by the size of the whole batch. When memory runs out, everything the step did so far is
forgotten, the micro-batches are halved, and the same samples are run again. The smaller size is kept from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unchoke.core.clock import Clock
from unchoke.core.errors import MachineError
from unchoke.core.events import Note, OnEvent
from unchoke.core.fingerprint import hash_int
from unchoke.features.cut import set_batch_norm_eval
from unchoke.machine.backend import autocast, can_record, empty_cache, has_own_memory, send, torch_dtype, torch_memory_format
from unchoke.machine.memory.oom import out_of_memory
from unchoke.training.data import Positions
from unchoke.training.network.adamw import WeightAverage, build_optimizer, load_optimizer, lr_factor, set_lr
from unchoke.training.network.feeding import HostBatch, MixShares
from unchoke.training.network.loop_config import LoopConfig, LoopContext
from unchoke.training.network.objective import LoopObjective
from unchoke.training.network.tiled_network import TrainableNetwork

Part = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]
_OTHER_STATISTICS = "; batch statistics are now those of smaller micro-batches, so results differ a little"


@dataclass
class MicroBatch:
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


def in_micro_batches(
    num: int,
    size: MicroBatch,
    run: Callable[[int, int], None],
    *,
    forget: Callable[[], None],
    on_event: OnEvent,
    remark: str = "",
) -> None:
    """Call `run(start, stop)` until `num` samples are through. Out of memory: `forget`, halve, begin again with the first."""
    while True:
        tried = min(num, size.value)
        fact = _try_micro_batches(num, size.value, run)
        if fact is None:
            return
        forget()
        size.halve(tried, fact)
        told = f"out of memory with {tried} samples at once: they are run again in micro-batches of {size.value}{remark}"
        on_event(Note(told, "warning"))


def _try_micro_batches(num: int, size: int, run: Callable[[int, int], None]) -> str | None:
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


class Stepper:
    """One optimizer step over a batch: micro-batches, the sum over processes, clipping, AdamW, the average of the weights.

    `size` and `eval_size` are how many samples run at once in training and in evaluation. `whole` is the size that smaller
    batches are padded to where they run at once, if not 0: a device may have to build kernels for each size.
    """

    def __init__(
        self,
        network: TrainableNetwork,
        objective: LoopObjective,
        config: LoopConfig,
        where: LoopContext,
        *,
        inputs: NDArray[np.float32] | None = None,
        steps_per_epoch: int = 1,
        clock: Clock | None = None,
    ) -> None:
        self.config, self.objective, self.device, self.ranks, self.on_event = (
            config,
            objective,
            where.device,
            where.ranks,
            where.on_event,
        )
        self.network = prepare_network(network, config, where.device)
        self._run_network: Callable[..., torch.Tensor] = torch.compile(self.network) if config.compile else self.network
        self.optimizer = build_optimizer(
            self.network, lr=config.lr, body_lr=config.body_lr, weight_decay=config.weight_decay, layer_decay=config.layer_decay
        )
        self.average = WeightAverage(self.network, config.ema_decay) if config.ema_decay else None
        self._dtype = torch_dtype(config.dtype)
        self.scaler = torch.amp.GradScaler(where.device.type, enabled=self._dtype is torch.float16)
        self.statistics = batch_statistics(self.network)
        """Buffers a forward pass changes (batch statistics in training): put back before a step is repeated."""
        self.size, self.eval_size = MicroBatch(config.sub_batch), MicroBatch(config.eval_batch)
        self.inputs = None if inputs is None else torch.from_numpy(inputs).to(where.device)
        self.clock = clock or Clock()
        self._num_steps = config.epochs * steps_per_epoch
        self._warmup_steps = round(config.warmup_epochs * steps_per_epoch)
        alone = has_own_memory(where.device) and not self.statistics and where.ranks.world == 1
        self.whole = config.batch_size if alone else 0

    def step(
        self, fed: HostBatch, num_global: int, kept: MixShares | None, number: int, *, stopping: bool = False
    ) -> torch.Tensor:
        """Step `number` of the training, call by call; return the summed loss, and how many processes want to stop."""
        seed = hash_int("step", self.config.seed, number, self.ranks.rank)
        loss = self.backward(fed, num_global, seed=seed, kept=kept)
        with self.clock.stage("exchange"):
            told = torch.stack([loss, torch.full_like(loss, float(stopping))])
            told = self.ranks.sum_gradients(self.network.parameters(), told)
            self.ranks.average(self.statistics)
        with self.clock.stage("optimizer"):
            self.set_lr(number)
            if self.config.clip:
                self.scaler.unscale_(self.optimizer)
                nn.utils.clip_grad_norm_(self.network.parameters(), self.config.clip)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            if self.average is not None:
                self.average.update(number)
        return told

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The averaged weights in the place of the others, where there are any."""
        if self.average is None:
            yield
            return
        self.average.swap()
        try:
            yield
        finally:
            self.average.swap()

    def pieces(self) -> dict[str, Any]:
        """Everything a checkpoint needs of it."""
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "scaler": self.scaler.state_dict(),
            "sizes": [[size.value, size.halvings] for size in (self.size, self.eval_size)],
        }

    def load_pieces(self, pieces: dict[str, Any]) -> None:
        self.network.load_state_dict(pieces["network"])
        load_optimizer(self.optimizer, pieces["optimizer"])
        if self.average is not None:
            self.average.load_state_dict(pieces["average"])
        self.scaler.load_state_dict(pieces["scaler"])
        for size, (value, halvings) in zip((self.size, self.eval_size), pieces["sizes"], strict=True):
            size.value, size.halvings = min(size.value, value), halvings

    def lr_factor(self, number: int) -> float:
        """What learning rates are multiplied by in step `number`."""
        return lr_factor(number, num_steps=self._num_steps, warmup_steps=self._warmup_steps)

    def set_lr(self, number: int) -> None:
        """Learning rates as a CUDA graph would read them, where steps may be recorded: both ways then end in the same bits."""
        set_lr(self.optimizer, self.lr_factor(number), rounded=can_record(self.device))

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
                part: Any = self._part(fed, start, stop, kept)
            with self.clock.stage("forward"):
                count = len(part[0])
                if count < self.whole <= self.size.value:  # it runs as a whole batch; what it is padded with does not count
                    part = [None if rows is None else pad(rows, self.whole) for rows in part]
                summed = self.losses(*part)[:count].sum()
            with self.clock.stage("backward"):
                torch.autograd.backward(self.scaler.scale(summed / num_global))
            losses.append(summed.detach())

        self.network.zero_grad(set_to_none=True)
        num = len(fed) if kept is None else len(kept)
        in_micro_batches(num, self.size, run, forget=forget, on_event=self.on_event, remark=_OTHER_STATISTICS if before else "")
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

    def losses(self, x: torch.Tensor, extra: torch.Tensor | None, targets: torch.Tensor) -> torch.Tensor:
        """One loss per sample."""
        return self.objective.losses(self._outputs(x, extra).float(), targets)

    def _extra(self, positions: Positions) -> torch.Tensor | None:
        return None if self.inputs is None else self.inputs[send(torch.from_numpy(positions), self.device)]

    def _outputs(self, x: torch.Tensor, extra: torch.Tensor | None) -> torch.Tensor:
        with autocast(self.device, self._dtype):
            return self._run_network(x, extra)

    def predict(self, fed: HostBatch, size: MicroBatch) -> torch.Tensor:
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

        in_micro_batches(len(fed.positions), size, run, forget=forget, on_event=self.on_event)
        return torch.cat(found)


def pad(rows: torch.Tensor, num: int) -> torch.Tensor:
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
