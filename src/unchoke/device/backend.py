"""The few calls that differ between devices, behind one name each.

With `policy.py` the only file that may ask which kind of device it is. Devices and tensors come in and go out; nothing is chosen
here. torch is imported inside the functions, so that asking for `keep_freed_memory` alone costs nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from typing import TYPE_CHECKING, Any

from unchoke.choices import Choice
from unchoke.device.policy import UNMEASURED, Policy

if TYPE_CHECKING:
    import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4
_LARGEST_ON_HEAP_BYTES = 1 << 30
_NEVER = -1


def torch_device(policy: Policy | str) -> torch.device:
    """The device of a policy, or of a name like "cuda:1"."""
    import torch

    return torch.device(policy if isinstance(policy, str) else policy.device)


def torch_dtype(policy: Policy | str) -> torch.dtype:
    """The dtype of a policy, or of a name: "float32", "bfloat16" or "float16"."""
    import torch

    names = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    return names[policy if isinstance(policy, str) else policy.dtype]


def torch_memory_format(policy: Policy | str) -> torch.memory_format:
    """The memory format of a policy, or of a name: "channels_last" or "contiguous"."""
    import torch

    name = policy if isinstance(policy, str) else policy.memory_format
    return torch.channels_last if name == "channels_last" else torch.contiguous_format


def is_cpu(device: torch.device) -> bool:
    """Whether tensors on `device` lie in ordinary memory, so that numpy can look at them."""
    return device.type == "cpu"


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished what it was given; a clock read afterwards is honest."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def reset_peak_memory(device: torch.device) -> None:
    """Begin a new peak, where the device keeps one."""
    import torch

    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory_bytes(device: torch.device) -> int | None:
    """The most device memory tensors took since the last reset; on MPS what is taken now; None on the CPU."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return int(torch.mps.driver_allocated_memory()) if device.type == "mps" else None


def empty_cache(device: torch.device) -> None:
    """Hand memory the allocator merely keeps back to the device."""
    import torch

    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif device.type == "mps":
        torch.mps.empty_cache()


def to_device(tensor: torch.Tensor, device: torch.device, *, non_blocking: bool = False) -> torch.Tensor:
    """The tensor on `device`. A copy that does not wait is made only to CUDA, and only from pinned memory."""
    overlap = non_blocking and device.type == "cuda" and tensor.is_pinned()
    return tensor.to(device, non_blocking=overlap)


def autocast(device: torch.device, dtype: torch.dtype) -> contextlib.AbstractContextManager[Any]:
    """Run matrix work of the block in `dtype`; nothing changes for float32."""
    import torch

    if dtype == torch.float32:
        return contextlib.nullcontext()
    return torch.autocast(device_type=device.type, dtype=dtype)


def keep_freed_memory() -> Choice:
    """Keep glibc from handing every freed tensor back to the kernel, only to fault it in again page by page.

    Large tensors then come from the heap and stay there when freed. Results do not change. Harmless to repeat; elsewhere than on
    Linux with glibc nothing is done.
    """
    if not _has_glibc():
        return Choice("keep_freed_memory", False, "only glibc on Linux hands freed tensors back page by page")
    mallopt = ctypes.CDLL(None).mallopt
    kept = bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_ON_HEAP_BYTES)) or bool(mallopt(_M_MMAP_MAX, 0))
    kept = bool(mallopt(_M_TRIM_THRESHOLD, _NEVER)) and kept
    if not kept:
        return Choice("keep_freed_memory", False, "this glibc refused the setting")
    reason = "freed tensors stay on the heap: fewer page faults in CPU work, the same results"
    return Choice("keep_freed_memory", True, reason, UNMEASURED)


def _has_glibc() -> bool:
    if sys.platform != "linux":
        return False
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (ValueError, OSError):
        return False  # another C library does not know the name
