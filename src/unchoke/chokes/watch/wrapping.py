"""Timed functions in the place of others: how long each call took, less what timed calls inside it took, goes to the record.

In: an owner (a module or a class), a name, a kind of call and a function that says what it was about. Out: the same program,
with that function watched until `remove`. A function of a module is replaced by a `StandIn`: like a builtin it does not become
a method when a class holds it, and it can be pickled into processes that know nothing of us. An error of ours never reaches the
script: the hook passes calls through from then on, and a note says so. What a call means is not known here.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Callable
from functools import partial
from importlib import import_module
from time import perf_counter
from types import ModuleType
from typing import Any, TypedDict

from unchoke.chokes.watch import hooks
from unchoke.chokes.watch.recorder import Recorder

Function = Callable[..., Any]
_CHECKED_BYTES = 1024


class About(TypedDict, total=False):
    """What a call was about: the arguments of `Recorder.call`. None instead of it: not worth recording."""

    amount: float
    key: str | None
    detail: dict[str, Any] | None


Describe = Callable[[Any, tuple[Any, ...], dict[str, Any]], About | None]
"""From a call's result, its arguments and its options, after it."""
Announce = Callable[[tuple[Any, ...], dict[str, Any]], About | None]
"""From a call's arguments and options, before it."""
Fail = Callable[[Exception], None]


class _Nesting(threading.local):
    """Of this thread: which kind of call is being timed, and how many seconds timed calls have taken so far."""

    kind = ""
    spent_s = 0.0


_nesting = _Nesting()


class Wrappings:
    """The functions that one part of the watcher has replaced."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._patches: list[hooks.Patch] = []
        self._removed = False

    def put(self, owner: Any, name: str, make: Callable[[Function, Fail], Function], *, rests: bool = False) -> Function | None:
        """Replace `owner.name` by `make(original, fail)`, with its name and documentation; None where there is no such thing.

        `rests`: not watched while the recorder's hooks rest.
        """

        def wrapped(original: Function, patch: hooks.Patch) -> Function:
            function = make(original, patch.fail)
            is_plain = isinstance(owner, ModuleType) and not isinstance(function, StandIn)
            return stand_in(function, owner.__name__, name) if is_plain else function

        patch = None if self._removed else hooks.replace(owner, name, wrapped)
        if patch is None:
            return None
        self._patches.append(patch)
        if rests:
            self.recorder.duty.may_rest(patch)
        return patch.replacement  # type: ignore[no-any-return]

    def time(self, owner: Any, name: str, kind: str, describe: Describe) -> None:
        """Count and time the calls of `owner.name` that succeed. One inside another of its kind is part of that one."""
        self.put(owner, name, partial(_timed, self.recorder, kind, None, describe))

    def time_announced(self, owner: Any, name: str, kind: str, announce: Announce) -> None:
        """The same, where what a call is about can only be seen before it."""
        self.put(owner, name, partial(_timed, self.recorder, kind, announce, None))

    def remove(self) -> None:
        """Put everything back, the last one first. A library that is imported later stays as it is."""
        self._removed = True
        while self._patches:
            self._patches.pop().undo()


def _timed(
    recorder: Recorder, kind: str, announce: Announce | None, describe: Describe | None, original: Function, fail: Fail
) -> Function:
    nesting, watching = _nesting, True

    def failed(error: Exception) -> None:
        nonlocal watching
        watching = False
        fail(error)

    def timed(*args: Any, **options: Any) -> Any:
        if not watching or nesting.kind == kind:
            return original(*args, **options)
        about: About | None = {}
        if announce is not None:
            try:
                about = announce(args, options)
            except Exception as error:
                failed(error)
            if about is None:
                return original(*args, **options)
        outer, before_s, nesting.kind = nesting.kind, nesting.spent_s, kind
        started_s = perf_counter()
        try:
            result = original(*args, **options)
        finally:
            took_s = perf_counter() - started_s
            own_s = took_s - (nesting.spent_s - before_s)
            nesting.kind, nesting.spent_s = outer, before_s + took_s
        try:
            if describe is not None:
                about = describe(result, args, options)
            if about is not None:
                recorder.call(kind, own_s, **about)
        except Exception as error:
            failed(error)
        return result

    timed.__code__ = timed.__code__.replace(co_name=kind, co_qualname=kind)  # by which the sampler knows it on the stack
    return timed


class StandIn:
    """What takes the place of a module's function. `stand_in` makes each a class of its own, so that a call costs one call."""

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


def stand_in(function: Function, module: str, name: str) -> Function:
    """An object that calls `function` and is found again as `module.name`."""
    return type("StandIn", (StandIn,), {"__call__": staticmethod(function)})(module, name)  # type: ignore[no-any-return]


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


def argument(args: tuple[Any, ...], options: dict[str, Any], position: int, name: str) -> Any:
    """One argument of a call, however it was passed; None if it was not."""
    return args[position] if len(args) > position else options.get(name)
