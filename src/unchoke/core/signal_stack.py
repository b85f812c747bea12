"""The stack on which a thread runs its signal handlers, kept as it was.

OpenVINO's CPU plugin gives the thread that loads it a stack of its own, and frees that stack in whichever thread lets go of the
plugin. Where that is another one, the first is left with a stack that is gone: its next signal (a Ctrl-C, a child that ended) is
a SIGSEGV.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class _SignalStack(ctypes.Structure):
    """Linux's `stack_t`; only there does the plugin do this."""

    _fields_ = (("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("num_bytes", ctypes.c_size_t))


@contextmanager
def kept_signal_stack() -> Iterator[None]:
    """Afterwards this thread handles signals where it did before, whatever was loaded meanwhile."""
    if sys.platform != "linux":
        yield
        return
    call, before = ctypes.CDLL(None).sigaltstack, _SignalStack()
    call(None, ctypes.byref(before))
    try:
        yield
    finally:
        call(ctypes.byref(before), None)
