"""What a process that is being started must not get from the one that starts it: its main script, its folder, a Ctrl-C.

In: nothing. Out: conditions that hold while a block starts a process, and afterwards no more. Threads may start processes
at the same time.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType

from unchoke.jobs.signals import STOP_SIGNALS

_SAFE_PATH = "PYTHONSAFEPATH"


@dataclass
class _Hiding:
    """How many threads are starting a process now, and what the first of them hid."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    depth: int = 0
    script: ModuleType | None = None
    safe_path: str | None = None


_hiding = _Hiding()


@contextmanager
def main_script_hidden() -> Iterator[None]:
    """Let a child start without importing the caller's main script, which may lack a guard and would run all over again.

    Nor does it take modules from the folder the user is in: a numpy.py or a random.py lying there would be imported instead of
    the real one before the child knows where the caller looks for modules.
    """
    with _hiding.lock:
        if _hiding.depth == 0:
            _hiding.script, _hiding.safe_path = sys.modules["__main__"], os.environ.get(_SAFE_PATH)
            sys.modules["__main__"] = ModuleType("__main__")
            os.environ[_SAFE_PATH] = "1"
        _hiding.depth += 1
    try:
        yield
    finally:
        with _hiding.lock:
            _hiding.depth -= 1
            if _hiding.depth == 0:
                _restore()


def _restore() -> None:
    if _hiding.script is not None:
        sys.modules["__main__"], _hiding.script = _hiding.script, None
    if _hiding.safe_path is None:
        del os.environ[_SAFE_PATH]
    else:
        os.environ[_SAFE_PATH] = _hiding.safe_path


@contextmanager
def stop_signals_held_back() -> Iterator[None]:
    """A Ctrl-C while a worker starts must not end it: it inherits the mask, and sets its own handlers before lifting it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # starting it lifts the mask, so it must not be started below
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def children_allowed() -> Iterator[None]:
    """Start a process although this one is itself a worker of a pool, which multiprocessing forbids to have children.

    It forbids it because they would be left behind when the pool ends its workers; ours end when whoever started them does.
    """
    config: dict[str, object] = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    if not config.get("daemon"):
        yield
        return
    config["daemon"] = False
    try:
        yield
    finally:
        config["daemon"] = True
