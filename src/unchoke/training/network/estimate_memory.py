"""What a training can take at most, found without running it: a network of shapes alone goes through one step, and is counted.

In: a `TrainingJob`. Out: an upper bound of the peak of any batch size, in the parts a plan knows. The network, the objective and
autocast are the run's own, on the run's device; tensors have shapes and no numbers (torch's fake tensors), so nothing is computed
and nothing allocated. Only what prepares inputs runs for real, over two samples of noise. What an allocator and kernels take on
top of the tensors that live at once is a stated allowance, compared with measured peaks in `benches/bench_budget.py`.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from unchoke.machine.backend import autocast, is_cpu, tensor_bytes, torch_dtype
from unchoke.machine.memory.memory_plan import StepCost
from unchoke.training.network.step import prepare_network, training_mode
from unchoke.training.network.training_job import TrainingJob

SLACK = 1.5
"""Allocators round up and keep holes: tensors that live at once take up to so many times their size."""
_SCRATCH = 2
"""Kernels work in memory of their own: up to so many times what the largest operator reads and writes."""
_SCRATCH_BYTES = 300_000_000
"""Whatever the sizes: what libraries set aside for themselves, and threads."""
_PREPARED = 2


@dataclass(frozen=True)
class MemoryEstimate:
    """The most that is taken: `fixed` parts by name, and what `batch` samples in training (`eval_batch` in evaluation) add."""

    parts: dict[str, int]
    batch: int
    train_bytes: int
    eval_batch: int
    eval_bytes: int
    kept_bytes: int = 0
    """What a GPU's allocator keeps of an evaluation while steps run again: blocks of other sizes."""

    def train(self, batch: int) -> StepCost:
        """The bound for so many samples at once. Gradients count in full beside them, as between micro-batches.

        Checkpointing takes less: its bound is that of training without it.
        """
        peak = sum(self.parts.values()) + self.kept_bytes - (-self.train_bytes * batch // self.batch)
        return StepCost(batch, peak, parts=self.parts)

    def evaluation(self, batch: int) -> StepCost:
        return StepCost(batch, sum(self.parts.values()) - (-self.eval_bytes * batch // self.eval_batch), parts=self.parts)


def estimate_memory(job: TrainingJob, *, batch: int, eval_batch: int, base_bytes: int) -> MemoryEstimate:
    """Count one training step and one batch of evaluation. `base_bytes` is what the process or the GPU holds besides: the
    interpreter, or CUDA's context.
    """
    loop, device = replace(job.loop, grad_ckpt=False), torch.device(job.device)
    job = replace(job.over_noise(max(batch, eval_batch, _PREPARED)), loop=loop)
    num_inputs = 0 if job.inputs is None else job.inputs.shape[1]
    with torch.random.fork_rng(devices=[]):
        source, objective = job.open(device)
        with _ShapesAlone():
            network = prepare_network(job.build_network(objective, seed=0), loop, torch.device("meta"))

        def peak_bytes(num: int, *, training: bool) -> int:
            targets = objective.target_rows(np.arange(num), epoch=0)

            def run() -> tuple[Any, ...]:
                x = torch.empty((num, *source.sample_shape), device=device)
                extra = torch.empty((num, num_inputs), device=device) if num_inputs else None
                with autocast(device, torch_dtype(loop.dtype)):
                    outputs = network(x, extra)
                return objective.losses(outputs.float(), targets), x, extra, outputs

            training_mode(network, loop) if training else network.eval()
            tensors = _count(network, run, device, training=training)
            # what a sample takes as it was read and while it is prepared; for mixup beside the one it is mixed with
            positions, epoch = np.arange(_PREPARED), 0 if training else None
            raw = source.read(positions, epoch)
            with LiveTensors() as prepared:
                source.prepare(raw, positions, epoch)
            each = -(-(tensor_bytes([raw]) + (2 if loop.mixup else 1) * prepared.peak_bytes) // _PREPARED)
            return int(SLACK * (tensors.peak_bytes + tensor_bytes([targets]) + each * num)) + _SCRATCH * tensors.largest_bytes

        weights = tensor_bytes([*network.parameters(), *network.buffers()])
        gradients = tensor_bytes(parameter for parameter in network.parameters() if parameter.requires_grad)
        eval_bytes, train_bytes = peak_bytes(eval_batch, training=False), peak_bytes(batch, training=True)
    parts = {
        "weights": weights,
        "gradients": gradients,
        "optimizer": 2 * gradients + (weights if loop.ema_decay else 0),
        "baseline": base_bytes + weights + _SCRATCH_BYTES,
    }
    return MemoryEstimate(parts, batch, train_bytes, eval_batch, eval_bytes, 0 if is_cpu(device) else eval_bytes)


def count_pass(
    network: nn.Module, sample_shape: tuple[int, ...], *, batch: int, device: torch.device, training: bool
) -> tuple[int, int]:
    """The most that a forward pass of a network takes: bytes whatever the batch, and bytes for these samples. With `training`
    also its gradients, and what AdamW keeps. Its weights are replaced by shapes: it cannot compute afterwards.
    """
    network.train(training)
    shape = (batch, *sample_shape)
    tensors = _count(network, lambda: (network(torch.empty(shape, device=device)),), device, training=training)
    weights = tensor_bytes([*network.parameters(), *network.buffers()])
    moved = tensor_bytes(parameter for parameter in network.parameters() if parameter.requires_grad) if training else 0
    spent = int(SLACK * (tensors.peak_bytes + 4 * batch * math.prod(sample_shape))) + _SCRATCH * tensors.largest_bytes
    return 2 * weights + 3 * moved + _SCRATCH_BYTES, spent


def _count(network: nn.Module, run: Callable[[], tuple[Any, ...]], device: torch.device, *, training: bool) -> LiveTensors:
    """What lives while `run` computes losses (and what it keeps beside them), and in training their gradients, on shapes in the
    place of the weights, as if on `device`.
    """

    def like(tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=device)

    with FakeTensorMode(allow_non_fake_inputs=True):
        for module in network.modules():
            for name, parameter in module.named_parameters(recurse=False):
                module.register_parameter(name, nn.Parameter(like(parameter), requires_grad=parameter.requires_grad))
            for name, buffer in module.named_buffers(recurse=False):
                setattr(module, name, like(buffer))
        with LiveTensors() as tensors, torch.set_grad_enabled(training):
            losses, *_kept = run()
            if training:
                torch.autograd.backward(losses.float().sum())
    network.zero_grad(set_to_none=True)
    return tensors


class _ShapesAlone(TorchFunctionMode):
    """Tensors made within have no numbers, and so take no memory and no time. What is drawn from a generator is small, and is."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        if func is torch.Tensor.copy_ and args[1].is_meta:
            return args[0]
        if func in _device_constructors() and options.get("device") is None and options.get("generator") is None:
            options["device"] = "meta"
        return func(*args, **options)


class LiveTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """`with LiveTensors() as tensors: …; tensors.peak_bytes`. Counts what operators of the block make, until it is let go of."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held_bytes: int = 0
        self.peak_bytes: int = 0
        self.largest_bytes: int = 0
        self._sizes: dict[int, int] = {}

    def __enter__(self) -> Self:
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        made = [value for value in tree_leaves(result) if isinstance(value, torch.Tensor)]
        added = 0
        for storage in (value.untyped_storage() for value in made):
            if storage._cdata not in self._sizes:  # else it only looks at the memory of another
                self._sizes[storage._cdata] = storage.nbytes()
                weakref.finalize(storage, self._let_go, storage._cdata)
                added += storage.nbytes()
                self.held_bytes += storage.nbytes()
                self.peak_bytes = max(self.peak_bytes, self.held_bytes)
        if added:
            given = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
            self.largest_bytes = max(self.largest_bytes, tensor_bytes([*given, *made]))
        return result

    def _let_go(self, key: int) -> None:
        self.held_bytes -= self._sizes.pop(key)
