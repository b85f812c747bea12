"""Is this error a lack of memory? The one place that knows.

An exception, a message or the exit code of a process comes in; out comes an `OutOfMemory` that says which kind it is, or None.
Libraries raise a plain RuntimeError for most kinds, so their words are what is looked at. Nothing is caught or repeated here.
Full disks, used-up descriptors and full shared memory (a "Bus error") are not meant: a smaller batch mends none of them.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from typing import Literal

from unchoke.core.errors import UnchokeError

Kind = Literal["cuda", "mps", "buffer-size", "cudnn", "cublas", "nccl", "cpu-allocator", "killed"]

_SIZE = r"(\d+\.?\d*)\s*(bytes|[KMGTP]?i?B)\b"
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_REQUESTED = re.compile(rf"(?:[Tt]ried to allocate|[Uu]nable to allocate|[Ff]ailed to allocate|Invalid buffer size:)\s+{_SIZE}")
_KILLED_CODES = {-9, 137, 0xC0000017, 0xC000012D}  # SIGKILL as a process and as a shell see it; Windows: no memory, commit limit

_CERTAIN: tuple[tuple[Kind, str], ...] = (
    ("killed", r"killed by signal: Killed|(?:by|with)(?: signal)? <?(?:Signals\.)?SIGKILL|exitcode\s*: -9\b"),
    ("nccl", r"(?s)NCCL.*Cuda failure[^\n]*out of memory"),
    ("mps", r"MPS backend out of memory|kIOGPUCommandBufferCallbackErrorOutOfMemory|Failed to allocate private MTLBuffer"),
    ("buffer-size", rf"Invalid buffer size: {_SIZE}"),
    ("cudnn", r"CUDNN_STATUS_ALLOC_FAILED|CUDNN_STATUS_INTERNAL_ERROR_(?:HOST|DEVICE)_ALLOCATION_FAILED"),
    ("cuda", r"\b(?:CUDA|[Cc]uda|HIP|XPU)\b[^\n]{0,80}\bout of memory\b|(?i:RESOURCE_EXHAUSTED: out of memory)"),
    ("cuda", r"cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|hipErrorOutOfMemory"),
    ("cpu-allocator", r"DefaultCPUAllocator: (?:can't allocate|not enough) memory|not enough memory: you tried to allocate"),
    ("cpu-allocator", r"posix_memalign\([^)]*\) == 0\. 12 vs 0|std::bad_alloc|\bbad allocation\b"),
    ("cpu-allocator", rf"Unable to allocate (?:array with shape|{_SIZE} for an array)|Failed to allocate \d+ bytes"),
    ("cpu-allocator", r"\bCannot allocate memory\b"),
)
# What these say has other causes too: no kernel for this shape or dtype, or an earlier assertion on the device.
_LIKELY: tuple[tuple[Kind, str], ...] = (
    ("cudnn", r"Unable to find a valid cuDNN algorithm to run convolution"),
    ("cudnn", r"(?:FIND|GET) was unable to find an engine to execute this computation"),
    ("cublas", r"CU(?:BLAS_STATUS|SPARSE_STATUS|SOLVER_STATUS|FFT)_ALLOC_FAILED"),
)


@dataclass(frozen=True)
class OutOfMemory:
    """Which memory ran out, in the library's own words, and how much was asked for where that was said.

    Where `certain` is False the same words have another possible cause. A step repeated in smaller parts finds out: a lack of
    memory goes away, anything else comes back.
    """

    kind: Kind
    message: str
    requested_bytes: int | None = None
    certain: bool = True

    @property
    def can_repeat(self) -> bool:
        """Whether this process is sound enough to try again: not after a killed one, nor with a broken process group."""
        return self.kind not in {"killed", "nccl"}


def out_of_memory(error: BaseException | str | int) -> OutOfMemory | None:
    """What ran out, or None for any other error. Looks at an exception, its causes, a message, or an exit code."""
    if isinstance(error, int):
        return OutOfMemory("killed", f"the process ended with exit code {error}") if error in _KILLED_CODES else None
    if isinstance(error, str):
        return _by_words(error)
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen and not isinstance(cause, UnchokeError):  # ours are explained already
        seen.add(id(cause))
        if found := _by_words(_words(cause)) or _by_type(cause):
            return found
        cause = cause.__cause__
    return None


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _by_type(error: BaseException) -> OutOfMemory | None:
    """Types that mean it whatever they say. torch's is known by name, so that asking does not import torch."""
    message = _line_at(_words(error), 0)
    if any(kind.__name__ == "OutOfMemoryError" and kind.__module__.startswith("torch") for kind in type(error).__mro__):
        return OutOfMemory("cuda", message, _requested_bytes(str(error)))
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return OutOfMemory("cpu-allocator", message, _requested_bytes(str(error)))
    return None


def _by_words(message: str) -> OutOfMemory | None:
    for certain, table in ((True, _CERTAIN), (False, _LIKELY)):
        for kind, pattern in table:
            if found := re.search(pattern, message):
                return OutOfMemory(kind, _line_at(message, found.start()), _requested_bytes(message), certain)
    return None


def _requested_bytes(message: str) -> int | None:
    """The size that was refused. torch and numpy count in powers of 1024, also where they write GB."""
    if (found := _REQUESTED.search(message)) is None:
        return None
    return int(float(found[1]) * 1024 ** _POWERS.get(found[2][0], 0))


def _line_at(message: str, start: int) -> str:
    """The line around `start`, without the rest of a long explanation or a stack of native frames."""
    begin = message.rfind("\n", 0, start) + 1
    return message[begin:].split("\n", 1)[0].strip()
