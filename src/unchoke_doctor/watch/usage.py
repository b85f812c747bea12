"""What this process and this thread have used so far, read cheaply enough for every batch and step. Nothing is kept.

Where a system has no such counter the number is 0.
"""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_open, _plain_open = os.open, open  # ours stay what they were when others are replaced
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_THREAD = getattr(resource, "RUSAGE_THREAD", 0)


class Usage(NamedTuple):
    """CPU seconds and page faults, of the process or of one thread."""

    user_s: float
    system_s: float
    minor_faults: int


def of_thread() -> Usage:
    """This thread alone, where the system tells (Linux); else the whole process."""
    return of_process(_THREAD)


def of_process(who: int = 0) -> Usage:
    if resource is None:
        times = os.times()
        return Usage(times.user, times.system, 0)
    found = resource.getrusage(who)
    return Usage(found.ru_utime, found.ru_stime, found.ru_minflt)


class Memory:
    """`/proc/self/statm` kept open: reading it again costs a microsecond or two. To be made anew after a fork."""

    def __init__(self) -> None:
        self._file = _descriptor("/proc/self/statm")

    def rss_bytes(self) -> int:
        return int(os.pread(self._file, 64, 0).split()[1]) * _PAGE_BYTES if self._file >= 0 else 0

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)


class ThreadState:
    """What a thread of this process waits for, as the kernel says (Linux); to be made anew after a fork."""

    def __init__(self, native_id: int | None) -> None:
        self._file = _descriptor(f"/proc/self/task/{native_id}/wchan")

    def read(self) -> str:
        """`native` where it runs, `sleep`, `lock`, `read` or `wait` where it does not; empty where the kernel does not say."""
        if self._file < 0:
            return ""
        try:
            at = os.pread(self._file, 64, 0).decode(errors="replace")
        except OSError:
            return ""
        return "native" if at in ("0", "") else next((state for word, state in _WAITS if word in at), "wait")


_WAITS = (
    ("nanosleep", "sleep"), ("futex", "lock"), ("pipe", "wait"), ("unix_", "wait"), ("skb_", "wait"), ("poll", "wait"),
    ("select", "wait"), ("folio", "read"), ("page", "read"), ("io_schedule", "read"), ("read", "read"), ("bit_wait", "read"),
)  # fmt: skip
"""Words in the names of the kernel's functions that threads wait in."""


def _descriptor(path: str) -> int:
    try:
        return _open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return -1


class Machine:
    """The cores that this process may use, and how many of them were busy during the training, whoever kept them busy."""

    def __init__(self) -> None:
        affinity = getattr(os, "sched_getaffinity", None)
        self._allowed = set(affinity(0)) if affinity else set(range(os.cpu_count() or 1))
        self._began: tuple[float, float] | None = None

    def to_dict(self, is_training: bool) -> dict[str, Any]:
        """`busy_cores` is None where the system does not say, and before the training."""
        now = self._busy_s()
        if self._began is None and is_training:
            self._began = now
        busy: float | None = None
        if self._began and now and now[0] - self._began[0] > 0.2:
            busy = (now[1] - self._began[1]) / (now[0] - self._began[0])
        return {"cores": self._cores(), "busy_cores": busy}

    def _cores(self) -> int:
        """Cores of the affinity mask, or fewer where a container has a quota."""
        try:
            with _plain_open("/sys/fs/cgroup/cpu.max") as file:
                quota, period = file.read().split()
            limit = max(1, round(int(quota) / int(period)))
        except (OSError, ValueError):  # no cgroup of version 2, or no quota ("max")
            limit = len(self._allowed)
        return min(limit, len(self._allowed))

    def _busy_s(self) -> tuple[float, float] | None:
        """The clock, and the seconds that the allowed cores were busy since the machine started."""
        try:
            with _plain_open("/proc/stat") as file:
                lines = [line.split() for line in file if line.startswith("cpu") and line[3:4].isdigit()]
        except OSError:
            return None
        ticks = sum(sum(map(int, line[1:4])) + sum(map(int, line[6:9])) for line in lines if int(line[0][3:]) in self._allowed)
        return time.perf_counter(), ticks / os.sysconf("SC_CLK_TCK")
