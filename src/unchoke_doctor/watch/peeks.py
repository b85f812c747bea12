"""What a running function works on, by a few looks at its variables: which arrays are large, which calls get the same again.

In: frames of the user's, held by a thread that holds the interpreter. Out: the largest array or picture seen at each line, in
pixels; and the functions that were met in several steps or batches with arguments they had before. Only plain values and
objects of array libraries are looked at, so that no code of the user's runs by it. Of a tensor no memory is read, which native
code may be giving back at that moment: it is the same one if it is the same object and nobody has written to it. A frame's
variables are copied to be read, and the copy is emptied at once (Python 3.13 needs none): functions that ask for their variables
themselves, as with `locals()`, share that copy and are left alone.
"""

from __future__ import annotations

import ctypes
import inspect
import sys
import weakref
from collections.abc import Hashable, Iterable, Sequence
from itertools import islice
from types import CodeType, FrameType
from typing import Any
from zlib import crc32

_LOOKS = 3
_MAX_LINES = 200
_LIBRARIES = ("numpy", "torch", "PIL")
_OWN_LOCALS = frozenset({"locals", "vars", "dir", "eval", "exec", "_getframe"})
_COPIES = sys.version_info < (3, 13)
_LOOKS_ALWAYS, _MET_ALWAYS = 8, 3
"""How often a function is looked at that always gets the same, and in how many steps or batches it must have been met."""
_LOOKS_OTHERS, _FEW_LOOKS, _AGAIN_SHARE = 400, 24, 0.35
"""The same for one that gets other things, some of which come again, as in every epoch."""
_FEW, _FEW_AGAIN = 4, 0.6
"""A function that changes its arguments is met with the same few of them."""
_WHOLE_BYTES, _PARTS, _PART_BYTES = 1_000_000, 64, 4_096
_MAX_TENSORS = 10_000
_FEW_ITEMS = 32
_PLAIN = (int, float, str, bytes, bool, type(None))


class Peeks:
    """What was seen in one process."""

    def __init__(self) -> None:
        self._looks: dict[tuple[str, int], int] = {}
        self._largest: dict[tuple[str, int], dict[str, Any]] = {}

    def look(self, frame: FrameType) -> None:
        """At most a few times for each line."""
        code = frame.f_code
        key = code.co_filename, frame.f_lineno or 0
        looks = self._looks.get(key, 0)
        if looks >= _LOOKS or len(self._looks) > _MAX_LINES:
            return
        self._looks[key] = looks + 1
        variables = _variables(frame)
        found = _largest(variables.items())
        if found is not None and found["px"] > self._largest.get(key, {"px": 0})["px"]:
            self._largest[key] = found

    def to_list(self) -> list[dict[str, Any]]:
        return [{"file": file, "line": line, **found} for (file, line), found in self._largest.copy().items()]


class _Calls:
    """Looks at one function."""

    __slots__ = ("again", "arguments", "code", "looks", "met", "prints")

    def __init__(self, code: CodeType, arguments: tuple[str, ...]) -> None:
        self.code = code
        self.arguments = arguments
        self.looks = 0
        self.again = 0
        """Looks at arguments that had been seen in an earlier step or batch."""
        self.met: set[Hashable] = set()
        self.prints: dict[int, Hashable] = {}
        """Checksums of arguments, each with the step or batch it was first seen in."""


