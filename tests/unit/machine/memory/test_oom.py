"""Out-of-memory told from other errors, by the literal messages of the libraries."""

from __future__ import annotations

import errno
import subprocess
import sys

import numpy as np
import pytest
import torch

from unchoke.core.errors import MachineError
from unchoke.machine.memory.oom import OutOfMemory, out_of_memory

ASYNC = (
    "\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect."
    "\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1"
)

# (kind, certain, the message as the library writes it)
MESSAGES = [
    ("cuda", True,
     "CUDA out of memory. Tried to allocate 1024.00 KiB (GPU 0; 11.17 GiB total capacity; 10.90 GiB already "
     "allocated; 576.00 KiB free; 30.96 MiB cached)"),
    ("cuda", True,
     "CUDA out of memory. Tried to allocate 264.00 MiB (GPU 0; 2.00 GiB total capacity; 788.51 MiB already "
     "allocated; 145.93 MiB free; 1.02 GiB reserved in total by PyTorch)"),
    ("cuda", True,
     "CUDA out of memory. Tried to allocate 192.00 MiB (GPU 0; 4.00 GiB total capacity; 3.08 GiB already "
     "allocated; 0 bytes free; 3.47 GiB reserved in total by PyTorch) If reserved memory is >> allocated "
     "memory try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management "
     "and PYTORCH_CUDA_ALLOC_CONF"),
    ("cuda", True,
     "CUDA out of memory. Tried to allocate 1.70 GiB. GPU 0 has a total capacty of 6.00 GiB of which 0 bytes "
     "is free. Of the allocated memory 2.93 GiB is allocated by PyTorch, and 2.30 GiB is reserved by PyTorch "
     "but unallocated. If reserved but unallocated memory is large try setting max_split_size_mb to avoid "
     "fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"),
    ("cuda", True,
     "CUDA out of memory. Tried to allocate 22.00 MiB. GPU 0 has a total capacity of 23.65 GiB of which 11.06 "
     "MiB is free. Including non-PyTorch memory, this process has 23.60 GiB memory in use. Of the allocated "
     "memory 22.90 GiB is allocated by PyTorch, and 194.87 MiB is reserved by PyTorch but unallocated. If "
     "reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to "
     "avoid fragmentation.  See documentation for Memory Management  "
     "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"),
    ("cuda", True,
     "HIP out of memory. Tried to allocate 432.00 MiB. GPU 0 has a total capacity of 15.92 GiB of which 7.12 "
     "GiB is free. Of the allocated memory 8.08 GiB is allocated by PyTorch, and 321.96 MiB is reserved by "
     "PyTorch but unallocated."),
    ("cuda", True,
     "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call, so "
     "the stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1"),
    ("cuda", True, "CUDA driver error: out of memory"),
    ("cuda", True, "Triton Error [CUDA]: out of memory"),
    ("cuda", True, "cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/THCCachingHostAllocator.cpp:278"),
    ("cuda", True, "HIP error: out of memory"),
    ("cuda", True, "hipErrorOutOfMemory: out of memory"),
    ("cuda", True, "failed to allocate 32.00M (33554432 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
    ("cuda", True, "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes."),
    ("cuda", True,
     "backend='inductor' raised:\nOutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB."),
    ("mps", True,
     "MPS backend out of memory (MPS allocated: 9.57 GiB, other allocations: 17.35 GiB, max allowed: 27.20 "
     "GiB). Tried to allocate 292.50 MiB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable "
     "upper limit for memory allocations (may cause system failure)."),
    ("mps", True,
     "MPS backend out of memory (MPS allocated: 16.00 GB, other allocations: 3.31 GB, max allowed: 18.13 GB). "
     "Tried to allocate 256 bytes on shared pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper "
     "limit for memory allocations (may cause system failure)."),
    ("mps", True,
     "Error: command buffer exited with error status.\n\tError:\n\t(null)\n\tInsufficient Memory "
     "(00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"),
    ("buffer-size", True, "Invalid buffer size: 12.34 GB"),
    ("buffer-size", True, "Invalid buffer size: 19.38 GiB"),
    ("cudnn", True, "cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    ("cudnn", True, "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    ("cudnn", False, "Unable to find a valid cuDNN algorithm to run convolution"),
    ("cudnn", False, "GET was unable to find an engine to execute this computation"),
    ("cudnn", False, "FIND was unable to find an engine to execute this computation"),
    ("cublas", False, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ("nccl", True,
     "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, unhandled cuda error (run with "
     "NCCL_DEBUG=INFO for details), NCCL version 2.20.5\nncclUnhandledCudaError: Call to CUDA function failed.\n"
     "Last error:\nCuda failure 2 'out of memory'"),
    ("cpu-allocator", True,
     "[enforce fail at alloc_cpu.cpp:73] . DefaultCPUAllocator: can't allocate memory: you tried to allocate "
     "116813856768 bytes. Error code 12 (Cannot allocate memory)"),
    ("cpu-allocator", True,
     "[enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
     "allocate 132426121216 bytes. Error code 12 (Cannot allocate memory)"),
    ("cpu-allocator", True,
     "[enforce fail at C:\\b\\abs_bao0hdcrdh\\croot\\pytorch_1675190257512\\work\\c10\\core\\impl\\alloc_cpu.cpp:81] "
     "data. DefaultCPUAllocator: not enough memory: you tried to allocate 1981808640 bytes."),
    ("cpu-allocator", True,
     "[enforce fail at CPUAllocator.cpp:56] posix_memalign(&data, gAlignment, nbytes) == 0. 12 vs 0"),
    ("cpu-allocator", True, "std::bad_alloc"),
    ("cpu-allocator", True, "bad allocation"),
    ("cpu-allocator", True,
     "Unable to allocate 201. GiB for an array with shape (2999, 2999, 2999) and data type int64"),
    ("cpu-allocator", True, "Unable to allocate array with shape (9681, 9681) and data type float64"),
    ("cpu-allocator", True, "unable to mmap 1073741824 bytes from file </torch_1_2_3>: Cannot allocate memory (12)"),
    ("cpu-allocator", True, "[Errno 12] Cannot allocate memory"),
    ("killed", True, "DataLoader worker (pid 22048) is killed by signal: Killed. "),
    ("killed", True, "process 0 terminated with signal SIGKILL"),
    ("killed", True, "Command '['python', 'train.py']' died with <Signals.SIGKILL: 9>."),
    ("killed", True, "failed (exitcode: -9) local_rank: 0 (pid: 4242) of binary: /usr/bin/python"),
    ("killed", True, "the worker process was ended by SIGKILL (often the system's answer to too little memory)"),
]  # fmt: skip

NEAR_MISSES = [
    "[Errno 24] Too many open files",
    "unable to open shared memory object </torch_1_2> in read-write mode: Too many open files (24)",
    "[Errno 28] No space left on device",
    "DataLoader worker (pid 25902) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared"
    " memory. Please try to raise your shared memory limit.",
    "DataLoader worker (pid 25902) is killed by signal: Segmentation fault. ",
    "DataLoader worker (pid 23616) is killed by signal: Terminated. ",
    "DataLoader worker (pid(s) 1817) exited unexpectedly",
    f"CUDA error: device-side assert triggered{ASYNC}",
    f"CUDA error: an illegal memory access was encountered{ASYNC}",
    f"CUDA error: no kernel image is available for execution on the device{ASYNC}",
    "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( handle, opa, opb, m, n, k, &alpha, a, lda, b, ldb)`",
    "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-contiguous input.",
    "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
    "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, unhandled cuda error\nLast error:\nCuda failure 1 'invalid"
    " argument'",
    "mat1 and mat2 shapes cannot be multiplied (8x512 and 1280x10)",
    "The size of tensor a (8) must match the size of tensor b (7) at non-singleton dimension 0",
    "[enforce fail at alloc_cpu.cpp:66] ((ptrdiff_t)nbytes) >= 0. alloc_cpu() seems to have been called with negative number:"
    " 18446744071562067968",
    "Placeholder storage has not been allocated on MPS device!",
    "out of resource: shared memory, Required: 131072, Hardware limit: 101376. Reducing block sizes or `num_stages` may help.",
    "/usr/lib/libgomp.so.1: cannot allocate memory in static TLS block",
    "429 RESOURCE_EXHAUSTED: Quota exceeded for requests per minute",
    "Invalid buffer size: must be a multiple of 4",
    "index 12 is out of bounds for dimension 0 with size 10",
    "",
]


@pytest.mark.parametrize(("kind", "certain", "message"), MESSAGES)
def test_the_literal_messages_are_recognised(kind: str, certain: bool, message: str) -> None:
    for error in (message, RuntimeError(message)):
        found = out_of_memory(error)
        assert found is not None
        assert (found.kind, found.certain) == (kind, certain)


@pytest.mark.parametrize("message", NEAR_MISSES)
def test_near_misses_are_not(message: str) -> None:
    assert out_of_memory(message) is None
    assert out_of_memory(RuntimeError(message)) is None


def test_what_torch_raises_here_is_recognised() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(10**15)
    found = out_of_memory(caught.value)
    assert found is not None
    assert found.kind == "cpu-allocator"


def test_what_numpy_raises_here_is_recognised() -> None:
    with pytest.raises(MemoryError) as caught:
        np.empty(10**15)
    found = out_of_memory(caught.value)
    assert found is not None
    assert found.kind == "cpu-allocator"


def test_torchs_own_type_needs_no_words() -> None:
    found = out_of_memory(torch.OutOfMemoryError("no words"))
    assert found == OutOfMemory("cuda", "OutOfMemoryError: no words")


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.ENOMEM, "no memory")])
def test_pythons_own_types_need_no_words(error: BaseException) -> None:
    found = out_of_memory(error)
    assert found is not None
    assert found.kind == "cpu-allocator"


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "x"), OSError(errno.ENOSPC, "x"), KeyboardInterrupt(), ValueError("x")])
def test_other_types_are_not(error: BaseException) -> None:
    assert out_of_memory(error) is None


