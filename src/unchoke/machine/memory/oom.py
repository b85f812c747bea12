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

_SIZE = r"\d+\.?\d*\s*(?:bytes|[KMGTP]?i?B)\b"
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
    """Which memory ran out, in the library's own words.

    Where `certain` is False the same words have another possible cause. A step repeated in smaller parts finds out: a lack of
    memory goes away, anything else comes back.
    """

    kind: Kind
    message: str
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
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, UnchokeError):  # ours are explained already
        words = f"{type(cause).__name__}: {cause}"
        if found := _by_words(words):
            return found
        # torch's type is known by name, so that asking does not import torch
        if any(kind.__name__ == "OutOfMemoryError" and kind.__module__.startswith("torch") for kind in type(cause).__mro__):
            return OutOfMemory("cuda", words.split("\n", 1)[0].strip())
        if isinstance(cause, MemoryError) or (isinstance(cause, OSError) and cause.errno == errno.ENOMEM):
            return OutOfMemory("cpu-allocator", words.split("\n", 1)[0].strip())
        cause = cause.__cause__
    return None


def _by_words(message: str) -> OutOfMemory | None:
    """With the line that says it, without the rest of a long explanation or a stack of native frames."""
    for certain, table in ((True, _CERTAIN), (False, _LIKELY)):
        for kind, pattern in table:
            if found := re.search(pattern, message):
                begin = message.rfind("\n", 0, found.start()) + 1
                return OutOfMemory(kind, message[begin:].split("\n", 1)[0].strip(), certain)
    return None