class SameArguments:
    """Functions that are given the same again and again. Generators keep their arguments by nature, and are left out."""

    def __init__(self) -> None:
        self._calls: dict[int, _Calls] = {}
        self._tensors: dict[int, tuple[weakref.ref[Any], int]] = {}

    def look(self, frames: Sequence[FrameType], now: Hashable) -> None:
        """`now` tells one step or batch from the next: within one, a call may be met twice."""
        for frame in frames:
            code = frame.f_code
            calls = self._calls.get(id(code))
            if calls is None:
                if len(self._calls) > _MAX_LINES:
                    return
                calls = self._calls[id(code)] = _Calls(code, _arguments(code))
            most = _LOOKS_ALWAYS if len(calls.prints) == 1 else _LOOKS_OTHERS
            if calls.arguments and calls.looks < most and (len(calls.prints) != 1 or now not in calls.met):
                self._add(calls, frame, now)

    def _add(self, calls: _Calls, frame: FrameType, now: Hashable) -> None:
        variables = _variables(frame)
        seen = tuple(self._print(variables.get(name, frame)) for name in calls.arguments)
        if None in seen:
            calls.arguments = ()  # nothing can be told of it
            return
        calls.looks += 1
        calls.met.add(now)
        calls.again += calls.prints.setdefault(hash(seen), now) != now

    def _print(self, value: Any, depth: int = 2) -> Hashable:
        """What tells a value from another; None where it cannot be told, or the same object may hold something else later."""
        kind = type(value)
        library = kind.__module__.partition(".")[0]
        if kind in _PLAIN:
            return (kind.__name__, value)
        if library == "pathlib":
            return str(value)
        if kind in (list, tuple, set, frozenset, dict) and depth:
            return self._collection(value, depth)
        if library == "numpy" and kind.__name__ == "ndarray" and value.flags.c_contiguous and not value.dtype.hasobject:
            return (value.shape, str(value.dtype), _checksum(value.ctypes.data, value.nbytes))
        if library == "scipy" and hasattr(value, "nnz"):  # a sparse matrix: the arrays it is made of
            parts = [getattr(value, name, None) for name in ("data", "indices", "indptr", "row", "col")]
            return (kind.__name__, value.shape, *(self._print(part) for part in parts if part is not None))
        if library == "pandas":
            return ("frame", id(value), getattr(value, "shape", None))
        if library == "torch" and kind.__name__ == "Tensor" and not value.requires_grad:
            return self._tensor(value)
        return None

    def _collection(self, value: Any, depth: int) -> Hashable:
        """The length and a few elements, spread over it; None where one of them cannot be told from another."""
        items = list(value.items()) if isinstance(value, dict) else value
        ordered = items if isinstance(items, list | tuple) else list(islice(items, _FEW_ITEMS))
        chosen = [ordered[place] for place in range(0, len(ordered), max(1, len(ordered) // _FEW_ITEMS))]
        prints = tuple(self._print(one, depth - 1) for one in chosen)
        return None if None in prints else (type(value).__name__, len(value), prints)

    def _tensor(self, value: Any) -> Hashable:
        """The number of a tensor and of its last change; None for those that do not count changes."""
        known, number = self._tensors.get(id(value), (None, 0))
        if known is None or known() is not value:
            number = len(self._tensors) if known is None else number + _MAX_TENSORS
            if len(self._tensors) >= _MAX_TENSORS:
                return None
            self._tensors[id(value)] = (weakref.ref(value), number)
        try:
            return ("tensor", number, value._version)
        except RuntimeError:  # made under torch.inference_mode()
            return None

    def to_list(self) -> list[dict[str, Any]]:
        """Functions that always got the same, or often what they had in an earlier step or batch."""
        found = []
        for calls in list(self._calls.values()):
            always = len(calls.prints) == 1 and len(calls.met) >= _MET_ALWAYS
            often = calls.looks >= _FEW_LOOKS and calls.again >= _AGAIN_SHARE * calls.looks
            few = len(calls.prints) <= _FEW and len(calls.met) >= _LOOKS_ALWAYS and calls.again >= _FEW_AGAIN * calls.looks
            if calls.arguments and (always or often or few):
                code = {"file": calls.code.co_filename, "function": calls.code.co_qualname, "arguments": calls.arguments}
                found.append({**code, "met": calls.looks, "distinct": len(calls.prints)})
        return found


def _arguments(code: CodeType) -> tuple[str, ...]:
    """What a function is given, without the object it belongs to; nothing for one that takes any number, or is a generator."""
    open_ended = (
        inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    )
    if code.co_flags & open_ended or not code.co_flags & inspect.CO_OPTIMIZED or _OWN_LOCALS.intersection(code.co_names):
        return ()
    if code.co_name == "__getitem__":  # indices come again in every epoch: what it does inside is looked at by itself
        return ()
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return names[1:] if names[:1] in (("self",), ("cls",)) else names


def _variables(frame: FrameType) -> dict[str, Any]:
    """A function's variables by name, as they are now; none where reading them could be noticed."""
    code = frame.f_code
    if not code.co_flags & inspect.CO_OPTIMIZED or _OWN_LOCALS.intersection(code.co_names):
        return {}
    variables = frame.f_locals
    found = dict(variables)
    if _COPIES:
        variables.clear()
    return found


def _checksum(address: int, num_bytes: int) -> int:
    """Of an array's memory; of a large one, of parts spread over it."""
    if not address or not num_bytes:
        return 0
    if num_bytes <= _WHOLE_BYTES:
        return crc32(ctypes.string_at(address, num_bytes))
    found = 0
    for part in range(_PARTS):
        found = crc32(ctypes.string_at(address + (num_bytes - _PART_BYTES) * part // (_PARTS - 1), _PART_BYTES), found)
    return found


def _largest(variables: Iterable[tuple[str, Any]]) -> dict[str, Any] | None:
    """The array with the most pixels; of three dimensions the two larger ones are pixels."""
    largest: dict[str, Any] | None = None
    for name, value in variables:
        kind = type(value)
        if kind.__module__.partition(".")[0] not in _LIBRARIES:
            continue
        shape = _shape(value)
        if len(shape) < 2:
            continue
        height, width = sorted(shape[-3:])[-2:]
        if largest is None or height * width > largest["px"]:
            dtype = str(getattr(value, "dtype", "uint8")).removeprefix("torch.")
            text = f"{dtype} {'×'.join(map(str, shape))}"
            largest = {"name": name, "px": height * width, "sides": [height, width], "dtype": dtype, "text": text}
    return largest


def _shape(value: Any) -> tuple[int, ...]:
    """Of arrays and tensors their shape, of a picture height and width."""
    found = getattr(value, "shape", None)
    if found is None:
        size = getattr(value, "size", None)
        found = size[::-1] if isinstance(size, tuple) else ()
    return tuple(int(number) for number in found) if isinstance(found, tuple) else ()
