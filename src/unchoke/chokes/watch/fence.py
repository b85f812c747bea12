"""A fence around the files of a process, by the Linux kernel (Landlock): outside the given folders nothing is written or removed.

In come folders; from then on this process, its threads and its children cannot write elsewhere, C extensions included. To be put
up before threads start; it cannot be taken down. Reading is free. On other systems there is no fence, and `put_up` says so.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_VERSION_FLAG = 1
_BENEATH = 1
_NO_NEW_PRIVILEGES = 38
_WRITES = 1 << 1 | sum(1 << bit for bit in range(4, 13))  # write, remove and make files, folders, links, sockets, …
_REFER, _TRUNCATE = 1 << 13, 1 << 14  # from versions 2 and 3 on
_JUST_THE_PATH = getattr(os, "O_PATH", 0)


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def available() -> bool:
    """Whether this kernel has fences."""
    return _version() >= 1


def _version() -> int:
    return int(_system()(_CREATE_RULESET, None, 0, _VERSION_FLAG)) if sys.platform.startswith("linux") else 0


def _system() -> Callable[..., int]:
    return ctypes.CDLL(None, use_errno=True).syscall


def put_up(folders: Iterable[str]) -> bool:
    """Let this process write below `folders` only; whether the kernel does that."""
    version = _version()
    if version < 1:
        return False
    system = _system()
    rights = _WRITES | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    handled = ctypes.c_uint64(rights)
    ruleset = system(_CREATE_RULESET, ctypes.byref(handled), ctypes.sizeof(handled), 0)
    if ruleset < 0:
        return False
    try:
        for folder in folders:
            _allow(system, ruleset, folder, rights)
        return _no_new_privileges() and system(_RESTRICT_SELF, ruleset, 0) == 0
    finally:
        os.close(ruleset)


def _allow(system: Callable[..., int], ruleset: int, folder: str, rights: int) -> None:
    if not os.path.isdir(folder):
        return
    descriptor = os.open(folder, _JUST_THE_PATH | os.O_CLOEXEC)
    try:
        rule = _Beneath(rights, descriptor)
        system(_ADD_RULE, ruleset, _BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(descriptor)


def _no_new_privileges() -> bool:
    return int(ctypes.CDLL(None, use_errno=True).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)) == 0
