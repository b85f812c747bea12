"""How many bytes of tensors live at once while a block of code runs, counted operator by operator.

In: code that computes with tensors, real ones or stand-ins that have only a shape. Out: the peak, and the largest operator. What
an allocator makes of it (rounding, holes, scratch memory of its kernels) is not seen here.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


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
        if sum(self._count(value) for value in made):
            given = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
            self.largest_bytes = max(self.largest_bytes, tensor_bytes([*given, *made]))
        return result

    def _count(self, tensor: torch.Tensor) -> int:
        """What memory the tensor adds: nothing if it only looks at that of another."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._sizes:
            return 0
        self._sizes[key] = size
        weakref.finalize(storage, self._let_go, key)
        self.held_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)
        return size

    def _let_go(self, key: int) -> None:
        self.held_bytes -= self._sizes.pop(key)


def tensor_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """All of them together."""
    return sum(value.numel() * value.element_size() for value in tensors)
