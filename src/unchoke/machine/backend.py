"""The few calls that differ between devices, behind one name each.

With `policy.py` the only file that may ask which kind of device it is. Devices and tensors come in and go out; nothing is chosen
here. torch is imported inside the functions, so that asking for `keep_freed_memory` alone costs nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from unchoke.core.choices import Choice
from unchoke.core.errors import MachineError, UsageError
from unchoke.core.units import format_bytes
from unchoke.machine.detect import machine_memory
from unchoke.machine.policy import UNMEASURED, Policy

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

T = TypeVar("T")
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4
_LARGEST_ON_HEAP_BYTES = 1 << 30
_NEVER = -1
_USUAL_ON_HEAP_BYTES, _USUAL_TRIM_BYTES, _USUAL_MAPPED = 32 << 20, 64 << 20, 65_536
"""Where glibc's own thresholds end up once tensors come and go."""
_CONTEXT_BYTES = 600_000_000  # what CUDA's context takes with its kernels, where that cannot be read or is still to come
_LARGEST_CONTEXT_BYTES = 1_500_000_000
_TIGHT_SHARE = 0.4


def torch_device(policy: Policy | str) -> torch.device:
    """The device of a policy, or of a name like "cuda:1"."""
    import torch

    return torch.device(policy if isinstance(policy, str) else policy.device)


def head_device(policy: Policy) -> torch.device:
    """Where heads are trained on features: on MPS, which has no float64 to solve them in, by the CPU."""
    device = torch_device(policy)
    return torch_device("cpu") if device.type == "mps" else device


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


def has_own_memory(device: torch.device) -> bool:
    """Whether the device has memory beside the machine's, which what is read often should lie in."""
    return device.type == "cuda"


def can_record(device: torch.device) -> bool:
    """Whether work handed to the device once can be recorded, and from then on be repeated by a single call."""
    return device.type == "cuda"


