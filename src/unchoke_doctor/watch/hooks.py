"""Ways into somebody else's code: run something once a module was imported, and put a watched function in another one's place.

In come names, callbacks and makers of wrappers; out comes the same program with a few functions replaced. A function of a
module is replaced by a `StandIn`: like a builtin it does not become a method when a class holds it, and it can be pickled into
processes that know nothing of us. Neither an import nor a call ever fails because of us: what goes wrong on our side is noted
in the record.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import os
import sys
import threading
import zlib
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Function = Callable[..., Any]
_CHECKED_BYTES = 1024
_waiting: dict[str, list[Callable[[], None]]] = {}
_imported: set[str] = set()
_searching = threading.local()


def when_imported(name: str, callback: Callable[[], None]) -> None:
    """Run `callback` as soon as the module `name` was imported: now, if it was already, or never."""
    module = sys.modules.get(name)
    is_loaded = module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)
    if name in _imported or is_loaded:
        _safely(callback, name)
        return
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    _waiting.setdefault(name, []).append(callback)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself; where somebody waits for a module, its loader is made to tell when it is done."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname not in _waiting or getattr(_searching, "name", None) == fullname:
            return None
        _searching.name = fullname
        try:
            spec = self._find_elsewhere(fullname, path, target)
        finally:
            _searching.name = None
        if spec is not None and spec.loader is not None:
            _tell_when_done(spec.loader, fullname)
        return spec

    def _find_elsewhere(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(fullname, path, target)
            if spec is not None:
                return spec
        return None


def _tell_when_done(loader: Any, fullname: str) -> None:
    """Loaders are objects of one import each: their `exec_module` is replaced for this one module."""
    original = getattr(loader, "exec_module", None)
    if original is None or isinstance(loader, type):
        return

    def exec_module(module: ModuleType) -> None:
        try:
            del loader.exec_module
        except AttributeError as error:
            _note(f"import of {fullname}: {error}")
        original(module)
        package, _, name = fullname.rpartition(".")
        if package in sys.modules:  # what the import system is about to do: callbacks may then write `import package.module`
            setattr(sys.modules[package], name, module)
        _imported.add(fullname)
        for callback in _waiting.pop(fullname, []):
            _safely(callback, fullname)

    try:
        loader.exec_module = exec_module
    except AttributeError as error:  # a loader with slots: its module stays unwatched
        _note(f"not watched: {fullname} ({error})")


def _safely(callback: Callable[[], None], name: str) -> None:
    try:
        callback()
    except Exception as error:
        _note(f"not watched: {name} ({type(error).__name__}: {error})")


def _note(text: str) -> None:
    from unchoke_doctor.watch import recorder as record  # most processes that wait for an import never record anything

    record.note(text)


class Hook:
    """One function in the place of another, until `undo`."""

    def __init__(self, owner: Any, name: str, make: Callable[[Function], Function], *, stand_in: bool) -> None:
        self._owner = owner
        self._name = name
        self._own = name in vars(owner)
        self.original: Any = vars(owner)[name] if self._own else getattr(owner, name)
        called = self.original.__func__ if isinstance(self.original, staticmethod | classmethod) else self.original
        wrapped = make(called)
        if stand_in and isinstance(owner, ModuleType) and not isinstance(wrapped, StandIn):
            wrapped = type("StandIn", (StandIn,), {"__call__": staticmethod(wrapped)})(owner.__name__, name)
        functools.update_wrapper(wrapped, called)
        self.replacement: Any = type(self.original)(wrapped) if called is not self.original else wrapped
        setattr(owner, name, self.replacement)

    def undo(self) -> None:
        """Put the original back, unless somebody else has replaced it meanwhile."""
        if vars(self._owner).get(self._name) is not self.replacement:
            return
        if self._own:
            setattr(self._owner, self._name, self.original)
        else:
            delattr(self._owner, self._name)


def replace(owner: Any, name: str, make: Callable[[Function], Function], *, stand_in: bool = False) -> Hook | None:
    """Put `make(original)` in the place of `owner.name`, with its name and documentation; None where there is no such thing.

    `stand_in`: the function of a module becomes a `StandIn`.
    """
    if getattr(owner, name, None) is None:
        return None
    try:
        return Hook(owner, name, make, stand_in=stand_in)
    except (TypeError, AttributeError) as error:  # a type of a C extension
        _note(f"not watched: {name} ({error})")
        return None


class StandIn:
    """What takes the place of a module's function. Each is a class of its own, so that a call costs one call."""

    def __init__(self, module: str, name: str) -> None:
        self.__module__ = module
        self._place = (module, name)

    def __reduce__(self) -> tuple[Function, tuple[Any, ...]]:
        module, name = self._place
        return getattr, (_Module(module), name)

    def __repr__(self) -> str:
        return f"<watched {'.'.join(self._place)}>"


class _Module:
    """Pickles as an import, so that what comes out on the other side is whatever that module holds there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> tuple[Function, tuple[str]]:
        return import_module, (self._name,)


def path_of(source: Any) -> str | None:
    """The path that a function was given: as text, as a path, or as an open file. None for anything else."""
    if isinstance(source, str):
        return source
    if hasattr(source, "__fspath__"):
        return os.fsdecode(source)
    name = getattr(source, "name", None)
    return name if isinstance(name, str) else None


def key_of(source: Any) -> str | None:
    """What tells one source from another: its path, or the length and a checksum of a part of its bytes."""
    path = path_of(source)
    if path is not None:
        return path
    if hasattr(source, "getbuffer"):
        source = source.getbuffer()
    if not isinstance(source, bytes | bytearray | memoryview):
        return None
    with memoryview(source) as view:
        begin = len(view) // 2
        return f"{len(view)} bytes {zlib.crc32(view[begin : begin + _CHECKED_BYTES]):08x}"
