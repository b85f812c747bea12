"""The peak of whichever memory counts: on a CPU the process's own; on a card what its allocator took, and CUDA's context.

In: a device, perhaps a limit. Out: `peak_bytes` of a block of code. Where a device has an allocator, that enforces the limit; on
a CPU passing it is noticed and told once. Probes plan with the same figures that runs are measured by, so the two compare.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from unchoke.machine.backend import (
    allocate_first,
    context_bytes,
    device_room_bytes,
    held_memory_bytes,
    is_cpu,
    limit_memory,
    peak_reserved_bytes,
    reset_peak_memory,
    synchronize,
    torch_device,
)
from unchoke.machine.memory.memory_watch import MemoryWatch, own_bytes
from unchoke.machine.memory.probe import StepCost

if TYPE_CHECKING:
    import torch


def look_at_device(asked: tuple[str, int | None], _: int) -> StepCost:
    """How much a process may take of a device: a limit, if there is that much, or all that others leave.

    For a process of its own: to ask takes a context, and that is memory too.
    """
    name, limit_bytes = asked
    device = torch_device(name)
    if limit_bytes is not None:
        limit_memory(device, limit_bytes)
    return StepCost(device_room_bytes(device) if limit_bytes is None else limit_bytes, 0.0)


class Gauge:
    """`with Gauge(device) as gauge: …; gauge.peak_bytes`. `baseline_bytes` is what there was before, or the card's context.

    `on_over` is called once, from a thread, with what the process held when it was first seen above the limit of a CPU.
    `others_bytes` is what was in use on a card before this process came; None where others come and go meanwhile.
    """

    def __init__(
        self,
        device: torch.device,
        *,
        limit_bytes: int | None = None,
        others_bytes: int | None = 0,
        on_over: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._device, self._limit_bytes, self._others_bytes, self._on_over = device, limit_bytes, others_bytes, on_over
        self._on_cpu = is_cpu(device)
        self._told = threading.Event()
        self._watch = MemoryWatch(exact=True, on_peak=self._compare) if self._on_cpu else MemoryWatch(read=self._held)
        self.baseline_bytes = self.peak_bytes = 0

    def __enter__(self) -> Gauge:
        if not self._on_cpu:
            allocate_first(self._device)
            if self._limit_bytes is not None:
                limit_memory(self._device, self._limit_bytes)
        reset_peak_memory(self._device)
        self.baseline_bytes = own_bytes() if self._on_cpu else 0
        self._watch.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._watch.__exit__(kind, error, trace)
        self.peak_bytes = self._watch.peak_bytes
        if self._on_cpu:
            self._compare(self.peak_bytes)
            return
        with suppress(RuntimeError):  # a card that failed may not answer any more, and the error is on its way already
            synchronize(self._device)
            self.baseline_bytes = context_bytes(self._device, others_bytes=self._others_bytes)
            self.peak_bytes = max(self.peak_bytes, peak_reserved_bytes(self._device) or 0) + self.baseline_bytes

    def _held(self) -> int:
        return held_memory_bytes(self._device) or 0

    def _compare(self, held_bytes: int) -> None:
        if self._limit_bytes is not None and held_bytes > self._limit_bytes and not self._told.is_set():
            self._told.set()
            self._on_over(held_bytes)