def record_work(work: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """Record what `work` hands to the device; what is returned repeats it, on the same tensors.

    `work` has run before, so that whatever libraries set up in a first call is there. Recording hands over nothing. Other threads
    may allocate meanwhile.
    """
    import torch

    with torch.cuda.device(device):
        make: Any = torch.cuda.Stream  # torch leaves it untyped
        stream = make()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            work()  # on a stream of its own, as it will be recorded
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            work()
    replay: Callable[[], None] = graph.replay
    return replay


def random_state(device: torch.device) -> torch.Tensor:
    """Where the device's source of random numbers stands: it changes with every number drawn."""
    import torch

    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def why_not_compiled(device: torch.device) -> str:
    """Why torch compiles nothing for the device here, such as a C++ compiler that is missing; "" where it does."""
    import torch

    try:
        torch.compile(lambda x: x * 2 + 1)(torch.ones(8, device=device))
    except Exception as error:  # whatever a compiler that is missing, or half there, makes torch raise
        return next(iter(str(error).strip().splitlines()), type(error).__name__)
    return ""


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished what it was given; a clock read afterwards is honest."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one core: sums split over several round differently, and threads of small work wait for one another."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def allocate_first(device: torch.device) -> None:
    """Have the device's context made, if there is to be one, so that what comes after is measured without it."""
    import torch

    torch.zeros(1, device=device)


def reset_peak_memory(device: torch.device) -> None:
    """Begin a new peak, where the device keeps one."""
    import torch

    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_reserved_bytes(device: torch.device) -> int | None:
    """The most the allocator took from the device since the last reset, what it merely keeps included: that is what a GPU must
    hold. On MPS, which keeps no peak, what it holds now; None on the CPU.
    """
    import torch

    return int(torch.cuda.max_memory_reserved(device)) if device.type == "cuda" else held_memory_bytes(device)


def tensor_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """All of them together."""
    return sum(value.numel() * value.element_size() for value in tensors)


def held_memory_bytes(device: torch.device) -> int | None:
    """What the allocator holds of the device now; None on the CPU, where the whole process counts (`memory_watch.py`)."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.memory_reserved(device))
    return int(torch.mps.driver_allocated_memory()) if device.type == "mps" else None


def passing_bytes(device: torch.device) -> int:
    """How much more tensors took at their peak than they take now: what comes and goes within a step. 0 where nobody counts."""
    import torch

    if device.type != "cuda":
        return 0
    return int(torch.cuda.max_memory_allocated(device) - torch.cuda.memory_allocated(device))


def device_total_bytes(device: torch.device) -> int:
    """All memory of the device: of the GPU, of what MPS recommends at most, or of the machine (or its container)."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return int(torch.mps.recommended_max_memory()) if device.type == "mps" else machine_memory()[0]


def device_free_bytes(device: torch.device) -> int:
    """What this process could hold of the device if it took all that is free, what its allocator holds already included."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0]) + (held_memory_bytes(device) or 0)
    if device.type == "mps":  # other programs hold the same memory, whatever is recommended
        return min(device_total_bytes(device), machine_memory()[1] + (held_memory_bytes(device) or 0))
    return machine_memory()[1]


def device_room_bytes(device: torch.device) -> int:
    """What this process could take of the device altogether, its context included: all of it, less what others hold."""
    context = _CONTEXT_BYTES if device.type == "cuda" else 0
    return min(device_total_bytes(device), device_free_bytes(device) + context)


def is_tight(device: torch.device, *, limit_bytes: int | None = None) -> bool:
    """Whether the allocator holds so much of the device that what it merely keeps may be missing elsewhere. Never on a CPU, which
    has no such allocator.
    """
    if device.type == "cpu":
        return False
    room = device_room_bytes(device) if limit_bytes is None else limit_bytes
    return (held_memory_bytes(device) or 0) > _TIGHT_SHARE * room


def context_bytes(device: torch.device, *, others_bytes: int | None = 0) -> int:
    """What this process takes of a GPU besides its tensors: CUDA's context, kernels and handles. Nothing elsewhere.

    The driver tells what is used by everyone; minus our allocator, and `others_bytes` known to belong to others, that is our
    context. Where more is used than a context takes, somebody else is there too, and a stated figure stands in; likewise where
    `others_bytes` is None, because others come and go.
    """
    import torch

    if device.type != "cuda":
        return 0
    if others_bytes is None:
        return _CONTEXT_BYTES
    beyond = used_bytes(device) - int(torch.cuda.memory_reserved(device)) - others_bytes
    return beyond if 0 < beyond <= _LARGEST_CONTEXT_BYTES else _CONTEXT_BYTES


def expected_context_bytes(device: torch.device) -> int:
    """What CUDA's context will take once kernels are loaded: it grows, and most are not yet. Nothing elsewhere."""
    return max(context_bytes(device), _CONTEXT_BYTES) if device.type == "cuda" else 0


def used_bytes(device: torch.device) -> int:
    """What everyone together uses of a GPU, this process included; 0 where nobody tells."""
    import torch

    if device.type != "cuda":
        return 0
    free, total = torch.cuda.mem_get_info(device)
    return int(total - free)


def limit_memory(device: torch.device, limit_bytes: int) -> Choice:
    """Keep this process under `limit_bytes` on `device`: by the allocator on CUDA and MPS; on the CPU it is only watched.

    An allocation past the limit then fails as if the device were no larger.
    """
    import torch

    total, shown = device_total_bytes(device), format_bytes(limit_bytes)
    if limit_bytes <= 0:
        raise UsageError(
            f"--memory {limit_bytes} leaves nothing",
            code="bad-memory-limit",
            why="a limit is more than nothing",
            try_="--memory 4GB",
        )
    if limit_bytes > total:
        raise MachineError(
            f"--memory {shown} is more than there is",
            code="memory-limit-too-high",
            why=f"{device} has {format_bytes(total)}",
            try_=f"--memory {total * 9 // 10 // 1_000_000}MB, or no --memory: then what is free is used",
        )
    if device.type == "cuda":
        _grow_segments()
        context = expected_context_bytes(device)
        fraction = _allocator_fraction(limit_bytes, context_bytes=context, total_bytes=total)
        torch.cuda.set_per_process_memory_fraction(fraction, device.index or 0)
        reason = f"enforced by the allocator: {shown} less {format_bytes(context)} for CUDA's context"
        return Choice("memory", shown, reason, {"limit_bytes": limit_bytes, "context_bytes": context, "fraction": fraction})
    if device.type == "mps":
        fraction = limit_bytes / total
        torch.mps.set_per_process_memory_fraction(fraction)
        reason = f"enforced by MPS: {fraction:.0%} of what it recommends"
        return Choice("memory", shown, reason, {"limit_bytes": limit_bytes, "fraction": fraction})
    return Choice("memory", shown, "planned for and watched: nothing on a CPU enforces it", {"limit_bytes": limit_bytes})


def _grow_segments() -> None:
    """Let CUDA's allocator grow what it holds instead of keeping holes, so that what it takes is what tensors need."""
    import torch

    if sys.platform == "linux" and "PYTORCH_CUDA_ALLOC_CONF" not in os.environ and "PYTORCH_ALLOC_CONF" not in os.environ:
        # torch has renamed the call, and warns where the old one is used
        older = getattr(torch.cuda.memory, "_set_allocator_settings", None)
        setting: Any = getattr(torch._C, "_accelerator_setAllocatorSettings", None) or older
        if setting is not None:
            setting("expandable_segments:True")


def _allocator_fraction(limit_bytes: int, *, context_bytes: int, total_bytes: int) -> float:
    """The share of the GPU the allocator may take, so that with the context beside it the limit holds."""
    if limit_bytes <= context_bytes:
        raise MachineError(
            f"--memory {format_bytes(limit_bytes)} is too little for CUDA itself",
            code="memory-limit-too-low",
            why=f"its context takes {format_bytes(context_bytes)} before the first tensor",
            try_=f"--memory {(context_bytes + 1_000_000_000) // 1_000_000}MB, or --device cpu",
        )
    return min(1.0, (limit_bytes - context_bytes) / total_bytes)


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


def send(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A small tensor on `device`. An ordinary copy to CUDA waits until the GPU has finished everything it was given before."""
    return to_device(tensor.pin_memory() if device.type == "cuda" else tensor, device, non_blocking=True)


def fetch_later(tensor: torch.Tensor) -> Callable[[], NDArray[Any]]:
    """Begin to copy a tensor from its device. What is returned waits for the copy, not for what the device is given later."""
    import torch

    if tensor.device.type != "cuda":
        return lambda: tensor.cpu().numpy()
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor, non_blocking=True)  # unchoke: ignore[non-blocking-unsafe]  read after the event below
    copied = torch.Event(device=tensor.device)
    copied.record()

    def fetch() -> NDArray[Any]:
        copied.synchronize()
        return host.numpy()

    return fetch


_launching: list[ThreadPoolExecutor] = []


def launch_on(device: torch.device, work: Callable[[], T]) -> T:
    """Run `work`, which hands an accelerator something to do, in the one thread of the process kept for that.

    cuDNN's plans are looked for by each thread anew, for seconds. What ran there once, ahead of time or in a run before, is found
    at once the next time. On the CPU it is run right here.
    """
    if device.type == "cpu":
        return work()
    if not _launching:
        _launching.append(ThreadPoolExecutor(1, thread_name_prefix="unchoke-launch"))
    return _launching[0].submit(work).result()


def decodes_jpegs(device: torch.device) -> bool:
    """Whether such a device has a decoder for JPEG of its own."""
    return device.type == "cuda"


def autocast(device: torch.device, dtype: torch.dtype) -> contextlib.AbstractContextManager[Any]:
    """Run matrix work of the block in `dtype`; nothing changes for float32."""
    import torch

    if dtype == torch.float32:
        return contextlib.nullcontext()
    return torch.autocast(device_type=device.type, dtype=dtype)


def profiled_activities(device: torch.device) -> list[Any]:
    """What torch.profiler can watch of a training on `device`: the CPU always, and a GPU where it is one of NVIDIA's."""
    from torch.profiler import ProfilerActivity

    return [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]


def unseen_kernels(device: torch.device) -> str:
    """The name of a device whose kernels torch.profiler cannot see (MPS, and whatever is no GPU of NVIDIA's); else nothing."""
    return "" if device.type in ("cuda", "cpu") else device.type.upper()


def is_operator_row(row: Any) -> bool:
    """Whether a row of torch.profiler's averages is about what ran on the CPU, not about a kernel it launched."""
    return bool(row.device_type.name == "CPU")


def quiet_profiler() -> None:
    """Keep torch.profiler from writing lines of its own to stderr. Must be said before torch is first imported."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def rounding_of(device: torch.device, dtype: torch.dtype) -> str:
    """What multiplications are rounded to there: "f32", "tf32" (float32 on a GPU that shortens it), "bf16" or "f16"."""
    import torch

    if dtype is torch.float32:
        return "tf32" if device.type == "cuda" and torch.backends.cudnn.allow_tf32 else "f32"
    return "bf16" if dtype is torch.bfloat16 else "f16"


@contextlib.contextmanager
def unshortened() -> Iterator[None]:
    """Float32 in full within the block, on GPUs that would shorten it: what other ways of computing are compared with."""
    import torch

    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def has_fused_adamw(device: torch.device) -> bool:
    """Whether torch updates all weights in one call there; elsewhere it goes through them one by one."""
    return device.type in ("cuda", "cpu")


def collective_backend() -> str:
    """What processes exchange tensors through, by the kind of device the tensors are on."""
    import torch

    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


def numbered_device(device: str, number: int) -> str:
    """The device of process `number` among several: its own GPU, or the one processor they share."""
    return f"cuda:{number}" if device.partition(":")[0] == "cuda" else device


def device_count(device: str) -> int | None:
    """How many such devices there are; None where processes may share one."""
    import torch

    kind = device.partition(":")[0]
    return torch.cuda.device_count() if kind == "cuda" else 1 if kind == "mps" else None


def keep_freed_memory(keep: bool = True) -> Choice:
    """Keep glibc from handing every freed tensor back to the kernel, only to fault it in again page by page.

    Large tensors then come from the heap and stay there when freed. Results do not change. Harmless to repeat; elsewhere than on
    Linux with glibc nothing is done. `keep` False puts glibc's own ways back.
    """
    if not has_glibc():
        return Choice("keep_freed_memory", False, "only glibc on Linux hands freed tensors back page by page")
    mallopt = ctypes.CDLL(None).mallopt
    if not keep:
        mallopt(_M_MMAP_THRESHOLD, _USUAL_ON_HEAP_BYTES)
        mallopt(_M_MMAP_MAX, _USUAL_MAPPED)
        mallopt(_M_TRIM_THRESHOLD, _USUAL_TRIM_BYTES)
        return Choice("keep_freed_memory", False, "glibc's own thresholds, as asked for")
    kept = bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_ON_HEAP_BYTES)) or bool(mallopt(_M_MMAP_MAX, 0))
    kept = bool(mallopt(_M_TRIM_THRESHOLD, _NEVER)) and kept
    if not kept:
        return Choice("keep_freed_memory", False, "this glibc refused the setting")
    reason = "freed tensors stay on the heap: fewer page faults in CPU work, the same results"
    return Choice("keep_freed_memory", True, reason, UNMEASURED)


def has_glibc() -> bool:
    """Whether the C library is the one whose ways with freed memory `keep_freed_memory` can change."""
    if sys.platform != "linux":
        return False
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (ValueError, OSError):
        return False  # another C library does not know the name
