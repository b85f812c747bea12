"""How much memory this process holds, now and at its peak.

Anonymous memory (RssAnon) is what a program asked for itself; mapped files are left out, since the kernel may drop those
pages whenever it needs room. Only Linux tells the two apart directly; elsewhere the unique set stands in for it.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

_STATUS = Path("/proc/self/status")
_INTERVAL_S = 0.05


class ProcessMemory(NamedTuple):
    """`rss_anon_bytes` is None where the system does not tell."""

    rss_bytes: int
    rss_anon_bytes: int | None


def process_memory() -> ProcessMemory:
    """What this process holds now."""
    if sys.platform == "linux":
        status = _linux_status()
        return ProcessMemory(status["VmRSS"], status.get("RssAnon"))
    import psutil

    return ProcessMemory(int(psutil.Process().memory_info().rss), None)


def peak_rss_bytes() -> int:
    """The most this process ever held, mapped files included."""
    if sys.platform == "linux":
        return _linux_status()["VmHWM"]
    if sys.platform == "win32":
        import psutil

        return int(psutil.Process().memory_info().peak_wset)
    import resource

    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _linux_status() -> dict[str, int]:
    """The sizes in /proc/self/status, in bytes."""
    lines = (line.split() for line in _STATUS.read_text().splitlines())
    return {parts[0].rstrip(":"): int(parts[1]) * 1024 for parts in lines if len(parts) == 3 and parts[2] == "kB"}


def _own_bytes() -> int:
    """Anonymous memory on Linux, the unique set elsewhere."""
    if sys.platform == "linux":
        memory = process_memory()
        return memory.rss_bytes if memory.rss_anon_bytes is None else memory.rss_anon_bytes
    import psutil

    return int(psutil.Process().memory_full_info().uss)


class MemoryWatch:
    """`with MemoryWatch() as watch: …; watch.peak_bytes`: the peak of this process's own memory, sampled from a thread.

    A sample every 50 ms: an allocation that comes and goes between two samples is not seen.
    """

    def __init__(self, *, interval_s: float = _INTERVAL_S) -> None:
        self.start_bytes = 0
        self.peak_bytes = 0
        self._interval_s = interval_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="unchoke-memory", daemon=True)

    def __enter__(self) -> MemoryWatch:
        self.start_bytes = self.peak_bytes = _own_bytes()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        self.peak_bytes = max(self.peak_bytes, _own_bytes())

    @property
    def grown_bytes(self) -> int:
        """How far the peak lay above the start."""
        return self.peak_bytes - self.start_bytes

    def _sample(self) -> None:
        while not self._ended.wait(self._interval_s):
            self.peak_bytes = max(self.peak_bytes, _own_bytes())


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
