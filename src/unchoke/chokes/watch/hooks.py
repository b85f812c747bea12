"""Ways into somebody else's code: run something once a module was imported, and put a function in another one's place.

In come names, callbacks and makers of wrappers; out comes the same program with a few functions replaced. Neither an import nor a
call ever fails because of us: what goes wrong on our side is noted in the record, and the original put back.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_waiting: dict[str, list[Callable[[], None]]] = {}
_told: set[str] = set()
_searching = threading.local()


def when_imported(name: str, callback: Callable[[], None]) -> None:
    """Run `callback` as soon as the module `name` was imported: now, if it was already, or never."""
    if name in _told or _is_imported(name):
        _safely(callback, name)
        return
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    _waiting.setdefault(name, []).append(callback)


def _is_imported(name: str) -> bool:
    module = sys.modules.get(name)
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself; where somebody waits for a module, its loader is made to tell when it is done."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname not in _waiting or getattr(_searching, "name", None) == fullname:
            return None
        _searching.name = fullname
        try:
            spec = _find_elsewhere(self, fullname, path, target)
        finally:
            _searching.name = None
        if spec is not None and spec.loader is not None:
            _tell_when_done(spec.loader, fullname)
        return spec


def _find_elsewhere(
    asking: importlib.abc.MetaPathFinder, fullname: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        if finder is asking or find is None:
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
        _put_into_package(module, fullname)
        _told.add(fullname)
        for callback in _waiting.pop(fullname, []):
            _safely(callback, fullname)

    try:
        loader.exec_module = exec_module
    except AttributeError as error:  # a loader with slots: its module stays unwatched
        _note(f"not watched: {fullname} ({error})")


def _put_into_package(module: ModuleType, fullname: str) -> None:
    """What the import system is about to do: callbacks may then write `import package.module` and use it."""
    package, _, name = fullname.rpartition(".")
    if package in sys.modules:
        setattr(sys.modules[package], name, module)


class Patch:
    """One function in the place of another, until `undo`."""

    def __init__(self, owner: Any, name: str, make: Callable[[Callable[..., Any], Patch], Callable[..., Any]]) -> None:
        self._owner = owner
        self._name = name
        self._own = name in vars(owner)
        self.original: Any = vars(owner)[name] if self._own else getattr(owner, name)
        called = self.original.__func__ if isinstance(self.original, staticmethod | classmethod) else self.original
        wrapped = make(called, self)
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

    def rest(self) -> None:
        """Put the original back for a while, unless somebody else has replaced it meanwhile."""
        if vars(self._owner).get(self._name) is self.replacement:
            setattr(self._owner, self._name, self.original)

    def wake(self) -> None:
        """Watch again after `rest`."""
        if vars(self._owner).get(self._name) is self.original:
            setattr(self._owner, self._name, self.replacement)

    def fail(self, error: BaseException) -> None:
        """Our side of the hook went wrong: take it away and say so in the record."""
        self.undo()
        _note(f"stopped watching {self._name}: {type(error).__name__}: {error}")


def replace(owner: Any, name: str, make: Callable[[Callable[..., Any], Patch], Callable[..., Any]]) -> Patch | None:
    """Put `make(original, patch)` in the place of `owner.name`; None where there is no such thing."""
    if getattr(owner, name, None) is None:
        return None
    try:
        return Patch(owner, name, make)
    except (TypeError, AttributeError) as error:  # a type of a C extension
        _note(f"not watched: {name} ({error})")
        return None


def _safely(callback: Callable[[], None], name: str) -> None:
    try:
        callback()
    except Exception as error:
        _note(f"not watched: {name} ({type(error).__name__}: {error})")


def _note(text: str) -> None:
    from unchoke.chokes.watch import recorder as record

    record.note(text)
