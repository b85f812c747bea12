"""Changes to somebody's training that can be switched on while it runs, the script unedited: one at a time.

In comes a remedy by name, `workers:2` for one with an argument; out comes the same process with a few functions replaced. Each
remedy is a function that takes a `Remedy` and counts there what it changed, so that one that found nothing to do is noticed.
Whether it helps, and whether the losses stay the same, is measured by `chokes/remedy_trials.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from types import MappingProxyType
from typing import Any

from unchoke.chokes.watch.remedies.remedy import Remedy

REMEDIES = {
    "workers": "training_loop",
    "persistent-workers": "training_loop",
    "keep-freed-memory": "training_loop",
    "anomaly-off": "training_loop",
    "frozen-no-grad": "training_loop",
    "inference-mode": "training_loop",
    "draft-jpeg": "drafts",
    "cached-stat": "lookups",
    "cached-rasters": "kept_results",
    "cached-decode": "kept_results",
    "cached-tables": "kept_results",
}
"""Which module holds each remedy, as a function of its name with underscores."""
CHANGES_PIXELS = frozenset({"draft-jpeg"})
"""Remedies that cannot keep the numbers to the last digit."""
REMEMBER = frozenset({"cached-stat", "cached-rasters", "cached-decode", "cached-tables"})
"""Remedies that bring nothing before the second epoch."""
RANDOM_IN_WORKERS = frozenset({"workers", "persistent-workers"})
"""Remedies after which random numbers in a Dataset are drawn by other processes, or in another order."""
KEEP_FREED_MEMORY = MappingProxyType(
    {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(16 << 30), "MALLOC_TOP_PAD_": str(256 << 20)}
)
"""The environment in which glibc does not hand freed blocks back to the system: large ones come from the heap and stay there."""


def split(remedy: str) -> tuple[str, str]:
    """Name and argument."""
    name, _, argument = remedy.partition(":")
    return name, argument


def is_known(remedy: str) -> bool:
    return split(remedy)[0] in REMEDIES


def switch_on(name: str, remedy: Remedy) -> None:
    """Put the functions of the remedy of this name in place, now or as soon as the script imports what it is about."""
    name, _ = split(name)
    module = import_module(f"unchoke.chokes.watch.remedies.{REMEDIES[name]}")
    install: Callable[[Remedy], None] = getattr(module, name.replace("-", "_"))
    install(remedy)


def environment(remedy: str) -> dict[str, str]:
    """What must stand in the environment before the process starts."""
    return dict(KEEP_FREED_MEMORY) if remedy == "keep-freed-memory" and has_glibc(os) else {}


def has_glibc(system: Any) -> bool:
    """Whether `system` (the module `os`) stands on the C library that reads these variables."""
    try:
        return str(system.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, ValueError, OSError):
        return False
