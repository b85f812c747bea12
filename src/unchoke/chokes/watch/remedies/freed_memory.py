"""Memory: keep glibc from handing freed blocks back to the system, by its environment; and how much of it is left to use.

In: nothing but the system. The environment has to be set before a process starts: here it is only noticed.
"""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import Any

from unchoke.chokes.watch.remedies.applying import Applying

ENVIRONMENT = MappingProxyType(
    {
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
        "MALLOC_TOP_PAD_": str(256 << 20),
    }
)
_UNKNOWN_BYTES = 2 << 30
_open = os.open


def keep_freed_memory(applying: Applying) -> None:
    """Large blocks come from the heap and stay there."""
    if all(os.environ.get(name) == value for name, value in ENVIRONMENT.items()):
        applying.did()


def has_glibc(system: Any) -> bool:
    """Whether `system` (the module `os`) stands on the C library that reads these variables."""
    try:
        return str(system.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, ValueError, OSError):
        return False


def available_bytes() -> int:
    """What all processes together could still use, as Linux counts it; elsewhere a careful guess."""
    try:
        descriptor = _open("/proc/meminfo", os.O_RDONLY)
    except OSError:
        return _UNKNOWN_BYTES
    try:
        lines = os.read(descriptor, 4096).decode().splitlines()
    finally:
        os.close(descriptor)
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return found[0] if found else _UNKNOWN_BYTES
