"""How much memory this process holds, now and at its peak.

Anonymous memory (RssAnon) is what a program asked for itself; mapped files are left out, since the kernel may drop those
pages whenever it needs room. Only Linux tells the two apart directly; elsewhere the unique set stands in for it. `Gauge` measures
whichever memory counts on a device: plans are made with the same figures that runs are measured by.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from unchoke.machine import backend

if TYPE_CHECKING:
    import torch

_CLEAR = Path("/proc/self/clear_refs")
_CLEAR_PEAK = "5"
_INTERVAL_S = 0.05


def own_bytes(pid: int | None = None) -> int:
    """Anonymous memory on Linux, the unique set elsewhere: of this process, or of another one; 0 for one that has ended."""
    if sys.platform == "linux":
        try:
            status = _linux_status(pid)
        except (FileNotFoundError, ProcessLookupError):
            return 0
        return status.get("RssAnon", status.get("VmRSS", 0))  # a process that has ended but was not waited for has neither
    import psutil

    try:
        return int(psutil.Process(pid).memory_full_info().uss)
    except psutil.AccessDenied:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def _linux_status(pid: int | None = None) -> dict[str, int]:
    """The sizes in /proc/<pid>/status, in bytes."""
    text = Path(f"/proc/{'self' if pid is None else pid}/status").read_text()
    lines = (line.split() for line in text.splitlines())
    return {parts[0].rstrip(":"): int(parts[1]) * 1024 for parts in lines if len(parts) == 3 and parts[2] == "kB"}


class MemoryWatch:
    """`with MemoryWatch() as watch: …; watch.peak_bytes`: the peak of this process's own memory, sampled from a thread.

    A sample every 50 ms: an allocation that comes and goes between two samples is not seen. With `exact` the kernel's own record
    is read at the end (Linux), which misses nothing. `read` watches something else. `on_peak` hears every new peak that is
    sampled, in the sampling thread.
    """

    def __init__(
        self,
        *,
        interval_s: float = _INTERVAL_S,
        read: Callable[[], int] = own_bytes,
        exact: bool = False,
        on_peak: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.start_bytes = self.peak_bytes = 0
        self._interval_s, self._read, self._exact, self._on_peak = interval_s, read, exact, on_peak
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="unchoke-memory", daemon=True)

    def __enter__(self) -> MemoryWatch:
        if self._exact:
            self._exact = False
            with suppress(OSError):  # the kernel forgets the peak so far, where it is Linux's
                _CLEAR.write_text(_CLEAR_PEAK)
                self._exact = True
        self.start_bytes = self.peak_bytes = self._read()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        with suppress(OSError):  # where every descriptor is taken, what was sampled before must do
            self.peak_bytes = max(self.peak_bytes, self._read())
            if self._exact:  # pages of files hardly change while a step runs, so what they are now will do
                status = _linux_status()
                own = status["VmHWM"] - status.get("RssFile", 0) - status.get("RssShmem", 0)
                self.peak_bytes = max(self.peak_bytes, own)

    def _sample(self) -> None:
        while not self._ended.wait(self._interval_s):
            with suppress(OSError):  # a sample is missed while no descriptor is free
                if (held := self._read()) > self.peak_bytes:
                    self.peak_bytes = held
                    self._on_peak(held)


class Gauge:
    """`with Gauge(device) as gauge: …; gauge.peak_bytes`: the peak of whichever memory counts. On a CPU that is the process's
    own, on a GPU what its allocator took, with CUDA's context. `baseline_bytes` is what there was before, or the context.

    The allocator of a GPU enforces `limit_bytes`. On a CPU passing it is noticed: `on_over` is called once, from a thread, with
    what the process held. `others_bytes` is what was in use on a GPU before this process came.
    """

    def __init__(
        self,
        device: torch.device,
        *,
        limit_bytes: int | None = None,
        others_bytes: int = 0,
        on_over: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._device, self._limit_bytes, self._others_bytes, self._on_over = device, limit_bytes, others_bytes, on_over
        self._on_cpu, self._told = backend.is_cpu(device), False
        self._watch = MemoryWatch(exact=True, on_peak=self._compare)
        if not self._on_cpu:
            self._watch = MemoryWatch(read=lambda: backend.held_memory_bytes(device) or 0)
        self.baseline_bytes = self.peak_bytes = 0

    def __enter__(self) -> Gauge:
        if not self._on_cpu:
            backend.allocate_first(self._device)
            if self._limit_bytes is not None:
                backend.limit_memory(self._device, self._limit_bytes)
        backend.reset_peak_memory(self._device)
        self.baseline_bytes = own_bytes() if self._on_cpu else 0
        self._watch.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._watch.__exit__(kind, error, trace)
        self.peak_bytes = self._watch.peak_bytes
        if self._on_cpu:
            self._compare(self.peak_bytes)
            return
        with suppress(RuntimeError):  # a GPU that failed may not answer any more, and the error is on its way already
            backend.synchronize(self._device)
            self.baseline_bytes = backend.context_bytes(self._device, others_bytes=self._others_bytes)
            self.peak_bytes = max(self.peak_bytes, backend.peak_reserved_bytes(self._device) or 0) + self.baseline_bytes

    def _compare(self, held_bytes: int) -> None:
        if self._limit_bytes is not None and held_bytes > self._limit_bytes and not self._told:
            self._told = True
            self._on_over(held_bytes)


def return_unused_memory() -> None:
    """Hand back what a finished stage no longer needs, so that the next one does not begin on top of it.

    Collects garbage, empties Arrow's pool if Arrow was used, and asks glibc (on Linux) to return free pages.
    """
    import gc

    gc.collect()
    if "pyarrow" in sys.modules:
        import pyarrow

        pyarrow.default_memory_pool().release_unused()
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
