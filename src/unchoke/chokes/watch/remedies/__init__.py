"""Changes to somebody's training that can be switched on while it runs, the script unedited: one at a time.

In comes a remedy by name, `workers:2` for one with an argument; out comes the same process with a few functions replaced. Each
remedy is a function of an `Applying`, which it tells whenever it did something: a remedy that found nothing to do is known by
that. What it brings, and whether the losses stayed what they were, is for others to find out.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module

from unchoke.chokes.watch.remedies.applying import Applying

REMEDIES = {
    "workers": "loader_workers",
    "persistent-workers": "loader_workers",
    "keep-freed-memory": "freed_memory",
    "anomaly-off": "training_steps",
    "frozen-no-grad": "training_steps",
    "inference-mode": "training_steps",
    "draft-jpeg": "drafts",
    "cached-stat": "lookups",
    "cached-rasters": "rasters",
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


def split(remedy: str) -> tuple[str, str]:
    """Name and argument."""
    name, _, argument = remedy.partition(":")
    return name, argument


def is_known(remedy: str) -> bool:
    return split(remedy)[0] in REMEDIES


def switch_on(remedy: str, applying: Applying) -> None:
    """Put the functions of `remedy` in place, now or as soon as the script imports what it is about."""
    name, _ = split(remedy)
    module = import_module(f"unchoke.chokes.watch.remedies.{REMEDIES[name]}")
    install: Callable[[Applying], None] = getattr(module, name.replace("-", "_"))
    install(applying)


def environment(remedy: str) -> dict[str, str]:
    """What must stand in the environment before the process starts."""
    from unchoke.chokes.watch.remedies import freed_memory as memory

    return dict(memory.ENVIRONMENT) if remedy == "keep-freed-memory" and memory.has_glibc(os) else {}