@pytest.mark.parametrize(
    ("code", "killed"), [(-9, True), (137, True), (0, False), (1, False), (-11, False), (-15, False), (130, False)]
)
def test_an_exit_code_tells_only_of_being_killed(code: int, killed: bool) -> None:
    found = out_of_memory(code)
    assert (found is not None) == killed
    assert found is None or found.kind == "killed"


def test_cause_of_an_error_counts_a_handled_one_not() -> None:
    with pytest.raises(ValueError, match="wrapped") as caught:
        raise ValueError("wrapped") from MemoryError("7 bytes")
    assert out_of_memory(caught.value) is not None
    with pytest.raises(KeyError) as later:
        try:
            raise MemoryError("7 bytes")
        except MemoryError:
            {}["a bug in the handler"]
    assert out_of_memory(later.value) is None


def test_our_own_errors_are_explained_already() -> None:
    error = MachineError("CUDA out of memory even for one sample", code="of-a-test", why="it takes 5 GB", try_="--input-px 224")
    error.__cause__ = MemoryError()
    assert out_of_memory(error) is None


def test_only_a_process_that_is_still_sound_repeats() -> None:
    repeats = {found.kind: found.can_repeat for _, _, text in MESSAGES if (found := out_of_memory(text)) is not None}
    assert {kind for kind, can in repeats.items() if not can} == {"killed", "nccl"}


def test_the_message_kept_is_the_line_that_says_it() -> None:
    found = out_of_memory("backend='inductor' raised:\nOutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.\n\nmore")
    assert found is not None
    assert found.message == "OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB."


def test_asking_loads_no_torch() -> None:
    ask = "from unchoke.machine.memory.oom import out_of_memory; out_of_memory(MemoryError())"
    code = f"import sys; {ask}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
