"""A stand-in for Apple's MPS: a device `mps` whose tensors lie in ordinary memory, with MPS's refusals and a limit on memory.

It refuses what MPS refuses (float64, pinned memory, operations over tensors of two devices, `.numpy()`), and it counts what its
tensors hold: past `recommended_max_memory`, or the share of it that was set, an allocation fails with MPS's own words. It shows
nothing of Metal's kernels or speed. It must be installed in every process, before torch is used: `sitecustomize.py` does so for
all that find this folder on PYTHONPATH. FAKE_MPS_DEVICE names `device.cpp`, compiled; FAKE_MPS_BYTES is the room there is.
"""

from __future__ import annotations

import collections
import math
import os
import platform
import sys
import weakref
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

ROOM_BYTES = int(os.environ.get("FAKE_MPS_BYTES", 8_000_000_000))
_DEVICE = torch.device("mps", 0)
_MAY_MIX = {"aten::index", "aten::index_put_", "aten::_index_put_impl_"}
"""Operators that take indices from the CPU."""
_users: collections.Counter[int] = collections.Counter()
_held = {"bytes": 0, "limit": ROOM_BYTES, "peak": 0}


def _refuse_more(num_bytes: int) -> None:
    if _held["bytes"] + num_bytes > _held["limit"]:
        raise RuntimeError(
            f"MPS backend out of memory (MPS allocated: {_held['bytes'] / 2**30:.2f} GiB, other allocations: 0 bytes, "
            f"max allowed: {_held['limit'] / 2**30:.2f} GiB). Tried to allocate {num_bytes / 2**20:.2f} MiB on "
            "private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations."
        )


def _take(storage: torch.UntypedStorage) -> None:
    if not _users[storage._cdata]:
        _refuse_more(storage.nbytes())
        _held["bytes"] += storage.nbytes()
        _held["peak"] = max(_held["peak"], _held["bytes"])
    _users[storage._cdata] += 1


def _give_back(storage: torch.UntypedStorage) -> None:
    _users[storage._cdata] -= 1
    if not _users[storage._cdata]:
        del _users[storage._cdata]
        _held["bytes"] -= storage.nbytes()


class FakeTensor(torch.Tensor):
    """A tensor that says it is on `mps`; `raw` holds its numbers."""

    raw: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, raw: torch.Tensor) -> FakeTensor:
        if raw.dtype in (torch.float64, torch.complex128):
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. "
                            "Please use float32 instead.")  # fmt: skip
        storage = raw.untyped_storage()
        _take(storage)
        made = torch.Tensor._make_wrapper_subclass(
            cls, raw.size(), strides=raw.stride(), storage_offset=raw.storage_offset(), dtype=raw.dtype, device=_DEVICE
        )
        made.raw = raw
        weakref.finalize(made, _give_back, storage).atexit = False
        return made

    def __repr__(self, **_kwargs: Any) -> str:
        return f"mps {self.raw!r}"

    def tolist(self) -> Any:
        return self.raw.tolist()

    def numpy(self, **_kwargs: Any) -> Any:
        raise TypeError(
            "can't convert mps:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
        )

    @classmethod
    def __torch_dispatch__(cls, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), func._schema.name
        if kwargs.get("pin_memory") or name == "aten::_pin_memory":
            raise RuntimeError("pinned memory is for CUDA")
        if name == "aten::is_pinned":
            return False
        whose = {id(one.raw): one for one in tree_leaves((args, kwargs)) if isinstance(one, cls)}
        elsewhere = [one for one in tree_leaves(args) if isinstance(one, torch.Tensor) and not isinstance(one, cls) and one.dim()]
        if elsewhere and name not in _MAY_MIX | {"aten::copy_", "aten::_copy_from"}:
            raise RuntimeError(f"Expected all tensors to be on the same device, but found mps:0 and cpu in {name}")
        target = kwargs.get("device")
        to_cpu = target is not None and torch.device(target).type == "cpu"
        if target is not None:
            kwargs["device"] = torch.device("cpu")
        raw = tree_map(lambda one: one.raw if isinstance(one, cls) else one, (args, kwargs))
        if name == "aten::copy_" and not isinstance(args[0], cls):
            return args[0].copy_(raw[0][1])
        found = func(*raw[0], **raw[1])

        def wrap(one: Any) -> Any:
            if not isinstance(one, torch.Tensor):
                return one
            if to_cpu:
                return one.clone() if id(one) in whose else one
            return whose[id(one)] if id(one) in whose else cls(one)

        return tree_map(wrap, found)


def _empty(size, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):  # type: ignore[no-untyped-def]
    _refuse_more(math.prod(size) * (dtype or torch.get_default_dtype()).itemsize)
    return FakeTensor(torch.empty(size, dtype=dtype, device="cpu", memory_format=memory_format or torch.contiguous_format))


def _empty_strided(size, stride, dtype=None, layout=None, device=None, pin_memory=None):  # type: ignore[no-untyped-def]
    return FakeTensor(torch.empty_strided(size, stride, dtype=dtype, device="cpu"))


def _copy_from(source, target, non_blocking=False):  # type: ignore[no-untyped-def]
    raw = [one.raw if isinstance(one, FakeTensor) else one for one in (source, target)]
    raw[1].copy_(raw[0])
    return target


_library = torch.library.Library("aten", "IMPL")


def install() -> None:
    torch.ops.load_library(os.environ["FAKE_MPS_DEVICE"])
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # else a parameter loses its class
    for name, made in (("empty.memory_format", _empty), ("empty_strided", _empty_strided), ("_copy_from", _copy_from)):
        _library.impl(name, made, "MPS")
    platform.system = lambda: "Darwin" if sys._getframe(1).f_globals["__name__"].startswith("unchoke.machine") else "Linux"
    torch.backends.mps.is_available = lambda: True
    mps: Any = torch.mps
    mps.is_available = lambda: True
    mps.synchronize = mps.empty_cache = lambda: None
    mps.manual_seed = lambda seed: None
    mps.driver_allocated_memory = mps.current_allocated_memory = lambda: _held["bytes"]
    mps.recommended_max_memory = lambda: ROOM_BYTES
    mps.set_per_process_memory_fraction = lambda share: _held.update(limit=int(share * ROOM_BYTES))
